#!/usr/bin/env bash
# Runs the job's container in the foreground; systemd sees its exit code and its signals reach it.
# Ends with 0 at once where there is nothing to run any more: the node is about to go, or the job's hours are over.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
DOCKER_ARGV=()
# shellcheck source=/dev/null
. "${GANGWAY_JOB_ENV:-/etc/gangway/job.env}"

# When the job's hours are over, seconds since 1970. They count from the job's first start, which the first node writes
# beside the run; ln makes the file appear whole, and only once.
stop_at() {
    local mine=$RUN_DIR/.started-at.$HOSTNAME.$$
    date +%s >"$mine"
    ln "$mine" "$RUN_DIR/started-at" 2>/dev/null || true
    rm -f "$mine"
    echo $(($(cat "$RUN_DIR/started-at") + MAX_SEC))
}

if leaving; then
    log "this node is about to go: the trainer is not started again"
    exit 0
fi
install -d -o "$TRAINER_UID" -g "$TRAINER_UID" "$RUN_DIR"
if [ -n "$MAX_SEC" ]; then
    stop=$(stop_at)
    if [ "$(date +%s)" -ge "$stop" ]; then
        log "the job's $MAX_SEC s are over (since $RUN_DIR/started-at): raise max_hours to go on"
        exit 0
    fi
    DOCKER_ARGV=("${DOCKER_ARGV[0]}" --env "GANGWAY_STOP_AT=$stop" "${DOCKER_ARGV[@]:1}")
fi
exec docker "${DOCKER_ARGV[@]}"
