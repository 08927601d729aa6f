#!/usr/bin/env bash
# Puts the run record where it outlives the cluster, when it has changed; every node of a job sees the same file and may
# put it. Between two records progress.json says how far the trainer is, every ten minutes; with the argument `progress`
# nothing else is put. What the record speaks of is put as well: whenever the trainer stops where the run's folder goes with
# this node's disk, and once the job has ended where it is on a file system, which goes with the stack. The folder is the
# job's, so outbox.py opens what is put, and has this script put it.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"

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

# sign_record: puts run.json.sig: public key and signature (Ed25519), and below the last record's: whoever reads while both
# are put has that of what he has read. Empty where nothing can sign: an old one would call a new record a forged one.
sign_record() {
    local own key=$STATE_DIR/signing.pem file=$STATE_DIR/run.json.sig
    [ -n "${SIGNING_KEY:-}" ] || return 0
    [ -s "$key" ] || (umask 077 && signing_key >"$key") || true
    own=$(openssl pkey -in "$key" -pubout -outform DER | tail -c 32 | base64 -w0) || true
    own+=" "$(openssl pkeyutl -sign -rawin -inkey "$key" -in "$RECORD" | base64 -w0) || true
    if [ "${#own}" = 133 ]; then
        own+=$'\n'$(grep -svxF "$own" "$file" | head -n 1) || true
    else
        own="cannot sign run.json with $SIGNING_KEY"
        log "$own"
        event record-not-signed reason "$own"
        rm "$key"
        own=
    fi
    echo "$own" >"$file"
    put signed "$SUM_OF_RECORD" put_object "$file" "$JOB_NAME/run.json.sig"
}

if [ -z "${OPENED:-}" ]; then
    mkdir -p "$STATE_DIR"
    results=
    if [ -n "$RESULTS_SEC" ] && { [ -z "$RESULTS_AT_END" ] || [ -e "$STATE_DIR/ended" ]; }; then
        results=yes
    fi
    OPENED=yes exec python3 "$(dirname "$0")/../lib/images/node/outbox.py" \
        "$RUN_DIR" "$TRAINER_UID" "$STATE_DIR" "${1:-$results}" bash "$0"
fi
status=0
if [ -n "$RECORD" ]; then
    if sign_record && put uploaded "$SUM_OF_RECORD" put_object "$RECORD" "$JOB_NAME/run.json"; then
        event record-put reason "$BUCKET_URI/$JOB_NAME/run.json"
    else
        status=1
    fi
elif [ -n "$PROGRESS" ] && [ "$(up_sec)" -ge "$(cat "$STATE_DIR/progress-due" 2>/dev/null || echo 0)" ]; then
    # A record tells it too. It holds up nobody, and is tried again in a minute.
    echo "$PROGRESS" >"$STATE_DIR/progress.json"
    if put_object "$STATE_DIR/progress.json" "$JOB_NAME/progress.json"; then
        echo $(($(up_sec) + 600)) >"$STATE_DIR/progress-due"
        echo "$PROGRESS" >"$STATE_DIR/progress"
    else
        log "the progress could not be put"
    fi
fi
if [ -n "$RESULTS" ]; then
    put results "$SUM_OF_RESULTS" put_folder "$RESULTS" "$JOB_NAME" || status=1
fi
exit "$status"
