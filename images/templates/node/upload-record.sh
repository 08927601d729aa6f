#!/usr/bin/env bash
# Uploads the run record if it changed; every node may do so. Between records it uploads progress.json every ten minutes;
# with the argument `progress`, only that. It also uploads the results: whenever the trainer stops if they are on this node's
# disk, and at the job's end if they are on a file system. The job owns the folder, so outbox.py opens the files and calls
# this script.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"

# put NAME SUM COMMAND...: runs the upload, and stores its checksum.
put() {
    local output status=0
    output=$("${@:3}" 2>&1) || status=$?
    if [ "$status" != 0 ]; then
        # A timeout prints nothing.
        output=${output:-exit status $status}
        log "$output"
        event record-not-put reason "$output"
        return 1
    fi
    echo "$2" >"$STATE_DIR/$1"
}

# sign_record: uploads run.json.sig: public key and signature (Ed25519), then the previous record's, for readers between the
# two uploads. Empty if signing fails, since an old signature would make the new record look forged.
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
    OPENED=yes exec python3 "$(dirname "$0")/../lib/gangway/images/node/outbox.py" \
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
    # Also in the record. Failures are only logged, and retried in a minute.
    echo "$PROGRESS" >"$STATE_DIR/progress.json"
    if put_object "$STATE_DIR/progress.json" "$JOB_NAME/progress.json"; then
        echo $(($(up_sec) + 600)) >"$STATE_DIR/progress-due"
        echo "$PROGRESS" >"$STATE_DIR/progress"
    else
        log "cannot upload progress.json"
    fi
fi
if [ -n "$RESULTS" ]; then
    put results "$SUM_OF_RESULTS" put_folder "$RESULTS" "$JOB_NAME" || status=1
fi
exit "$status"
