#!/usr/bin/env bash
# Puts the run record where it outlives the cluster, when it has changed; every node of a job sees the same file and may
# put it. What the record speaks of is put as well: whenever the trainer stops where the run's folder goes with this node's
# disk, and once the job has ended where it is on a file system, which goes with the stack.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"

# changed NAME SUM: since NAME was put for the last time.
changed() { [ "$2" != "$(cat "$STATE_DIR/$1" 2>/dev/null)" ]; }

# put NAME SUM COMMAND...: runs the command that puts it, and keeps in mind that it did.
put() {
    local said status=0
    said=$("${@:3}" 2>&1) || status=$?
    if [ "$status" != 0 ]; then
        # Who ran out of time says nothing.
        said=${said:-exit status $status}
        log "$said"
        event record-not-put reason "$said"
        return 1
    fi
    echo "$2" >"$STATE_DIR/$1"
}

# What a run is worth beside its record: the newest checkpoint, with which a run can go on, the pictures, the statistics.
# Hard links, in a folder of this node's own; none that leads elsewhere.
put_results() {
    local folder=$RUN_DIR/.results-$HOSTNAME names=(config.json stats.jsonl reals.png samples.png samples) newest sum name status=0
    newest=$(cd "$RUN_DIR" && find checkpoints -name '*.pt' 2>/dev/null | sort | tail -n 1)
    names+=(${newest:+"$newest" "${newest%.pt}.json"})
    sum="$newest $(sha256sum "$RUN_DIR/stats.jsonl" 2>/dev/null)"
    changed results "$sum" || return 0
    rm -rf "$folder"
    mkdir -p "$folder/checkpoints"
    for name in "${names[@]}"; do
        [ ! -e "$RUN_DIR/$name" ] || cp -rlP "$RUN_DIR/$name" "$folder/$name"
    done
    find "$folder" -type l -delete
    # Of a job that never began there is nothing.
    [ -z "$(find "$folder" -type f)" ] || put results "$sum" put_folder "$folder" "$JOB_NAME" || status=1
    rm -rf "$folder"
    return "$status"
}

mkdir -p "$STATE_DIR"
status=0
if [ ! -e "$RUN_DIR/run.json" ]; then
    log "no run record at $RUN_DIR/run.json yet"
else
    sum=$(sha256sum <"$RUN_DIR/run.json")
    if changed uploaded "$sum"; then
        if put uploaded "$sum" put_object "$RUN_DIR/run.json" "$JOB_NAME/run.json"; then
            event record-put reason "$BUCKET_URI/$JOB_NAME/run.json"
        else
            status=1
        fi
    fi
fi
if [ -n "$RESULTS_SEC" ] && { [ -z "$RESULTS_AT_END" ] || [ -e "$STATE_DIR/ended" ]; } && [ -d "$RUN_DIR" ]; then
    put_results || status=1
fi
exit "$status"
