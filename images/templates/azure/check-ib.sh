#!/usr/bin/env bash
# Checks that all planned InfiniBand adapters are up at full rate, with NCCL's files; else gives up the node: NCCL would use
# fewer or TCP, many times slower, and all nodes would wait for this one.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
SYSFS=${GANGWAY_SYSFS:-/sys}
DEADLINE_SEC=${GANGWAY_IB_DEADLINE_SEC:-300}
KERNEL_MODULES=() NCCL_CONF=()
# shellcheck source=/dev/null
. "${GANGWAY_FABRIC_ENV:-/etc/gangway/fabric.env}"

# ports: of InfiniBand alone. Accelerated networking brings devices of the same driver, whose links are Ethernet; names
# differ before and after the image's renaming of devices.
ports() {
    local port
    for port in "$SYSFS"/class/infiniband/*/ports/1; do
        [ "$(cat "$port/link_layer" 2>/dev/null)" != InfiniBand ] || echo "$port"
    done
}

# good_ports: those whose state is "4: ACTIVE" and whose rate, such as "400 Gb/sec (4X NDR)", is not below the plan's.
good_ports() {
    local port rate
    while read -r port; do
        rate=$(cut -d' ' -f1 "$port/rate")
        if [ "$(cat "$port/state")" = "4: ACTIVE" ] && [ "${rate%.*}" -ge "$HCA_GBPS" ]; then
            echo "$port"
        fi
    done < <(ports)
}

count() { "$1" | wc -l; }

enough() { [ "$(count good_ports)" -ge "$HCAS_PLANNED" ]; }

# adapter_states: state and rate of each adapter, for the log.
adapter_states() {
    local port
    while read -r port; do
        echo "$(basename "${port%/ports/1}"): $(cat "$port/state"), $(cat "$port/rate")"
    done < <(ports)
}

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

# Drivers may still be binding, links come up and devices are renamed when this runs.
retry "$DEADLINE_SEC" enough ||
    give_up "InfiniBand after $DEADLINE_SEC s: $(count good_ports) adapters up at $HCA_GBPS Gb/s, $HCAS_PLANNED planned; $(adapter_states | paste -sd '|')"
retry "$DEADLINE_SEC" load_modules || give_up "cannot load ${KERNEL_MODULES[*]}, which GPUDirect RDMA needs"
retry "$DEADLINE_SEC" has_nccl_files ||
    give_up "NCCL's files are incomplete; required: ${TOPOLOGY_FILE:-no topology file}, and in /etc/nccl.conf ${NCCL_CONF[*]:-nothing}"
log "InfiniBand: $(count good_ports) adapters up at $HCA_GBPS Gb/s"
