#!/usr/bin/env bash
# Loads the kernel modules of GPUDirect RDMA and checks NCCL's files, else gives up the node: NCCL would be many times slower.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_NCCL_DEADLINE_SEC:-300}
KERNEL_MODULES=() NCCL_CONF=()
# shellcheck source=/dev/null
. "${GANGWAY_FABRIC_ENV:-/etc/gangway/fabric.env}"

load_modules() {
    local module
    for module in "${KERNEL_MODULES[@]}"; do
        modprobe "$module" || return
    done
}

# A service of the image writes both at boot.
has_nccl_files() {
    local line
    [ -z "$TOPOLOGY_FILE" ] || [ -s "$ROOT$TOPOLOGY_FILE" ] || return 1
    for line in "${NCCL_CONF[@]}"; do
        grep -qxF "$line" "$ROOT/etc/nccl.conf" || return 1
    done
}

retry "$DEADLINE_SEC" load_modules || give_up "cannot load ${KERNEL_MODULES[*]}, which GPUDirect RDMA needs"
retry "$DEADLINE_SEC" has_nccl_files ||
    give_up "NCCL's files are incomplete; required: ${TOPOLOGY_FILE:-no topology file}, and in /etc/nccl.conf ${NCCL_CONF[*]:-nothing}"
