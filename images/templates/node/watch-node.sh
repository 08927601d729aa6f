#!/usr/bin/env bash
# Every minute: no node stays, and costs, for a job that is over. Acts only where the trainer does not run; while it
# runs, it stops itself at the end of the job's hours (GANGWAY_STOP_AT) and systemd calls leave-node.sh.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
# What the trainer has for its last checkpoint and its record before it counts as stuck.
GRACE_SEC=${GANGWAY_GRACE_SEC:-600}
TRAINER=gangway-trainer.service

# A head node has no such unit, and that is "inactive" as well.
trainer_rests() {
    case $(systemctl is-active "$TRAINER") in
    inactive | failed) ;;
    *) return 1 ;;
    esac
}

if ! trainer_rests; then
    hours_over "$GRACE_SEC" || exit 0
    log "the trainer still runs $GRACE_SEC s after the job's hours: stopped"
    systemctl stop "$TRAINER"
fi
if group_waits; then
    no_member
    let_go
elif [ -e "$STATE_DIR/ended" ]; then
    finish
elif hours_over 0; then
    end_job 75 max-hours
fi
