#!/usr/bin/env bash
# Checks for all planned EFA interfaces, else gives up the node: NCCL would fall back to TCP, many times slower.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
SYSFS=${GANGWAY_SYSFS_INFINIBAND:-/sys/class/infiniband}
DEADLINE_SEC=${GANGWAY_EFA_DEADLINE_SEC:-60}
AMAZON=0x1d0f # PCI vendor id

count_efa() {
    local count=0 vendor
    for vendor in "$SYSFS"/*/device/vendor; do
        if [ -r "$vendor" ] && [ "$(cat "$vendor")" = "$AMAZON" ]; then
            count=$((count + 1))
        fi
    done
    echo "$count"
}

enough_efa() { [ "$(count_efa)" -ge "$EFA_INTERFACES_PLANNED" ]; }

# The driver may still be binding to the devices when this runs.
retry "$DEADLINE_SEC" enough_efa ||
    give_up "$(count_efa) EFA interfaces after $DEADLINE_SEC s, $EFA_INTERFACES_PLANNED planned"
log "EFA: $(count_efa) interfaces, $EFA_INTERFACES_PLANNED planned"
