#!/usr/bin/env bash
# Runs the job's container in the foreground; systemd sees its exit code and its signals reach it.
# Ends with 0 at once where there is nothing to run any more: the node is about to go, or the job has ended.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
DOCKER_ARGV=() RUN=(docker)
# shellcheck source=/dev/null
. "${GANGWAY_JOB_ENV:-/etc/gangway/job.env}"

# When the job began. The first node to start it writes this beside the run; ln makes the file appear whole, and only
# once.
job_began() {
    local mine=$RUN_DIR/.started-at.$HOSTNAME.$$
    date +%s >"$mine"
    # A bucket mounted as a folder knows no hard links.
    ln "$mine" "$STARTED_AT" 2>/dev/null || mv -n "$mine" "$STARTED_AT" || true
    rm -f "$mine"
    cat "$STARTED_AT"
}

# A bucket mounted as a folder shows all of it as the trainer's, and need not take a change of owner.
prepare_folder() {
    [ "$(stat -c %u "$1" 2>/dev/null)" = "$TRAINER_UID" ] || install -d -o "$TRAINER_UID" -g "$TRAINER_UID" "$1"
}

mkdir -p "$STATE_DIR"
rm -f "$STATE_DIR/ran"
if leaving; then
    log "this node is about to go: the trainer is not started again"
    exit 0
fi
if [ -e "$STATE_DIR/ended" ]; then
    log "the job has ended here ($(cat "$STATE_DIR/ended")): remove $STATE_DIR/ended to start it again"
    exit 0
fi
# The container's user must be able to write both, and root owns what a parallel file system makes. Every node does this,
# at any time: install takes a folder that is already there.
for folder in "$RUN_DIR" ${DATA_DIR:+"$DATA_DIR"}; do
    prepare_folder "$folder"
done
if [ -n "$MAX_SEC" ]; then
    stop=$(($(job_began) + MAX_SEC))
    if hours_over 0; then
        log "the job's $MAX_SEC s are over, counted from its first start: raise max_hours to go on, or remove $STARTED_AT"
        end_job 75 max-hours
        exit 0
    fi
    DOCKER_ARGV=("${DOCKER_ARGV[0]}" --env "GANGWAY_STOP_AT=$stop" "${DOCKER_ARGV[@]:1}")
fi
# What this node costs: the record prices it by the kind of capacity that it came from.
capacity=$(own_capacity) || capacity=
if [ -n "$capacity" ]; then
    DOCKER_ARGV=("${DOCKER_ARGV[0]}" --env "GANGWAY_CAPACITY=$capacity" "${DOCKER_ARGV[@]:1}")
fi
# What a start before this one may have said of its end, should somebody have this node start again.
rm -f "$STATE_DIR/end-put" "$ENDED_ON/$HOSTNAME"
# Whoever fails for good wants to know who is left.
if [ "$NODES_MAX" -gt 1 ]; then
    mkdir -p "$STARTED_ON"
    touch "$STARTED_ON/$HOSTNAME"
fi
touch "$STATE_DIR/ran"
exec "${RUN[@]}" "${DOCKER_ARGV[@]}"
