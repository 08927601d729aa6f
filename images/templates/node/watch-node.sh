#!/usr/bin/env bash
# Every minute: no node stays, and costs, for a job that is over. Acts only where the trainer does not run; while it
# runs, it stops itself at the end of the job's hours and systemd calls leave-node.sh.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
# What the trainer has for its last checkpoint and its record before it counts as stuck.
GRACE_SEC=${GANGWAY_GRACE_SEC:-600}
TRAINER=gangway-trainer.service

# too_long: the trainer should have stopped itself long ago, as no node is up longer than the job's hours. They count from
# its first start here; where it was never started, for a machine that was made for the job, from the boot.
too_long() {
    local first
    [ -n "$MAX_SEC" ] || return 1
    first=$(cat "$STATE_DIR/first-start" 2>/dev/null) || { made_for_job && first=0; } || return
    [ "$(up_sec)" -ge $((first + MAX_SEC + GRACE_SEC)) ]
}

trainer_rests() {
    case $(systemctl is-active "$TRAINER") in
    inactive | failed) ;;
    *) return 1 ;;
    esac
}

if ! trainer_rests; then
    too_long || exit 0
    log "the trainer still runs $GRACE_SEC s after the job's hours: stopped"
    systemctl stop "$TRAINER"
fi
if group_waits; then
    let_go
elif [ -e "$STATE_DIR/ended" ]; then
    tell && depart
elif too_long; then
    end_job 6 max-hours
elif [ -e "$STATE_DIR/unfit" ] && [ -n "$TRIES_AGAIN" ] && rested; then
    # Nobody replaces this node: somebody may have mended it.
    systemctl start --no-block "$TRAINER"
fi
