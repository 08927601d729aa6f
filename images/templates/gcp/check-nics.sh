#!/usr/bin/env bash
# Checks for all planned GPU NICs, else gives up the node: NCCL would use fewer or TCP, many times slower. Counts RoCE NICs as
# RDMA devices, those of GPUDirect by their gVNIC driver: gve, or gvnic in Google's releases until 2023.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
SYSFS=${GANGWAY_SYSFS:-/sys}
DEADLINE_SEC=${GANGWAY_NIC_DEADLINE_SEC:-120}

count_rdma() { find "$SYSFS/class/infiniband" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l; }

count_gvnic() {
    local count=0 driver
    for driver in "$SYSFS"/class/net/*/device/driver; do
        case $(basename "$(readlink -f "$driver")") in
        gve | gvnic) count=$((count + 1)) ;;
        esac
    done
    echo "$count"
}

enough() { [ "$(count_rdma)" -ge "$RDMA_NICS_PLANNED" ] && [ "$(count_gvnic)" -ge "$GVNICS_PLANNED" ]; }

# Drivers may still be binding when this runs.
retry "$DEADLINE_SEC" enough ||
    give_up "NICs after $DEADLINE_SEC s: $(count_gvnic) gVNIC, $(count_rdma) RDMA; planned: $GVNICS_PLANNED, $RDMA_NICS_PLANNED"
log "NICs: $(count_gvnic) gVNIC, $(count_rdma) RDMA"
