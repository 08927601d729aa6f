"""The budget's last alarm as an act: a topic of its own, and a Lambda function that sets the stack's groups to zero.

Why a function: no budget action can do it. Budgets' own actions attach an IAM or organization policy, which does not
bind Auto Scaling's service-linked role and ends nothing, or stop instances named in advance, which groups replace at
once. Nothing else listens to a topic and can call Auto Scaling. Nodes get the usual termination and save first.

Not a hard limit: AWS brings billing data up to date a few times a day, so the stop comes hours late.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi
from pulumi_aws import cloudwatch, iam, lambda_, sns

from components.aws.policies import OPEN_RESOURCES, allow, document, on_groups_of, trust

__all__ = ["declare_stop", "stop_code", "stop_policy"]

RUNTIME = "python3.13"
TIMEOUT_SEC = 60
LOG_DAYS = 30


def stop_code() -> str:
    """The function's source, as it is read in `components/aws/stop_groups.py`."""
    return Path(__file__).with_name("stop_groups.py").read_text("utf-8")


def stop_policy(log_group_arn: str, stack: str) -> dict[str, Any]:
    """What the function may do: find groups, empty those of its stack, and say so."""
    empty = ["autoscaling:SuspendProcesses", "autoscaling:UpdateAutoScalingGroup"]
    find = "autoscaling:DescribeAutoScalingGroups"
    assert find in OPEN_RESOURCES, "an open resource needs its reason"
    return document(
        [
            allow("FindGroups", [find], "*"),
            on_groups_of(stack, "EmptyOwnGroups", empty),
            allow("WriteLogs", ["logs:CreateLogStream", "logs:PutLogEvents"], f"{log_group_arn}:*"),
        ]
    )


def declare_stop(
    name: str,
    topic: sns.Topic,
    stack: str,
    kms_key_arn: pulumi.Input[str] | None,
    tags: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> None:
    """Declares the function, its role and log group, and has `topic` call it."""
    label = f"{name}-stop"
    group = cloudwatch.LogGroup(label, retention_in_days=LOG_DAYS, kms_key_id=kms_key_arn, tags=tags, opts=opts)
    trusted = pulumi.Output.json_dumps(trust("lambda.amazonaws.com"))
    role = iam.Role(label, assume_role_policy=trusted, tags=tags, opts=opts)
    policy = group.arn.apply(lambda arn: stop_policy(arn, stack))
    permissions = iam.RolePolicy(label, role=role.id, policy=pulumi.Output.json_dumps(policy), opts=opts)
    # Called before its role may act, it would stop nothing.
    function = _function(label, stack, role, group, tags, _after(permissions, opts))
    _call(label, topic, function, opts)


def _after(resource: pulumi.Resource, opts: pulumi.ResourceOptions) -> pulumi.ResourceOptions:
    """The options of what is declared only once `resource` is there."""
    return pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[resource]))


def _function(
    label: str,
    stack: str,
    role: iam.Role,
    group: cloudwatch.LogGroup,
    tags: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> lambda_.Function:
    return lambda_.Function(
        label,
        description=f"{stack}: budget used up, nodes end",
        runtime=RUNTIME,
        handler="stop_groups.handler",
        code=pulumi.AssetArchive({"stop_groups.py": pulumi.StringAsset(stop_code())}),
        role=role.arn,
        timeout=TIMEOUT_SEC,
        environment=lambda_.FunctionEnvironmentArgs(variables={"STACK": stack}),
        logging_config=lambda_.FunctionLoggingConfigArgs(log_format="Text", log_group=group.name),
        tags=tags,
        opts=opts,
    )


def _call(label: str, topic: sns.Topic, function: lambda_.Function, opts: pulumi.ResourceOptions) -> None:
    """Has the topic call the function, which only this topic may."""
    permission = lambda_.Permission(
        label,
        action="lambda:InvokeFunction",
        function=function.name,
        principal="sns.amazonaws.com",
        source_arn=topic.arn,
        opts=opts,
    )
    sns.TopicSubscription(
        label, topic=topic.arn, protocol="lambda", endpoint=function.arn, opts=_after(permission, opts)
    )
