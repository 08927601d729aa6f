#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_FILL_DEADLINE_SEC:-14400}
REQUEST=${GANGWAY_IMPORT_FILE:-/etc/gangway/import.json}
FILLED=$MOUNT_POINT/.gangway-filled
MISSING=2
REFUSED=3
GRACE_SEC=${GANGWAY_RIGHTS_GRACE_SEC:-600}
SAID=

filled() { [ "$(cat "$FILLED" 2>/dev/null)" = "$DATA_SOURCE" ]; }

some_file() { [ -n "$(find "$MOUNT_POINT/data" -type f -print -quit)" ]; }

young() { [ "$(cut -d. -f1 "${GANGWAY_UPTIME:-/proc/uptime}")" -lt "$GRACE_SEC" ]; }

bring() {
    mkdir -p "$MOUNT_POINT/data"
    if [ "$DATA_BY" = import ]; then
        gce import "$REQUEST" || return
    else
        gce copy "$DATA_SOURCE" "$MOUNT_POINT/data" || return
    fi
    if ! some_file; then
        log "nothing came from $DATA_SOURCE: is the prefix right?"
        return "$MISSING"
    fi
    echo "$DATA_SOURCE" >"$FILLED.part" && mv "$FILLED.part" "$FILLED"
}

fill_once() {
    local status=0
    flock -w "$DEADLINE_SEC" 9 || return
    if ! filled; then
        SAID=$(bring 2>&1) || status=$?
        [ -z "$SAID" ] || log "$SAID"
    fi
    case $status in
        "$MISSING") give_up "cannot bring $DATA_SOURCE: $SAID" ;;
        "$REFUSED") young || give_up "cannot bring $DATA_SOURCE: $SAID" ;;
    esac
    return "$status"
}

if [ "$DATA_BY" = head ]; then
    retry "$DEADLINE_SEC" filled || give_up "the head has not brought $DATA_SOURCE within $DEADLINE_SEC s"
else
    retry "$DEADLINE_SEC" fill_once 9>"$MOUNT_POINT/.gangway-fill.lock" ||
        give_up "cannot bring $DATA_SOURCE within $DEADLINE_SEC s: $SAID"
fi
log "data: $DATA_SOURCE is at $MOUNT_POINT/data"
