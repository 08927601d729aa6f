#!/usr/bin/env bash
# Checks that the shared folder is mounted, and that root can create the run's folder in it: checkpoints must be shared.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"

[ -n "$SHARED_DIR" ] || exit 0
# An automounted folder appears when it is looked at.
at=$(ls "$SHARED_DIR" >/dev/null 2>&1 && findmnt -n -o TARGET --target "$SHARED_DIR") ||
    give_up "$SHARED_DIR does not exist: mount the shared file system"
[ "$at" != / ] || give_up "$SHARED_DIR is on this machine's own disk: mount the shared file system"
# The owner of the folder of all runs could replace this one with a link before root changes its owner.
runs=$(dirname "$RUN_DIR")
mkdir -p "$runs" || give_up "root cannot create $runs: export $SHARED_DIR without root_squash, or create it by hand"
owner=$(stat -c %u "$runs")
if [ -L "$runs" ] || { [ "$owner" != 0 ] && [ "$owner" != "$(id -u)" ]; }; then
    give_up "$runs is a link or owned by user $owner: make it a folder owned by root (chown root $runs)"
fi
prepare_folder "$RUN_DIR" ||
    give_up "root cannot create $RUN_DIR for user $TRAINER_UID: export $SHARED_DIR without root_squash, or create it by hand"
