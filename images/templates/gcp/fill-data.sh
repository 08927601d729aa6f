#!/usr/bin/env bash
# The data of the bucket is in the file system before anybody trains on it: one machine brings it, the others wait. The
# head has Managed Lustre import it; where there is none to do that, the first machine to get the lock copies it.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_FILL_DEADLINE_SEC:-14400}
REQUEST=${GANGWAY_IMPORT_FILE:-/etc/gangway/import.json}
FILLED=$MOUNT_POINT/.gangway-filled

filled() { [ "$(cat "$FILLED" 2>/dev/null)" = "$DATA_SOURCE" ]; }

bring() {
    mkdir -p "$MOUNT_POINT/data"
    if [ "$DATA_BY" = import ]; then
        gce import "$REQUEST"
    else
        gce copy "$DATA_SOURCE" "$MOUNT_POINT/data"
    fi && echo "$DATA_SOURCE" >"$FILLED.part" && mv "$FILLED.part" "$FILLED"
}

# The lock goes with the process that holds it: a machine that dies leaves it to the next.
fill_once() { flock -w "$DEADLINE_SEC" 9 && { filled || bring; }; }

if [ "$DATA_BY" = head ]; then
    retry "$DEADLINE_SEC" filled || give_up "the head has not brought $DATA_SOURCE within $DEADLINE_SEC s"
else
    retry "$DEADLINE_SEC" fill_once 9>"$MOUNT_POINT/.gangway-fill.lock" ||
        give_up "cannot bring $DATA_SOURCE within $DEADLINE_SEC s"
fi
log "data: $DATA_SOURCE is at $MOUNT_POINT/data"
