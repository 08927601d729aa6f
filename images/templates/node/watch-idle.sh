#!/usr/bin/env bash
# Runs each minute, after watch-node.sh. Once every GPU of every node was idle for IDLE_SEC, ends the job, and this node
# leaves, whatever TERMINATE_WHEN_DONE is. What cannot be measured counts as active. EC2's limit of user data keeps it short.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
TRAINER=gangway-trainer.service
SLOT_SEC=$((IDLE_SEC / 4))

# gpus_idle: all planned GPUs answer, each with less than IDLE_PERCENT. A GPU in MIG mode answers [N/A].
gpus_idle() {
    local used
    used=$(timeout 30 nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits) &&
        awk "/^[0-9]+$/ && \$1 < $IDLE_PERCENT { n++ } END { exit !(n && n == NR && n >= $GPUS_PLANNED) }" <<<"$used"
}

# is_active: a GPU works or is unknown; or this node prepares itself, fills data, saves or uploads; or the job says in .busy
# that it works. nvidia-smi shows the last second at most, so it is read several times.
is_active() {
    if [ -e "$STATE_DIR/ended" ] && [ ! -e "$STATE_DIR/kept" ]; then
        return
    fi
    # Or deactivating.
    ! grep -q activating <<<"$(systemctl is-active gangway-prepare.service gangway-data.service $TRAINER)" || return 0
    [ -z "$(find "$RUN_DIR/.busy" -prune -mmin -3 2>/dev/null)" ] || return 0
    for _ in 1 2 3 4 5; do
        gpus_idle || return 0
        sleep "${GANGWAY_IDLE_READ_SEC:-2}"
    done
    return 1
}

# mark_active: for the other nodes, an object for each quarter of IDLE_SEC, named by its start.
mark_active() {
    local slot
    slot=$(($(date +%s) / SLOT_SEC * SLOT_SEC))
    [ "$IDLE_NODES" = 1 ] || grep -qsx $slot "$STATE_DIR/active" || {
        echo $slot >"$STATE_DIR/slot"
        put_object "$STATE_DIR/slot" "$JOB_NAME/active/$slot" && mv "$STATE_DIR/slot" "$STATE_DIR/active"
    }
}

# others_idle: no node was active in the last IDLE_SEC.
others_idle() {
    local newest
    [ "$IDLE_NODES" = 1 ] || {
        newest=$(list_objects "$JOB_NAME/active/" | grep -o '[0-9]*$' | sort -n | tail -n 1) &&
            [ "$(date +%s)" -ge $((newest + SLOT_SEC + IDLE_SEC)) ]
    }
}

mkdir -p "$STATE_DIR"
if [ ! -e "$STATE_DIR/idle-stop" ]; then
    now=$(up_sec)
    if is_active; then
        rm -f "$STATE_DIR/idle"
        mark_active
        exit
    fi
    read -r since last 2>/dev/null <"$STATE_DIR/idle" || since=$now last=$now
    # The machine may have slept.
    [ $((now - last)) -le 300 ] || since=$now
    echo "$since $now" >"$STATE_DIR/idle"
    if [ $((now - since)) -lt "$IDLE_SEC" ] || ! others_idle; then
        exit 0
    fi
    reason="all GPUs below $IDLE_PERCENT % for $(((now - since) / 60)) minutes"
    log "this node leaves: $reason"
    event idle-stop reason "$reason"
    touch "$STATE_DIR/idle-stop"
fi
systemctl stop "$TRAINER"
# end_job would not leave if results are uploaded at the end. 75: a restart continues the run.
[ -e "$STATE_DIR/ended" ] || RESULTS_AT_END=yes end_job 75 idle
TERMINATE_WHEN_DONE=yes
announce_end && depart
