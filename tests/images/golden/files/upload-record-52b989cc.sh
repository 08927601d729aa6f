#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"

open_and_put() {
mkdir -p "$3"
KEY=$2 MARKS=$3 PYTHONPATH="$(dirname "$0")/../lib" python3 -m images.node.run_folder \
"$1" "$TRAINER_UID" "$3" bash "$0"
}

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
output=${output:-exit status $status}
log "$output"
event record-not-put reason "$output"
exit 1
fi
echo "$SUM_OF_RESULTS" >"$MARKS/results"
