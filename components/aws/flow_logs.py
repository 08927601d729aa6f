"""Flow logs of a network: who talked to whom and what was refused, in a CloudWatch log group with an end.

EC2 delivers to CloudWatch through a role of ours, which only this account's flow logs may take. Not a packet capture,
and blind to EFA's own traffic, which bypasses the operating system but not the security groups.
"""

from collections.abc import Mapping
from typing import Any

import pulumi
from pulumi_aws import cloudwatch, ec2, iam

from components.aws.names import account_of
from components.aws.policies import allow, document, trust

__all__ = ["declare_flow_logs", "delivery_policy", "delivery_trust"]

KEPT_DAYS = 30
# One record a flow and ten minutes; EC2's other choice, one minute, writes ten times as much.
AGGREGATION_SEC = 600


def delivery_trust(account: str, region: str) -> dict[str, Any]:
    """Who may take the role: the flow log service, for this account's flow logs and nobody else's."""
    condition = {
        "StringEquals": {"aws:SourceAccount": account},
        "ArnLike": {"aws:SourceArn": f"arn:aws:ec2:{region}:{account}:vpc-flow-log/*"},
    }
    return trust("vpc-flow-logs.amazonaws.com", condition)


def delivery_policy(log_group_arn: str) -> dict[str, Any]:
    """Writing to the one group; the two questions are asked before each delivery."""
    actions = ["logs:CreateLogStream", "logs:DescribeLogGroups", "logs:DescribeLogStreams", "logs:PutLogEvents"]
    return document([allow("Deliver", actions, f"{log_group_arn}:*")])


def declare_flow_logs(
    name: str,
    vpc_id: pulumi.Input[str],
    region: str,
    kms_key_arn: pulumi.Input[str] | None,
    tags: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> None:
    """Declares the log group, the role and the flow log of a whole VPC."""
    label = f"{name}-flow-logs"
    group = cloudwatch.LogGroup(label, retention_in_days=KEPT_DAYS, kms_key_id=kms_key_arn, tags=tags, opts=opts)
    trust = group.arn.apply(lambda arn: delivery_trust(account_of(arn), region))
    role = iam.Role(label, assume_role_policy=pulumi.Output.json_dumps(trust), tags=tags, opts=opts)
    iam.RolePolicy(label, role=role.id, policy=pulumi.Output.json_dumps(group.arn.apply(delivery_policy)), opts=opts)
    ec2.FlowLog(
        label,
        vpc_id=vpc_id,
        traffic_type="ALL",
        log_destination_type="cloud-watch-logs",
        log_destination=group.arn,
        iam_role_arn=role.arn,
        max_aggregation_interval=AGGREGATION_SEC,
        tags={**tags, "Name": label},
        opts=opts,
    )
