#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
GRACE_SEC=${GANGWAY_GRACE_SEC:-600}
TRAINER=gangway-trainer.service

too_long() {
local first
[ -n "$MAX_SEC" ] || return 1
first=$(cat "$STATE_DIR/first-start" 2>/dev/null) || { made_for_job && first=0; } || return
[ "$(up_sec)" -ge $((first + MAX_SEC + GRACE_SEC + ${1:-0})) ]
}

hours_over() { [ -e "$STATE_DIR/first-start" ] && too_long "$(idle_sec)"; }
idle_sec() { cat "$STATE_DIR/idle-sec" 2>/dev/null || echo 0; }

is_outliving() { [ -n "$TERMINATE_WHEN_DONE" ] && made_for_job && too_long; }

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

leave_alone() {
if [ ! -e "$STATE_DIR/alone" ]; then
log "up longer than the job's hours, but the trainer was idle: this node leaves"
event node-outlived reason "up longer than the job's hours, but the trainer was idle"
mkdir -p "$STATE_DIR" && touch "$STATE_DIR/alone"
fi
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
if [ -z "$idle" ] && ! "$(dirname "$0")/close-metadata.sh"; then
log "the job can reach this machine's tokens: stopping the trainer"
systemctl stop "$TRAINER"
exit 1
fi
if [ -z "$idle" ]; then
hours_over || is_outliving || {
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
systemctl start --no-block "$TRAINER"
fi
