#!/usr/bin/env bash
# Puts the run record where it outlives the cluster, when it has changed; every node of a job sees the same file and may
# put it.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"
if [ ! -e "$RUN_DIR/run.json" ]; then
    log "no run record at $RUN_DIR/run.json yet"
    exit 0
fi
mkdir -p "$STATE_DIR"
sum=$(sha256sum <"$RUN_DIR/run.json")
if [ "$sum" != "$(cat "$STATE_DIR/uploaded" 2>/dev/null)" ]; then
    if ! said=$(aws s3 cp --region "$REGION" "$RUN_DIR/run.json" "$BUCKET_URI/$JOB_NAME/run.json" 2>&1); then
        log "$said"
        event record-not-put reason "$said"
        exit 1
    fi
    echo "$sum" >"$STATE_DIR/uploaded"
    event record-put reason "$BUCKET_URI/$JOB_NAME/run.json"
fi
