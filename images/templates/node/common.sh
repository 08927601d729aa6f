# shellcheck shell=bash
# Settings and functions of all scripts of a node. The cloud's functions are in cloud.sh:
#   leaving            succeeds if the node is about to end
#   own_capacity       prints spot or on-demand; nothing if unknown
#   made_for_job       succeeds if the machine was made for this job, so that it must not outlive the job's hours
#   group_waits        succeeds if the group waits for this node's consent to end it; let_go consents
#   send_event         EVENT [NAME VALUE]...: sends one JSON line to the stack's log, with the instance's name
#   replace_node       has the group replace this node; may wait until that starts
#   hold_launches      stops launches of this stack until `gangway breaker reset`, and ends this node
#   stop_filling       stops launches for this job, which has ended
#   leave_group        removes this node from its group, which shrinks
#   put_object FILE KEY    copies a file to the run bucket, below $BUCKET_URI
#   list_objects PREFIX    objects with this prefix, one per line, the name last
#   put_folder FOLDER KEY  uploads a folder's files, for at most $RESULTS_SEC
#   member_key         prints the key that authenticates the job's nodes to each other, $MEMBER_KEY in the cloud's store
#   signing_key        prints the key that signs the run's record, $SIGNING_KEY in that store
#   registry_login     logs docker in to $IMAGE_REGISTRY
# shellcheck source=/dev/null
. "${GANGWAY_NODE_ENV:-/etc/gangway/node.env}"
POLL_SEC=${GANGWAY_POLL_SEC:-5}
# How long to retry uploads at a job's end: less than a reclaimed machine has.
END_SEC=${GANGWAY_END_SEC:-15}
# How long a node stays at most after a job's end to upload its record.
KEEP_SEC=${GANGWAY_KEEP_SEC:-3600}
# On tmpfs, so a reboot is a fresh start; per job, so a new job is too.
STATE_DIR=${GANGWAY_STATE_DIR:-/run/gangway}/$JOB_KEY
# shellcheck source=cloud.sh
. "$(dirname "${BASH_SOURCE[0]}")/cloud.sh"

log() { printf 'gangway: %s\n' "$*" >&2; }

# up_sec [FILE]: since this machine's boot, by a monotonic clock.
up_sec() {
    local up
    read -r up _ <"${1:-${GANGWAY_UPTIME:-/proc/uptime}}"
    echo "${up%%.*}"
}

# retry SECONDS COMMAND...: until COMMAND succeeds; fails when SECONDS have passed.
retry() {
    local deadline=$(($(up_sec /proc/uptime) + $1))
    shift
    until "$@"; do
        [ "$(up_sec /proc/uptime)" -lt "$deadline" ] || return 1
        sleep "$POLL_SEC"
    done
}

# seconds_left: of DEADLINE_SEC, which counts from the start of the script; 1 once it is over.
STARTED_SEC=$(up_sec /proc/uptime)
seconds_left() {
    local left=$((STARTED_SEC + DEADLINE_SEC - $(up_sec /proc/uptime)))
    echo $((left > 0 ? left : 1))
}

# prepare_folder FOLDER: creates it for the trainer; does not follow a link. A mounted bucket may not support chown.
prepare_folder() {
    [ "$(stat -c %u "$1" 2>/dev/null)" = "$TRAINER_UID" ] ||
        { mkdir -p "$1" && chown --no-dereference "$TRAINER_UID:$TRAINER_UID" "$1"; }
}

# apt_get ARGUMENTS...: waits for others that hold its lock, as unattended upgrades do after boot.
apt_get() { DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120 "$@"; }

# apt_key NAME URL [FINGERPRINT]: installs the key of an apt repository. Gives up if there is another key; without a
# fingerprint it relies on TLS.
apt_key() {
    local key found
    key=$(mktemp)
    curl -fsS --max-time 60 "$2" >"$key" || return
    found=$(gpg --batch --show-keys --with-colons "$key" | sed -n '/^pub/,/^fpr/s/^fpr:*\(.*\):$/\1/p') || return
    [ "$found" = "${3:-$found}" ] || give_up "$2: key $found; allowed: $3"
    gpg --batch --dearmor --yes --output "${ROOT:-}/usr/share/keyrings/$1.gpg" <"$key" && rm "$key"
}

# event EVENT [NAME VALUE]...: one JSON line in the stack's log, for metrics. Only logs failures.
event() {
    [ -n "$LOG_GROUP" ] || return 0
    send_event "$@" || log "could not send to $LOG_GROUP: $*"
}

# give_up REASON: this node cannot train. It is replaced, unless too many were recently. On a head, systemd retries.
give_up() {
    if [ "$ROLE" = head ]; then
        log "not ready: $1"
        event head-not-ready reason "$1"
        exit 1
    fi
    log "this node gives up: $1"
    event node-given-up reason "$1"
    local go=replace_node
    if too_many_given_up "$1"; then
        go=hold_launches
        log "too many nodes gave up: launches are held until gangway breaker reset $STACK"
        event launches-held reason "$1"
    fi
    "$go" || log "cannot replace this node: delete it by hand, since it costs money and does nothing"
    exit 1
}

# rest: this node is unfit. If it is not replaced, watch-node.sh restarts the trainer after a pause, which grows with each
# rest, since other nodes stop at each attempt. Six hours without a rest, the launcher's window of failures, reset it.
rest() {
    [ "$(up_sec)" -lt $(($(last_rest) + 21600)) ] || rm -f "$STATE_DIR/rests"
    up_sec >>"$STATE_DIR/rests"
    touch "$STATE_DIR/unfit"
}

last_rest() { tail -n 1 "$STATE_DIR/rests" 2>/dev/null || echo 0; }

# is_rested: the pause is over.
is_rested() {
    local pauses=(0 0 60 180 420 900 1740) count
    [ -e "$STATE_DIR/rests" ] || return 0
    count=$(wc -l <"$STATE_DIR/rests")
    [ "$count" -lt "${#pauses[@]}" ] || count=$((${#pauses[@]} - 1))
    [ "$(up_sec)" -ge $(($(last_rest) + pauses[count])) ]
}

# too_many_given_up REASON: the breaker's limit of nodes is reached (images/node/breaker.py); writes held.json next to the
# record. No limit if nodes are not replaced.
too_many_given_up() {
    local mine names held=$STATE_DIR/held.json
    [ -n "${BREAKER_LIMIT:-}" ] || return 1
    mine=$(date +%s)-$HOSTNAME
    mkdir -p "$STATE_DIR"
    echo "$1" >"$STATE_DIR/given-up"
    put_object "$STATE_DIR/given-up" "$JOB_NAME/breaker/$mine" || log "cannot upload $JOB_NAME/breaker/$mine"
    if ! names=$(list_objects "$JOB_NAME/breaker/"); then
        log "cannot count the nodes that gave up: replacing this one"
        return 1
    fi
    python3 "$(dirname "${BASH_SOURCE[0]}")/../lib/gangway/images/node/breaker.py" "$BREAKER_LIMIT" "$BREAKER_SEC" \
        "$STACK" "$RUN_ID" "$mine" "$1" <<<"$names" >"$held" || return 1
    [ ! -s "$held" ] || put_object "$held" "$JOB_NAME/breaker/held.json" || log "cannot upload $JOB_NAME/breaker/held.json"
}

# put_end: writes ended.json next to run.json, for commands that wait for the record. The node leaves even if this fails.
put_end() {
    local code reason file=$STATE_DIR/ended.json
    read -r code reason <"$STATE_DIR/ended"
    if [ "$code" = 0 ] || [ -e "$STATE_DIR/end-put" ]; then
        return 0
    fi
    printf '{"version": 1, "run_id": "%s", "stack": "%s", "node": "%s", "code": %s, "reason": "%s", "time": "%s"}\n' \
        "$RUN_ID" "$STACK" "$HOSTNAME" "$code" "$reason" "$(date -u +%FT%TZ)" >"$file"
    if retry "$END_SEC" put_object "$file" "$JOB_NAME/ended.json"; then
        touch "$STATE_DIR/end-put"
    else
        log "cannot upload $JOB_NAME/ended.json: commands that wait for the record time out"
    fi
}

# keep_expired: this node no longer waits for uploads.
keep_expired() { [ "$(up_sec)" -ge $(($(cat "$STATE_DIR/ended-at" 2>/dev/null || echo 0) + KEEP_SEC)) ]; }

# save_record: uploads the run's files, or fails until KEEP_SEC has passed. Succeeds for a run without a record.
save_record() {
    # A hung file system must not block this.
    if retry "$END_SEC" timeout $((${RESULTS_SEC:-0} + 60)) bash "$(dirname "${BASH_SOURCE[0]}")/upload-record.sh"; then
        return 0
    fi
    if ! keep_expired; then
        log "cannot upload the record: watch-node.sh will retry until $KEEP_SEC s after the job's end"
        return 1
    fi
    log "cannot upload the record for $KEEP_SEC s: this node leaves without it"
}

# announce_end: writes ended.json and stops launches for the job, or fails until KEEP_SEC has passed.
announce_end() {
    put_end
    if [ ! -e "$STATE_DIR/told" ] && ! stop_filling; then
        keep_expired || return
        log "cannot stop launches for $KEEP_SEC s: this node leaves"
        event end-not-told reason "failed for $KEEP_SEC s: fix the bucket or destroy the stack, before new nodes start"
    fi
    touch "$STATE_DIR/told"
}

# depart: uploads the job's files, and leaves if configured.
depart() {
    [ -e "$STATE_DIR/kept" ] || { save_record && touch "$STATE_DIR/kept"; } || return
    [ -z "$TERMINATE_WHEN_DONE" ] || leave_group
}

# end_job STATUS REASON: the job has ended on all nodes. Results that are uploaded only at the end are left to watch-node.sh,
# which has more time.
end_job() {
    mkdir -p "$STATE_DIR"
    up_sec >"$STATE_DIR/ended-at"
    echo "$1 $2" >"$STATE_DIR/ended"
    log "the job has ended: $2, exit status $1"
    event job-ended exit_status "$1" reason "$2"
    { announce_end && { [ -n "$RESULTS_AT_END" ] || depart; }; } ||
        log "cannot leave yet: watch-node.sh will retry"
}
