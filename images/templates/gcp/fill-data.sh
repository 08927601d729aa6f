#!/usr/bin/env bash
# Loads the bucket's data into the file system before training, on one machine while the others wait: the head imports it into
# Managed Lustre, or the first machine that gets the lock copies it.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_FILL_DEADLINE_SEC:-14400}
REQUEST=${GANGWAY_IMPORT_FILE:-/etc/gangway/import.json}
FILLED=$MOUNT_POINT/.gangway-filled
# Exit codes of images/node/gcp/api.py that need no retry.
MISSING=2
REFUSED=3
# A new grant takes seven minutes or more to apply (IAM, "Access change propagation"): a younger machine waits.
GRACE_SEC=${GANGWAY_RIGHTS_GRACE_SEC:-600}
REASON=

is_filled() { [ "$(cat "$FILLED" 2>/dev/null)" = "$DATA_SOURCE" ]; }

# some_file: without any file, the trainer would use synthetic data.
some_file() { [ -n "$(find "$MOUNT_POINT/data" -type f -print -quit)" ]; }

is_new_machine() { [ "$(cut -d. -f1 "${GANGWAY_UPTIME:-/proc/uptime}")" -lt "$GRACE_SEC" ]; }

load_data() {
    mkdir -p "$MOUNT_POINT/data"
    if [ "$DATA_BY" = import ]; then
        gce import "$REQUEST" || return
    else
        gce copy "$DATA_SOURCE" "$MOUNT_POINT/data" || return
    fi
    if ! some_file; then
        log "$DATA_SOURCE has no files: check the prefix"
        return "$MISSING"
    fi
    echo "$DATA_SOURCE" >"$FILLED.part" && mv "$FILLED.part" "$FILLED"
}

# The lock ends with its process: if the machine dies, the next one gets it.
fill_once() {
    local status=0
    flock -w "$DEADLINE_SEC" 9 || return
    if ! is_filled; then
        REASON=$(load_data 2>&1) || status=$?
        [ -z "$REASON" ] || log "$REASON"
    fi
    case $status in
        "$MISSING") give_up "cannot load $DATA_SOURCE: $REASON" ;;
        "$REFUSED") is_new_machine || give_up "cannot load $DATA_SOURCE: $REASON" ;;
    esac
    return "$status"
}

if [ "$DATA_BY" = head ]; then
    retry "$DEADLINE_SEC" is_filled || give_up "the head has not loaded $DATA_SOURCE within $DEADLINE_SEC s"
else
    retry "$DEADLINE_SEC" fill_once 9>"$MOUNT_POINT/.gangway-fill.lock" ||
        give_up "cannot load $DATA_SOURCE within $DEADLINE_SEC s: $REASON"
fi
log "data: loaded $DATA_SOURCE to $MOUNT_POINT/data"
