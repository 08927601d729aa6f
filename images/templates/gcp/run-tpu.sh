#!/usr/bin/env bash
# Tells the job's container which part of the slices this host is, and runs it. Each host starts one process for each of
# its chips; all meet at the first host of the first slice. Cloud TPU tells each host about its slice by metadata, and
# with several slices about the others in the MEGASCALE_ lines of `tpu-env`, which libtpu wants in the environment.
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

retry "$DEADLINE_SEC" know_slice || give_up "no word of this slice in the metadata after $DEADLINE_SEC s"
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
is_first=0
if first_host; then
    is_first=1
fi
if [ "$hosts" = 1 ]; then
    meeting=(--standalone --nnodes=1)
else
    # torchrun could find out by itself whether the store is its own, from how this host's name resolves.
    meeting=("--nnodes=$hosts" --rdzv-backend=c10d "--rdzv-endpoint=$first:$PORT" "--rdzv-id=$JOB_NAME"
        "--rdzv-conf=is_host=$is_first,join_timeout=$MEET_SEC")
fi
log "TPU: host $(tpu_env WORKER_ID) of ${#workers[@]}, $NUM_SLICES slices, $hosts hosts meet at $first"
# A store that is not there yet is no failure of this host: torchrun would wait for it for a minute, and then fail.
store_serves() { timeout 5 bash -c "exec 3<>/dev/tcp/$first/$PORT" 2>/dev/null; }
if [ "$hosts" != 1 ] && [ "$is_first" = 0 ] && ! retry "$MEET_SEC" store_serves; then
    log "nobody at $first:$PORT after $MEET_SEC s"
    exit 1
fi
# $@ is docker's arguments up to the image and the launcher's own, then --, then torchrun's and the trainer's.
before=() word=
while [ $# -gt 0 ]; do
    word=$1
    shift
    [ "$word" != -- ] || break
    before+=("$word")
done
exec docker "${before[0]}" "${options[@]}" "${before[@]:1}" "${meeting[@]}" "$@"
