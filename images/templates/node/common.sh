# shellcheck shell=bash
# Sourced by every script of a node of any cloud: its settings, and what more than one of them does. What differs between
# clouds is in the cloud.sh beside it, whose functions are:
#   leaving            succeeds where the node is about to go
#   own_capacity       prints spot, or on-demand for what is not taken back; nothing where the cloud does not say
#   made_for_job       succeeds where the machine was made for this job, so that it is never up longer than the job's hours
#   group_waits        succeeds where its group wants it to go and waits for its word; let_go gives that word
#   send_event         EVENT [NAME VALUE]...: sends one JSON line to the stack's log, with the instance's name
#   replace_node       has its group replace this node; may wait until that has begun
#   hold_launches      has nobody launch nodes of this stack until `gangway breaker reset`, and this one go
#   tell_ended         has nobody bring nodes for this job any more: it has ended for all
#   leave_group        takes this node out of its group, which becomes smaller
#   put_object FILE KEY    copies a file into the run bucket, below $BUCKET_URI
#   list_objects PREFIX    what is there with such a beginning, a line each, its name last
#   put_folder FOLDER KEY  the same with all that is in a folder, for $RESULTS_SEC at most
#   member_key         prints the key by which the job's nodes know each other, $MEMBER_KEY of the cloud's store
#   signing_key        prints the key by which the run's record is signed, $SIGNING_KEY of that store
#   registry_login     logs docker in to $IMAGE_REGISTRY
# shellcheck source=/dev/null
. "${GANGWAY_NODE_ENV:-/etc/gangway/node.env}"
POLL_SEC=${GANGWAY_POLL_SEC:-5}
# How long it is tried to tell of a job's end. Less than a machine has that is taken back.
END_SEC=${GANGWAY_END_SEC:-15}
# How long after a job's end a node stays at most for what cannot be told, or a record that cannot be put. It costs all
# the while.
KEEP_SEC=${GANGWAY_KEEP_SEC:-3600}
# On tmpfs, so a reboot is a fresh start; of this very job, so another one is as well.
STATE_DIR=${GANGWAY_STATE_DIR:-/run/gangway}/$JOB_KEY
# shellcheck source=cloud.sh
. "$(dirname "${BASH_SOURCE[0]}")/cloud.sh"

log() { printf 'gangway: %s\n' "$*" >&2; }

# up_sec [FILE]: since this machine's boot, by a clock that nobody sets.
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

# prepare_folder FOLDER: makes it, and the trainer's, but nothing that a link in its place leads to. A bucket mounted as a
# folder shows all of it as the trainer's, and need not take a change of owner.
prepare_folder() {
    [ "$(stat -c %u "$1" 2>/dev/null)" = "$TRAINER_UID" ] ||
        { mkdir -p "$1" && chown --no-dereference "$TRAINER_UID:$TRAINER_UID" "$1"; }
}

# apt_key NAME URL [FINGERPRINT]: brings the key of an apt repository. Another key than that, or one more beside it, gives
# this node up; without a fingerprint TLS alone says whose it is.
apt_key() {
    local key found
    key=$(mktemp)
    curl -fsS --max-time 60 "$2" >"$key" || return
    found=$(gpg --batch --show-keys --with-colons "$key" | sed -n '/^pub/,/^fpr/s/^fpr:*\(.*\):$/\1/p') || return
    [ "$found" = "${3:-$found}" ] || give_up "$2 is the key $found, not $3"
    gpg --batch --dearmor --yes --output "${ROOT:-}/usr/share/keyrings/$1.gpg" <"$key" && rm "$key"
}

# event EVENT [NAME VALUE]...: one JSON line in the stack's log, where metrics see it; exit_status is a number, other
# values are text. Failing to send it never stops a node.
event() {
    [ -n "$LOG_GROUP" ] || return 0
    send_event "$@" || log "could not send to $LOG_GROUP: $*"
}

# give_up REASON: this node will not train. It is replaced, unless too many were lately, and preparation ends here. A head
# node has no group; systemd tries again.
give_up() {
    if [ "$ROLE" = head ]; then
        log "not ready: $1"
        event head-not-ready reason "$1"
        exit 1
    fi
    log "giving this node up: $1"
    event node-given-up reason "$1"
    local go=replace_node
    if too_many_given_up "$1"; then
        go=hold_launches
        log "too many nodes gave themselves up: nothing is launched any more, until gangway breaker reset $STACK"
        event launches-held reason "$1"
    fi
    "$go" || log "could not have this node replaced: delete it by hand, it costs money and does nothing"
    exit 1
}

# rest: this node is not fit for the trainer. Where nobody replaces it, watch-node.sh starts it again after a pause, which
# grows with each rest: somebody may mend it, and others that train would stop for it each time. Six hours without one,
# for which the launcher counts failures, are a fresh start.
rest() {
    [ "$(up_sec)" -lt $(($(last_rest) + 21600)) ] || rm -f "$STATE_DIR/rests"
    up_sec >>"$STATE_DIR/rests"
    touch "$STATE_DIR/unfit"
}

last_rest() { tail -n 1 "$STATE_DIR/rests" 2>/dev/null || echo 0; }

# rested: the pause is over.
rested() {
    local pauses=(0 0 60 180 420 900 1740) count
    [ -e "$STATE_DIR/rests" ] || return 0
    count=$(wc -l <"$STATE_DIR/rests")
    [ "$count" -lt "${#pauses[@]}" ] || count=$((${#pauses[@]} - 1))
    [ "$(up_sec)" -ge $(($(last_rest) + pauses[count])) ]
}

# too_many_given_up REASON: with this one, the breaker's limit of nodes is reached (images/node/breaker.py), or was before;
# then held.json, beside the record, says why. Where nobody replaces nodes there is no limit.
too_many_given_up() {
    local mine names held=$STATE_DIR/held.json
    [ -n "${BREAKER_LIMIT:-}" ] || return 1
    mine=$(date +%s)-$HOSTNAME
    mkdir -p "$STATE_DIR"
    echo "$1" >"$STATE_DIR/given-up"
    put_object "$STATE_DIR/given-up" "$JOB_NAME/breaker/$mine" || log "could not put $JOB_NAME/breaker/$mine"
    if ! names=$(list_objects "$JOB_NAME/breaker/"); then
        log "could not count the nodes that gave themselves up: this one is replaced"
        return 1
    fi
    python3 "$(dirname "${BASH_SOURCE[0]}")/../lib/images/node/breaker.py" "$BREAKER_LIMIT" "$BREAKER_SEC" \
        "$STACK" "$RUN_ID" "$mine" "$1" <<<"$names" >"$held" || return 1
    [ ! -s "$held" ] || put_object "$held" "$JOB_NAME/breaker/held.json" || log "could not put $JOB_NAME/breaker/held.json"
}

# put_end: ended.json beside where run.json is, for whoever waits for a record that will not come. Where it cannot be put,
# this node leaves all the same: who waits has a deadline.
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
        log "could not put $JOB_NAME/ended.json: who waits for the record waits until the deadline"
    fi
}

# kept_long_enough: nothing that cannot be put keeps this node any more.
kept_long_enough() { [ "$(up_sec)" -ge $(($(cat "$STATE_DIR/ended-at" 2>/dev/null || echo 0) + KEEP_SEC)) ]; }

# record_kept: what the run has is where it outlives the stack, or was tried for long enough. A run without a record has
# nothing to keep.
record_kept() {
    # A file system that hangs must not hang this as well.
    if retry "$END_SEC" timeout $((${RESULTS_SEC:-0} + 60)) bash "$(dirname "${BASH_SOURCE[0]}")/upload-record.sh"; then
        return 0
    fi
    if ! kept_long_enough; then
        log "the record cannot be put: this node stays, and watch-node.sh tries again, for $KEEP_SEC s from the job's end"
        return 1
    fi
    log "the record could not be put for $KEEP_SEC s: this node goes without"
}

# tell: who waits for the record of a job that has ended for all is told, and no node is bought for it any more; or both
# were tried for long enough.
tell() {
    put_end
    if [ ! -e "$STATE_DIR/told" ] && ! tell_ended; then
        kept_long_enough || return
        log "nobody could be told for $KEEP_SEC s that the job has ended: this node leaves"
        event end-not-told reason "tried for $KEEP_SEC s: mend the bucket, or destroy the stack, before others come"
    fi
    touch "$STATE_DIR/told"
}

# depart: what the job has made is put where it stays, and this node leaves, if wanted.
depart() {
    [ -e "$STATE_DIR/kept" ] || { record_kept && touch "$STATE_DIR/kept"; } || return
    [ -z "$TERMINATE_WHEN_DONE" ] || leave_group
}

# end_job STATUS REASON: the job has ended, for all. The trainer is not started again, and the node leaves when that is
# wanted. Results that are put at the end alone are left to watch-node.sh, which has the time for it.
end_job() {
    mkdir -p "$STATE_DIR"
    up_sec >"$STATE_DIR/ended-at"
    echo "$1 $2" >"$STATE_DIR/ended"
    log "the job has ended: $2, exit status $1"
    event job-ended exit_status "$1" reason "$2"
    { tell && { [ -n "$RESULTS_AT_END" ] || depart; }; } ||
        log "cannot leave yet: watch-node.sh tries again"
}
