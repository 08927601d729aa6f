#!/usr/bin/env bash
# What the trainer's end means for this node: its group need not wait, the job has ended, or systemd starts it again.
# systemd gives SERVICE_RESULT, EXIT_CODE and EXIT_STATUS.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
FAILURES_ALLOWED=${GANGWAY_FAILURES_ALLOWED:-5}
FAILURES_SEC=${GANGWAY_FAILURES_SEC:-21600}

# exit_status: of the trainer as a number; a signal is 128 and its number, as in a shell.
exit_status() {
    if [ "${EXIT_CODE:-exited}" = exited ]; then
        echo "$EXIT_STATUS"
    else
        echo $((128 + $(kill -l "$EXIT_STATUS")))
    fi
}

# too_many_failures: with this one. systemd's own limit cannot do it: it counts starts, those after an interruption
# among them, and one cycle (rendezvous, checkpoint, torchrun's own restarts) is longer than any short window.
too_many_failures() {
    local now
    now=$(date +%s)
    mkdir -p "$STATE_DIR"
    echo "$now" >>"$STATE_DIR/failures"
    [ "$(awk -v since=$((now - FAILURES_SEC)) '$1 > since' "$STATE_DIR/failures" | wc -l)" -ge "$FAILURES_ALLOWED" ]
}

if leaving; then
    no_member
    if group_waits; then
        let_go
    fi
    exit 0
fi
if [ -e "$STATE_DIR/ended" ] || [ -z "${EXIT_STATUS:-}" ]; then
    exit 0
fi
status=$(exit_status)

# container_said STATUS: the job's own exit code. Where no container was started, a 0 says that nothing was to be
# started, and any other code is a failure of the node.
container_said() { [ -e "$STATE_DIR/ran" ] && [ "$status" = "$1" ]; }

if container_said 0; then
    end_job 0 "done"
elif container_said 2; then
    end_job 2 bad-input
elif container_said 3; then
    end_job 3 fabric-too-slow
elif container_said 75; then
    log "interrupted with a checkpoint on disk: the trainer is started again"
elif [ "${SERVICE_RESULT:-}" != success ] && too_many_failures; then
    # SERVICE_RESULT: a stop that somebody asked for is no failure, whatever it ended with.
    end_job "$status" too-many-failures
fi
