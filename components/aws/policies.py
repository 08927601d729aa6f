"""The small grammar in which every IAM policy of ours is written, and the list of what they leave open.

Pure data. No action is a pattern, and a resource is `*` only for an action in OPEN_RESOURCES, where the reason stands.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

__all__ = ["OPEN_RESOURCES", "SESSION_ACTIONS", "Statement", "allow", "document", "on_groups_of", "trust"]

Statement = dict[str, Any]

SESSION_ACTIONS = (
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
    "ec2messages:AcknowledgeMessage",
    "ec2messages:DeleteMessage",
    "ec2messages:FailMessage",
    "ec2messages:GetEndpoint",
    "ec2messages:GetMessages",
    "ec2messages:SendReply",
)
"""What of AWS's AmazonSSMManagedInstanceCore (v2) Session Manager needs, older agents with ec2messages included.

Not the rest: it has ssm:GetParameter on every parameter of the account, and training code may ask as its node does.
"""

OPEN_RESOURCES: Mapping[str, str] = MappingProxyType(
    {
        "autoscaling:DescribeAutoScalingGroups": "Auto Scaling has no narrower resource for describing; it only reads",
        "ec2:DescribeInstances": "EC2 has no narrower resource for describing; it only reads",
        "ecr:GetAuthorizationToken": "ECR hands out tokens for the whole registry; what may be pulled is limited apart",
        **dict.fromkeys(
            SESSION_ACTIONS, "the agent's word about its own machine; AWS's policies name nothing narrower"
        ),
    }
)
"""Every action that our policies allow on resource `*`, and why there is nothing narrower."""


def document(statements: Sequence[Statement]) -> dict[str, Any]:
    """A policy document."""
    return {"Version": "2012-10-17", "Statement": list(statements)}


def allow(sid: str, actions: list[str], resource: str, condition: Mapping[str, Any] | None = None) -> Statement:
    """One permission."""
    allowed: Statement = {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resource}
    return {**allowed, "Condition": condition} if condition else allowed


def on_groups_of(stack: str, sid: str, actions: list[str]) -> Statement:
    """Allows `actions` on the stack's Auto Scaling groups. Its tag decides: names of other stacks may begin alike."""
    groups = f"arn:aws:autoscaling:*:*:autoScalingGroup:*:autoScalingGroupName/{stack}-*"
    return allow(sid, actions, groups, {"StringEquals": {"autoscaling:ResourceTag/gangway:stack": stack}})


def trust(service: str, condition: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The document that lets an AWS service, and nobody else, take a role."""
    allowed: Statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    return document([{**allowed, "Condition": condition} if condition else allowed])
