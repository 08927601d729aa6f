#!/usr/bin/env bash
# Puts the run record where it outlives the cluster; every node of a job sees the same file and may put it.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
if [ -e "$RUN_DIR/run.json" ]; then
    aws s3 cp --region "$REGION" "$RUN_DIR/run.json" "$BUCKET_URI/$JOB_NAME/run.json"
else
    log "no run record at $RUN_DIR/run.json yet"
fi
