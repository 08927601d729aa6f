#!/usr/bin/env bash
# Of a job's own command, which writes no record: puts its run folder where it outlives the cluster, when it has changed.
# As with the trainer's results, that is whenever the command stops where the folder goes with this node's disk, and once
# the job has ended where it is on a file system, which goes with the stack. The folder is the job's, so run_folder.py
# opens what is put, and has this script put it.
set -euo pipefail
# shellcheck source=../node/common.sh
. "$(dirname "$0")/common.sh"

if [ -z "${OPENED:-}" ]; then
    mkdir -p "$STATE_DIR"
    if [ -z "$RESULTS_SEC" ] || { [ -n "$RESULTS_AT_END" ] && [ ! -e "$STATE_DIR/ended" ]; }; then
        exit 0
    fi
    OPENED=yes PYTHONPATH="$(dirname "$0")/../lib" exec python3 -m images.node.run_folder \
        "$RUN_DIR" "$TRAINER_UID" "$STATE_DIR" bash "$0"
fi
status=0
said=$(put_folder "$RESULTS" "$JOB_NAME" 2>&1) || status=$?
if [ "$status" != 0 ]; then
    # Who ran out of time says nothing.
    said=${said:-exit status $status}
    log "$said"
    event record-not-put reason "$said"
    exit 1
fi
echo "$SUM_OF_RESULTS" >"$STATE_DIR/results"
