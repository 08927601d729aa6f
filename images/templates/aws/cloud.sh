# shellcheck shell=bash
# AWS's functions for common.sh: IMDSv2, the Auto Scaling group, CloudWatch, S3, ECR.
IMDS_URL=${GANGWAY_IMDS_URL:-http://169.254.169.254}
# close-metadata.sh: of instances, and of ECS and EKS, whose agents an AMI may bring.
export METADATA_IPV4='169.254.169.254 169.254.170.2 169.254.170.23' METADATA_IPV6='fd00:ec2::254 fd00:ec2::23'
# How long a node that gave up waits for its group to terminate it, and how long it tries to complete the hook.
LET_GO_SEC=${GANGWAY_LET_GO_SEC:-300}
COMPLETE_SEC=${GANGWAY_COMPLETE_SEC:-20}
# mount-scratch.sh: the instance's disks, and where the AMI may have mounted them.
export SCRATCH_DISKS='nvme-Amazon_EC2_NVMe_Instance_Storage_*'
export IMAGE_SCRATCH=${GANGWAY_IMAGE_SCRATCH:-/opt/dlami/nvme}

# imds PATH: one item of instance metadata (IMDSv2); fails where there is no such item.
imds() {
    local token
    token=$(curl -fsS --max-time 2 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$IMDS_URL/latest/api/token") &&
        curl -fs --max-time 2 -H "X-aws-ec2-metadata-token: $token" "$IMDS_URL/latest/meta-data/$1"
}

own_capacity() { imds instance-life-cycle; }

# log_stream: of the job's container; fails without a log group.
log_stream() {
    local instance
    [ -n "$LOG_GROUP" ] && instance=$(imds instance-id) && echo "$instance/job"
}

made_for_job() { [ "$ROLE" = worker ]; }

group_waits() { [ "$(imds autoscaling/target-lifecycle-state)" = Terminated ]; }

# For its group or for a spot interruption.
leaving() { group_waits || imds spot/instance-action >/dev/null; }

# log_events EVENT INSTANCE [NAME VALUE]...: the argument of put-log-events. Values are text, except exit_status.
log_events() {
    python3 -c '
import json, os, sys, time
words = [os.fsencode(word).decode(errors="replace")[:4000] for word in sys.argv[1:]]
line = {"event": words[0], "instance_id": words[1]}
for name, value in zip(words[2::2], words[3::2]):
    line[name] = int(value) if name == "exit_status" else value
print(json.dumps([{"timestamp": int(time.time() * 1000), "message": json.dumps(line)}]))' "$@"
}

send_event() {
    local instance events to
    instance=$(imds instance-id) && events=$(log_events "$1" "$instance" "${@:2}") || return 1
    # Not the log group of the job's lines, which could forge events (gangway.components.aws.alarms).
    to=(--region "$REGION" --log-group-name "$LOG_GROUP/events" --log-stream-name "$instance/node")
    # Fails if the stream exists, from the second event on.
    aws logs create-log-stream "${to[@]}" >/dev/null 2>&1 || true
    aws logs put-log-events "${to[@]}" --log-events "$events" >/dev/null
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
        log "$group may terminate $1"
}

# Completes the hook, so that the group does not wait for its timeout. The hook may start a moment later, hence the retry.
let_go() {
    local instance
    [ -n "$LIFECYCLE_HOOK" ] || return 0
    if ! { instance=$(imds instance-id) && retry "$COMPLETE_SEC" complete_once "$instance"; }; then
        log "cannot complete $LIFECYCLE_HOOK: the group waits for its timeout"
    fi
}

replace_node() {
    local instance
    instance=$(imds instance-id) && aws autoscaling set-instance-health --region "$REGION" \
        --instance-id "$instance" --health-status Unhealthy --no-should-respect-grace-period || return
    log "$instance is marked unhealthy: its group replaces it"
    # The group acts with a delay; watch-node.sh completes the hook otherwise.
    if [ -n "$LIFECYCLE_HOOK" ] && retry "$LET_GO_SEC" group_waits; then
        let_go
    fi
}

# suspend PROCESS...: in all groups of the stack; only logs failures.
suspend() {
    local group
    for group in $(groups_of_stack 'AutoScalingGroups[].AutoScalingGroupName'); do
        aws autoscaling suspend-processes --region "$REGION" --auto-scaling-group-name "$group" \
            --scaling-processes "$@" || log "cannot suspend $* of $group"
    done
}

# An unhealthy node is terminated anyway, and replaced once Launch is resumed (Amazon EC2 Auto Scaling user guide, "How
# suspended processes affect other processes").
hold_launches() {
    suspend Launch AlarmNotification
    replace_node
}

# Alarms would fill fallback rungs after the job's end. The head node may not change groups.
stop_filling() {
    [ "$ROLE" = worker ] || return 0
    suspend AlarmNotification
}

leave_group() {
    local instance
    instance=$(imds instance-id) || return
    log "$instance leaves its group"
    aws autoscaling terminate-instance-in-auto-scaling-group --region "$REGION" --instance-id "$instance" \
        --should-decrement-desired-capacity
}

put_object() { aws s3 cp --region "$REGION" "$1" "$BUCKET_URI/$2"; }
list_objects() { aws s3 ls --region "$REGION" "$BUCKET_URI/$1"; }
put_folder() {
    timeout "$RESULTS_SEC" aws s3 cp --region "$REGION" --recursive --only-show-errors "$1" "$BUCKET_URI/$2"
}

# parameter NAME: a secret of the stack.
parameter() {
    aws ssm get-parameter --region "$REGION" --name "$1" --with-decryption --output text --query Parameter.Value
}
member_key() { parameter "$MEMBER_KEY"; }
signing_key() { parameter "$SIGNING_KEY"; }

registry_login() {
    aws ecr get-login-password --region "$REGION" |
        docker login --username AWS --password-stdin "$IMAGE_REGISTRY"
}
