#!/usr/bin/env bash
# Runs the job's container with the host's place in the slices: one process per chip; the rendezvous store is on the first
# host of the first slice, and outlives its trainer. Cloud TPU describes the slice in the metadata, and with several slices
# the others in the MEGASCALE_ lines of `tpu-env`, which libtpu needs in the environment.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_TPU_DEADLINE_SEC:-600}
# Hosts may be ready many minutes apart: each pulls the image, and slices come one after the other.
MEET_SEC=${GANGWAY_MEET_DEADLINE_SEC:-3600}
PORT=${GANGWAY_MEET_PORT:-29400}

# Both items are there only some time after a host has booted.
know_slice() {
    TPU_ENV=$(metadata instance/attributes/tpu-env) &&
        ENDPOINTS=$(metadata instance/attributes/worker-network-endpoints) && [ -n "$(tpu_env WORKER_ID)" ] &&
        { [ "$NUM_SLICES" = 1 ] || [ -n "$(tpu_env MEGASCALE_COORDINATOR_ADDRESS)" ]; }
}

retry "$DEADLINE_SEC" know_slice || give_up "the metadata does not describe this slice after $DEADLINE_SEC s"
# HOST:UID:IP of each host of this slice, in the order of their numbers.
IFS=, read -ra workers <<<"$ENDPOINTS"
first=${workers[0]##*:}
options=()
if [ "$NUM_SLICES" != 1 ]; then
    coordinator=$(tpu_env MEGASCALE_COORDINATOR_ADDRESS)
    first=${coordinator%:*}
    options+=(--env "MEGASCALE_COORDINATOR_ADDRESS=$coordinator" --env "MEGASCALE_NUM_SLICES=$NUM_SLICES"
        --env "MEGASCALE_SLICE_ID=$(tpu_env MEGASCALE_SLICE_ID)")
    if port=$(tpu_env MEGASCALE_PORT) && [ -n "$port" ]; then
        options+=(--env "MEGASCALE_PORT=$port")
    fi
fi
hosts=$((${#workers[@]} * NUM_SLICES))
if [ "$hosts" = 1 ]; then
    meeting=(--standalone --nnodes=1)
else
    # The launcher waits for the store.
    meeting=("--nnodes=$hosts" --rdzv-backend=gangway "--rdzv-endpoint=$first:$PORT" "--rdzv-id=$JOB_NAME"
        "--rdzv-conf=is_host=0,join_timeout=$MEET_SEC")
    if first_host && ! systemctl start gangway-rendezvous.service; then
        log "the rendezvous store does not start"
        exit 1
    fi
fi
log "TPU: host $(tpu_env WORKER_ID) of ${#workers[@]}, $NUM_SLICES slices, $hosts hosts; rendezvous at $first"
# $@ is docker's arguments up to the image and the launcher's own, then --, then torchrun's and the trainer's.
before=() word=
while [ $# -gt 0 ]; do
    word=$1
    shift
    [ "$word" != -- ] || break
    before+=("$word")
done
exec docker "${before[0]}" "${options[@]}" "${before[@]:1}" "${meeting[@]}" "$@"
