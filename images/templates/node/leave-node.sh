#!/usr/bin/env bash
# What the trainer's end means for this node. The launcher in the container has counted and decided; its exit code
# (trainer.core.errors, EXIT_CODES) is all that is taken from it. systemd gives SERVICE_RESULT, EXIT_CODE, EXIT_STATUS.
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

# not_run: no container ran, which no launcher can count. After a few times in a row the node is given up.
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
    # Where nobody replaces this node it is looked at before the trainer starts again, for which watch-node.sh waits.
    [ -z "$TRIES_AGAIN" ] || { touch "$STATE_DIR/failed" && rest; }
    give_up "the trainer failed too often on this node, and others go on"
    ;;
5) end_job 5 too-many-failures ;;
6) end_job 6 max-hours ;;
75) log "interrupted with a checkpoint on disk: the trainer is started again" ;;
*)
    # A stop that somebody asked for is no failure, whatever it ended with.
    if [ "${SERVICE_RESULT:-}" != success ]; then
        log "the trainer has failed here, exit status $status: started again once this node's health was looked at"
        touch "$STATE_DIR/failed"
    fi
    ;;
esac
