#!/usr/bin/env bash
# Runs each minute, so that no node stays for a job that is over. Acts only if the trainer does not run; a running one stops
# itself at the end of the job's hours, and systemd calls leave-node.sh.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
# Time for the last checkpoint and record before the trainer counts as stuck.
GRACE_SEC=${GANGWAY_GRACE_SEC:-600}
TRAINER=gangway-trainer.service

# too_long [IDLE_SEC]: the trainer should have stopped itself long ago. Hours count from its first start here, but for
# IDLE_SEC of them; where it was never started, for a machine that was made for the job, from the boot.
too_long() {
    local first
    [ -n "$MAX_SEC" ] || return 1
    first=$(cat "$STATE_DIR/first-start" 2>/dev/null) || { made_for_job && first=0; } || return
    [ "$(up_sec)" -ge $((first + MAX_SEC + GRACE_SEC + ${1:-0})) ]
}

# hours_over: the trainer was at work here for longer than the job's hours, which its launcher counts: so it hangs.
hours_over() { [ -e "$STATE_DIR/first-start" ] && too_long "$(idle_sec)"; }
idle_sec() { cat "$STATE_DIR/idle-sec" 2>/dev/null || echo 0; }

# is_outliving: a machine made for the job must not be up longer than the job's hours, idle or not.
is_outliving() { [ -n "$TERMINATE_WHEN_DONE" ] && made_for_job && too_long; }

# count_idle IDLE: excludes time in which the trainer is idle or the machine sleeps from the job's hours. It runs each minute,
# so only a minute of a longer gap counts.
count_idle() {
    local now last was
    [ -e "$STATE_DIR/first-start" ] || return 0
    now=$(up_sec)
    read -r last was 2>/dev/null <"$STATE_DIR/looked" || last=$now was=
    echo "$now $1" >"$STATE_DIR/looked"
    if [ -n "$1" ] && [ -n "$was" ]; then
        echo $(($(idle_sec) + now - last)) >"$STATE_DIR/idle-sec"
    elif [ $((now - last)) -gt 600 ]; then
        echo $(($(idle_sec) + now - last - 60)) >"$STATE_DIR/idle-sec"
    fi
}

# leave_alone: the job may have hours left, and continues on other nodes.
leave_alone() {
    if [ ! -e "$STATE_DIR/alone" ]; then
        log "up longer than the job's hours, but the trainer was idle: this node leaves"
        event node-outlived reason "up longer than the job's hours, but the trainer was idle"
        mkdir -p "$STATE_DIR" && touch "$STATE_DIR/alone"
    fi
    # A hung file system must not block this.
    timeout $((${RESULTS_SEC:-0} + 60)) bash "$(dirname "$0")/upload-record.sh" ||
        log "cannot upload the record: this node leaves without it"
    leave_group || log "cannot leave: will retry in a minute"
}

trainer_rests() {
    case $(systemctl is-active "$TRAINER") in
    inactive | failed) ;;
    *) return 1 ;;
    esac
}

idle=
if trainer_rests; then
    idle=yes
fi
count_idle "$idle"
# A firewall manager may have removed the rules since the start.
if [ -z "$idle" ] && ! "$(dirname "$0")/close-metadata.sh"; then
    log "the job can reach this machine's tokens: stopping the trainer"
    systemctl stop "$TRAINER"
    exit 1
fi
if [ -z "$idle" ]; then
    hours_over || is_outliving || {
        # The run's folder is on this node's disk: no other node sees the progress.
        if [ -n "$RESULTS_SEC" ] && [ -z "$RESULTS_AT_END" ]; then
            timeout 60 bash "$(dirname "$0")/upload-record.sh" progress || true
        fi
        exit 0
    }
    log "the trainer still runs $GRACE_SEC s after its hours or the machine's: stopping it"
    systemctl stop "$TRAINER"
fi
if group_waits; then
    let_go
elif [ -e "$STATE_DIR/ended" ]; then
    announce_end && depart
elif hours_over; then
    end_job 6 max-hours
elif is_outliving; then
    leave_alone
elif [ -e "$STATE_DIR/unfit" ] && [ -n "$TRIES_AGAIN" ] && is_rested; then
    # The node is not replaced, and may be fixed by now.
    systemctl start --no-block "$TRAINER"
fi
