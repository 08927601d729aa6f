#!/usr/bin/env bash
# Handles the trainer's end by the launcher's exit code (gangway.trainer.core.errors, EXIT_CODES). systemd sets SERVICE_RESULT,
# EXIT_CODE and EXIT_STATUS.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
STARTS_ALLOWED=${GANGWAY_STARTS_ALLOWED:-5}

# exit_status: of the trainer as a number; a signal is 128 and its number, as in a shell.
exit_status() {
    if [ "${EXIT_CODE:-exited}" = exited ]; then
        echo "$EXIT_STATUS"
    else
        echo $((128 + $(kill -l "$EXIT_STATUS")))
    fi
}

# not_run: no container ran, so the launcher did not count it. Gives up after a few times in a row.
not_run() {
    touch "$STATE_DIR/failed"
    echo >>"$STATE_DIR/not-run"
    if [ "$(wc -l <"$STATE_DIR/not-run")" -ge "$STARTS_ALLOWED" ]; then
        rm "$STATE_DIR/not-run"
        rest
        give_up "the trainer's container could not be started $STARTS_ALLOWED times in a row"
    fi
}

if leaving; then
    if group_waits; then
        let_go
    fi
    exit 0
fi
if [ -e "$STATE_DIR/ended" ] || [ -e "$STATE_DIR/unfit" ] || [ -z "${EXIT_STATUS:-}" ]; then
    exit 0
fi
mkdir -p "$STATE_DIR"
status=$(exit_status)
# Nothing was to be started, or nothing could be; 125 to 127 are docker's own.
if [ ! -e "$STATE_DIR/ran" ] || { [ "$status" -ge 125 ] && [ "$status" -le 127 ]; }; then
    [ "$status" = 0 ] || not_run
    exit 0
fi
rm -f "$STATE_DIR/not-run"
case $status in
0) end_job 0 "done" ;;
2) end_job 2 bad-input ;;
3) end_job 3 fabric-too-slow ;;
4)
    # If it is not replaced, watch-node.sh restarts the trainer after a pause, with a health check.
    [ -z "$TRIES_AGAIN" ] || { touch "$STATE_DIR/failed" && rest; }
    give_up "the trainer failed too often on this node; the others continue"
    ;;
5) end_job 5 too-many-failures ;;
6) end_job 6 max-hours ;;
75) log "interrupted with a checkpoint: restarting the trainer" ;;
*)
    # A requested stop is no failure, whatever its exit status.
    if [ "${SERVICE_RESULT:-}" != success ]; then
        log "the trainer failed, exit status $status: restarting it after a health check"
        touch "$STATE_DIR/failed"
    fi
    ;;
esac
