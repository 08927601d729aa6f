#!/usr/bin/env bash
# Runs the job's container once no restart is scheduled, which would make all other nodes restart too. InfiniBand connects
# only the machines of one scale set, so each has its own rendezvous; only the machine knows its name.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_NAME_DEADLINE_SEC:-120}

azure outlast || log "cannot read scheduled restarts: starting the job"
words=("$@")
if [ -n "${RDMA_DEVICES:-}" ]; then
    know_set() { scale_set=$(azure scale-set); }
    retry "$DEADLINE_SEC" know_set || {
        log "the metadata service has no scale set for this machine"
        exit 1
    }
    for i in "${!words[@]}"; do
        if [ "${words[i]}" = "--rdzv-id=$JOB_NAME" ]; then
            words[i]+="-$scale_set"
            break
        fi
    done
fi
exec docker "${words[@]}"
