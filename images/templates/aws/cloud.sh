# shellcheck shell=bash
# AWS for common.sh, which says what each of its functions is for: IMDSv2, the Auto Scaling group, CloudWatch, S3, ECR.
IMDS_URL=${GANGWAY_IMDS_URL:-http://169.254.169.254}
# close-metadata.sh: of instances, and of ECS and EKS, whose agents an AMI may bring.
export METADATA_IPV4='169.254.169.254 169.254.170.2 169.254.170.23' METADATA_IPV6='fd00:ec2::254 fd00:ec2::23'
# How long a node that was given up waits for its group to let it go, and how long completing the hook is tried.
LET_GO_SEC=${GANGWAY_LET_GO_SEC:-300}
COMPLETE_SEC=${GANGWAY_COMPLETE_SEC:-20}
# mount-scratch.sh: which disks are the machine's own, and where the AMI may have mounted them already.
export SCRATCH_DISKS='nvme-Amazon_EC2_NVMe_Instance_Storage_*'
export IMAGE_SCRATCH=${GANGWAY_IMAGE_SCRATCH:-/opt/dlami/nvme}

# imds PATH: one item of instance metadata (IMDSv2); fails where there is no such item.
imds() {
    local token
    token=$(curl -fsS --max-time 2 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$IMDS_URL/latest/api/token") &&
        curl -fs --max-time 2 -H "X-aws-ec2-metadata-token: $token" "$IMDS_URL/latest/meta-data/$1"
}

own_capacity() { imds instance-life-cycle; }

made_for_job() { [ "$ROLE" = worker ]; }

group_waits() { [ "$(imds autoscaling/target-lifecycle-state)" = Terminated ]; }

# For its group or for a spot interruption.
leaving() { group_waits || imds spot/instance-action >/dev/null; }

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

send_event() {
    local instance events stream
    instance=$(imds instance-id) && events=$(log_events "$1" "$instance" "${@:2}") || return 1
    # A log group beside that of the job's lines, where none of these can be forged (components.aws.alarms).
    stream=(--region "$REGION" --log-group-name "$LOG_GROUP/events" --log-stream-name "$instance/node")
    # The stream is there from the second event on, and that is an error too.
    aws logs create-log-stream "${stream[@]}" >/dev/null 2>&1 || true
    aws logs put-log-events "${stream[@]}" --log-events "$events" >/dev/null
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

# The group need not wait for its hook's timeout. It may want the node to go a moment before its hook begins, hence more
# than one try.
let_go() {
    local instance
    [ -n "$LIFECYCLE_HOOK" ] || return 0
    if ! { instance=$(imds instance-id) && retry "$COMPLETE_SEC" complete_once "$instance"; }; then
        log "could not complete $LIFECYCLE_HOOK for this node: its group waits"
    fi
}

replace_node() {
    local instance
    instance=$(imds instance-id) && aws autoscaling set-instance-health --region "$REGION" \
        --instance-id "$instance" --health-status Unhealthy --no-should-respect-grace-period || return
    log "$instance is marked unhealthy, its group replaces it"
    # The group acts some time after it was told; what is not completed here is completed by watch-node.sh.
    if [ -n "$LIFECYCLE_HOOK" ] && retry "$LET_GO_SEC" group_waits; then
        let_go
    fi
}

# suspend PROCESS...: of all groups of the stack. That they cannot be suspended is no reason to stay.
suspend() {
    local group
    for group in $(groups_of_stack 'AutoScalingGroups[].AutoScalingGroupName'); do
        aws autoscaling suspend-processes --region "$REGION" --auto-scaling-group-name "$group" \
            --scaling-processes "$@" || log "could not suspend $* of $group"
    done
}

# An unhealthy node goes all the same, and is replaced once Launch is resumed (Amazon EC2 Auto Scaling user guide, "How
# suspended processes affect other processes").
hold_launches() {
    suspend Launch AlarmNotification
    replace_node
}

# Alarms fill a fallback rung with what others lack, also for a job that has ended. The head node has no say over groups.
tell_ended() {
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

# parameter NAME: a secret of the stack's.
parameter() {
    aws ssm get-parameter --region "$REGION" --name "$1" --with-decryption --output text --query Parameter.Value
}
member_key() { parameter "$MEMBER_KEY"; }
signing_key() { parameter "$SIGNING_KEY"; }

registry_login() {
    aws ecr get-login-password --region "$REGION" |
        docker login --username AWS --password-stdin "$IMAGE_REGISTRY"
}
