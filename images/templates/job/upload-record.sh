#!/usr/bin/env bash
# Of a job's own command, which writes no record: puts its run folder, and those of its outputs, where they outlive the
# cluster, when they have changed. As with the trainer's results, that is whenever the command stops where they go with this
# node's disk, and once the job has ended where they are on a file system, which goes with the stack. The folders are the
# job's, so run_folder.py opens what is put, and has this script put it.
set -euo pipefail
# shellcheck source=../node/common.sh
. "$(dirname "$0")/common.sh"

# open_and_put FOLDER KEY MARKS
open_and_put() {
    mkdir -p "$3"
    KEY=$2 MARKS=$3 PYTHONPATH="$(dirname "$0")/../lib" python3 -m gangway.images.node.run_folder \
        "$1" "$TRAINER_UID" "$3" bash "$0"
}

# `progress`: a custom command has none.
[ $# = 0 ] || exit 0
if [ -z "${MARKS:-}" ]; then
    mkdir -p "$STATE_DIR"
    if [ -z "$RESULTS_SEC" ] || { [ -n "$RESULTS_AT_END" ] && [ ! -e "$STATE_DIR/ended" ]; }; then
        exit 0
    fi
    failed=0
    open_and_put "$RUN_DIR" "$JOB_NAME" "$STATE_DIR" || failed=1
    for output in ${OUTPUTS:-}; do
        open_and_put "$RUN_DIR.outputs$output" "$JOB_NAME/outputs$output" "$STATE_DIR/outputs$output" || failed=1
    done
    exit "$failed"
fi
status=0
output=$(put_folder "$RESULTS" "$KEY" 2>&1) || status=$?
if [ "$status" != 0 ]; then
    # A timeout prints nothing.
    output=${output:-exit status $status}
    log "$output"
    event record-not-put reason "$output"
    exit 1
fi
echo "$SUM_OF_RESULTS" >"$MARKS/results"
