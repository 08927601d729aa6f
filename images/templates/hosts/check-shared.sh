#!/usr/bin/env bash
# The folder that all machines share is mounted, and lets root make the run's folder for the trainer's user; or this one
# would write its checkpoints where nobody finds them.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"

[ -n "$SHARED_DIR" ] || exit 0
# An automounted folder appears when it is looked at.
at=$(ls "$SHARED_DIR" >/dev/null 2>&1 && findmnt -n -o TARGET --target "$SHARED_DIR") ||
    give_up "$SHARED_DIR is not there: mount the file system that all machines share"
[ "$at" != / ] || give_up "$SHARED_DIR is on this machine's own disk: mount the file system that all machines share"
install -d -o "$TRAINER_UID" -g "$TRAINER_UID" "$RUN_DIR" ||
    give_up "root cannot make $RUN_DIR for user $TRAINER_UID: export $SHARED_DIR without root_squash, or make it by hand"
