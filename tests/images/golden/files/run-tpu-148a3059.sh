#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_TPU_DEADLINE_SEC:-600}
MEET_SEC=${GANGWAY_MEET_DEADLINE_SEC:-3600}
PORT=${GANGWAY_MEET_PORT:-29400}

know_slice() {
    TPU_ENV=$(metadata instance/attributes/tpu-env) &&
        ENDPOINTS=$(metadata instance/attributes/worker-network-endpoints) && [ -n "$(tpu_env WORKER_ID)" ] &&
        { [ "$NUM_SLICES" = 1 ] || [ -n "$(tpu_env MEGASCALE_COORDINATOR_ADDRESS)" ]; }
}

retry "$DEADLINE_SEC" know_slice || give_up "the metadata does not describe this slice after $DEADLINE_SEC s"
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
    meeting=("--nnodes=$hosts" --rdzv-backend=gangway "--rdzv-endpoint=$first:$PORT" "--rdzv-id=$JOB_NAME"
        "--rdzv-conf=is_host=0,join_timeout=$MEET_SEC")
    if first_host && ! systemctl start gangway-rendezvous.service; then
        log "the rendezvous store does not start"
        exit 1
    fi
fi
log "TPU: host $(tpu_env WORKER_ID) of ${#workers[@]}, $NUM_SLICES slices, $hosts hosts; rendezvous at $first"
before=() word=
while [ $# -gt 0 ]; do
    word=$1
    shift
    [ "$word" != -- ] || break
    before+=("$word")
done
exec docker "${before[0]}" "${options[@]}" "${before[@]:1}" "${meeting[@]}" "$@"
