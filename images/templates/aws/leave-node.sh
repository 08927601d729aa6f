#!/usr/bin/env bash
# What is left to do when the trainer has stopped: tell the group that waits for it, or leave when the job is done.
# systemd gives SERVICE_RESULT and EXIT_STATUS.
set -euo pipefail
# shellcheck source=common.sh
. "$(dirname "$0")/common.sh"

# groups_of_stack QUERY: a JMESPath over the stack's Auto Scaling groups, as words.
groups_of_stack() {
    aws autoscaling describe-auto-scaling-groups --region "$REGION" --output text \
        --filters "Name=tag:gangway:stack,Values=$STACK" --query "$1"
}

complete_lifecycle() {
    local group
    group=$(groups_of_stack "AutoScalingGroups[?Instances[?InstanceId=='$1']].AutoScalingGroupName")
    aws autoscaling complete-lifecycle-action --region "$REGION" --auto-scaling-group-name "$group" \
        --lifecycle-hook-name "$LIFECYCLE_HOOK" --instance-id "$1" --lifecycle-action-result CONTINUE
    log "$group need not wait for $1"
}

# The alarms that fill a fallback rung would bring new nodes for those that leave, so their word is no longer taken.
finish() {
    local group
    for group in $(groups_of_stack 'AutoScalingGroups[].AutoScalingGroupName'); do
        aws autoscaling suspend-processes --region "$REGION" --auto-scaling-group-name "$group" \
            --scaling-processes AlarmNotification
    done
    log "the job is done: $1 leaves its group"
    aws autoscaling terminate-instance-in-auto-scaling-group --region "$REGION" --instance-id "$1" \
        --should-decrement-desired-capacity
}

instance=$(imds instance-id)
if leaving; then
    if [ -n "$LIFECYCLE_HOOK" ] && lifecycle_ends; then
        complete_lifecycle "$instance"
    fi
elif [ -n "$TERMINATE_WHEN_DONE" ] && [ "${SERVICE_RESULT:-}" = success ] && [ "${EXIT_STATUS:-}" = 0 ]; then
    finish "$instance"
fi
