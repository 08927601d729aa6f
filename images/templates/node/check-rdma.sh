#!/usr/bin/env bash
# Checks that all planned adapters are up at their rate; else gives up the node: NCCL would use fewer or TCP, many times
# slower, and all nodes would wait for this one.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
SYSFS=${GANGWAY_SYSFS:-/sys}
DEADLINE_SEC=${GANGWAY_RDMA_DEADLINE_SEC:-300}

# ports: of the planned kind, and of the planned adapters where they are named. Azure's accelerated networking brings Ethernet
# devices of the same driver, whose names differ before and after its image renames them.
ports() {
    local port name
    for port in "$SYSFS"/class/infiniband/*/ports/1; do
        name=$(basename "${port%/ports/1}")
        [ -z "$RDMA_HCAS" ] || grep -qxF "$name" <<<"${RDMA_HCAS// /$'\n'}" || continue
        [ "$(cat "$port/link_layer" 2>/dev/null)" != "$RDMA_LINK_LAYER" ] || echo "$port"
    done
}

# good_ports: those whose state is "4: ACTIVE" and whose rate, such as "400 Gb/sec (4X NDR)", is not below the plan's.
good_ports() {
    local port rate
    while read -r port; do
        rate=$(cut -d' ' -f1 "$port/rate")
        if [ "$(cat "$port/state")" = "4: ACTIVE" ] && [ "${rate%.*}" -ge "$RDMA_GBPS" ]; then
            echo "$port"
        fi
    done < <(ports)
}

count() { "$1" | wc -l; }

enough() { [ "$(count good_ports)" -ge "$RDMA_DEVICES" ]; }

# adapter_states: state and rate of each adapter, for the log.
adapter_states() {
    local port
    while read -r port; do
        echo "$(basename "${port%/ports/1}"): $(cat "$port/state"), $(cat "$port/rate")"
    done < <(ports)
}

# Drivers may still be binding, links come up and devices are renamed when this runs.
retry "$DEADLINE_SEC" enough ||
    give_up "RDMA over $RDMA_LINK_LAYER after $DEADLINE_SEC s: $(count good_ports) adapters up at $RDMA_GBPS Gb/s, $RDMA_DEVICES planned; $(adapter_states | paste -sd '|')"
log "RDMA over $RDMA_LINK_LAYER: $(count good_ports) adapters up at $RDMA_GBPS Gb/s"
