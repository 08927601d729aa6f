# shellcheck shell=bash
# Sourced by every script of the node: its settings, and what more than one of them does.
# shellcheck source=/dev/null
. "${GANGWAY_NODE_ENV:-/etc/gangway/node.env}"
IMDS_URL=${GANGWAY_IMDS_URL:-http://169.254.169.254}
POLL_SEC=${GANGWAY_POLL_SEC:-5}
# On tmpfs, so a reboot is a fresh start.
STATE_DIR=${GANGWAY_STATE_DIR:-/run/gangway}
# How long a node that was given up waits for its group to let it go, and how long completing the hook is tried.
LET_GO_SEC=${GANGWAY_LET_GO_SEC:-300}
COMPLETE_SEC=${GANGWAY_COMPLETE_SEC:-20}

log() { printf 'gangway: %s\n' "$*" >&2; }

# retry SECONDS COMMAND...: until COMMAND succeeds; fails when SECONDS have passed.
retry() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep "$POLL_SEC"
    done
}

# imds PATH: one item of instance metadata (IMDSv2); fails where there is no such item.
imds() {
    local token
    token=$(curl -fsS --max-time 2 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$IMDS_URL/latest/api/token") &&
        curl -fs --max-time 2 -H "X-aws-ec2-metadata-token: $token" "$IMDS_URL/latest/meta-data/$1"
}

# lifecycle_ends: the node's Auto Scaling group wants it to go.
lifecycle_ends() { [ "$(imds autoscaling/target-lifecycle-state)" = Terminated ]; }

# leaving: the node is about to go, for its group or for a spot interruption.
leaving() { lifecycle_ends || imds spot/instance-action >/dev/null; }

# log_events EVENT INSTANCE [NAME VALUE]...: the argument of put-log-events. Both layers of JSON are Python's work, so
# any text may stand in a value; exit_status alone is a number.
log_events() {
    python3 -c '
import json, os, sys, time
words = [os.fsencode(word).decode(errors="replace")[:4000] for word in sys.argv[1:]]
line = {"event": words[0], "instance_id": words[1]}
for name, value in zip(words[2::2], words[3::2]):
    line[name] = int(value) if name == "exit_status" else value
print(json.dumps([{"timestamp": int(time.time() * 1000), "message": json.dumps(line)}]))' "$@"
}

# event EVENT [NAME VALUE]...: one JSON line in the stack's log group, where metric filters see it. Failing to send it
# never stops a node.
event() {
    local instance events
    [ -n "$LOG_GROUP" ] || return 0
    if instance=$(imds instance-id) && events=$(log_events "$1" "$instance" "${@:2}"); then
        local stream=(--region "$REGION" --log-group-name "$LOG_GROUP" --log-stream-name "$instance/node")
        # The stream is there from the second event on, and that is an error too.
        aws logs create-log-stream "${stream[@]}" >/dev/null 2>&1 || true
        aws logs put-log-events "${stream[@]}" --log-events "$events" >/dev/null && return
    fi
    log "could not send to $LOG_GROUP: $*"
}

# groups_of_stack QUERY: a JMESPath over the stack's Auto Scaling groups, as words.
groups_of_stack() {
    aws autoscaling describe-auto-scaling-groups --region "$REGION" --output text \
        --filters "Name=tag:gangway:stack,Values=$STACK" --query "$1"
}

complete_once() {
    local group
    group=$(groups_of_stack "AutoScalingGroups[?Instances[?InstanceId=='$1']].AutoScalingGroupName") &&
        aws autoscaling complete-lifecycle-action --region "$REGION" --auto-scaling-group-name "$group" \
            --lifecycle-hook-name "$LIFECYCLE_HOOK" --instance-id "$1" --lifecycle-action-result CONTINUE &&
        log "$group need not wait for $1"
}

# complete_lifecycle INSTANCE: its group need not wait for the hook's timeout. The group may want the node to go a
# moment before its hook begins, hence more than one try.
complete_lifecycle() {
    [ -n "$LIFECYCLE_HOOK" ] || return 0
    retry "$COMPLETE_SEC" complete_once "$1" || log "could not complete $LIFECYCLE_HOOK for $1: its group waits"
}

# give_up REASON: this node will not train. Its Auto Scaling group is told to replace it, and preparation ends here. A
# head node has no group; systemd tries again.
give_up() {
    local instance
    if [ "$ROLE" = head ]; then
        log "not ready: $1"
        event head-not-ready reason "$1"
        exit 1
    fi
    log "giving this node up: $1"
    event node-given-up reason "$1"
    if instance=$(imds instance-id) && aws autoscaling set-instance-health --region "$REGION" \
        --instance-id "$instance" --health-status Unhealthy --no-should-respect-grace-period; then
        log "$instance is marked unhealthy, its group replaces it"
        # The group acts some time after it was told; what is not completed here is completed by watch-node.sh.
        if [ -n "$LIFECYCLE_HOOK" ] && retry "$LET_GO_SEC" lifecycle_ends; then
            complete_lifecycle "$instance"
        fi
    else
        log "could not mark this node unhealthy: terminate it by hand, it costs money and does nothing"
    fi
    exit 1
}

# leave_group: the node takes itself out of its group, which becomes smaller. Alarms that fill a fallback rung would
# bring new nodes for those that leave, so they are suspended first.
leave_group() {
    local instance group
    instance=$(imds instance-id) || return 1
    for group in $(groups_of_stack 'AutoScalingGroups[].AutoScalingGroupName'); do
        aws autoscaling suspend-processes --region "$REGION" --auto-scaling-group-name "$group" \
            --scaling-processes AlarmNotification || log "could not suspend the alarms of $group"
    done
    log "$instance leaves its group"
    aws autoscaling terminate-instance-in-auto-scaling-group --region "$REGION" --instance-id "$instance" \
        --should-decrement-desired-capacity
}

# end_job STATUS REASON: a final result. The trainer is not started again, and the node leaves when that is wanted.
end_job() {
    mkdir -p "$STATE_DIR"
    echo "$1 $2" >"$STATE_DIR/ended"
    log "the job has ended here: $2, exit status $1"
    event job-ended exit_status "$1" reason "$2"
    if [ -n "$TERMINATE_WHEN_DONE" ]; then
        leave_group || log "could not leave: watch-node.sh tries again"
    fi
}

# hours_over SECONDS: the job's hours passed at least SECONDS ago. They count from the job's first start on any node. Where
# none is known, a worker counts from its own boot; a head node may be older than the job, and says no.
hours_over() {
    local began
    [ -n "$MAX_SEC" ] || return 1
    # A file system that hangs must not hang this as well.
    if ! began=$(timeout 20 cat "$RUN_DIR/started-at" 2>/dev/null); then
        [ "$ROLE" = worker ] || return 1
        began=$(($(date +%s) - $(cut -d. -f1 "${GANGWAY_UPTIME:-/proc/uptime}")))
    fi
    [ "$(date +%s)" -ge $((began + MAX_SEC + $1)) ]
}
