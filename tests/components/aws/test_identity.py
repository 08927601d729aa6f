"""NodeIdentity: the policy of a node, word for word, and who may take the role."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from components.aws.identity import NodeIdentity, node_policy

PULL = {
    "Effect": "Allow",
    "Action": ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
    "Resource": "arn:repo",
}
TOKEN = {"Effect": "Allow", "Action": "ecr:GetAuthorizationToken", "Resource": "*"}
HEALTH = {
    "Effect": "Allow",
    "Action": "autoscaling:SetInstanceHealth",
    "Resource": "*",
    "Condition": {"StringEquals": {"autoscaling:ResourceTag/gangway:stack": "demo"}},
}
RUNS = {"Effect": "Allow", "Action": ["s3:GetObject", "s3:PutObject"], "Resource": "arn:runs/demo/*"}


def test_the_policy_without_a_data_source() -> None:
    assert node_policy("arn:runs", "arn:repo", "demo", None) == {
        "Version": "2012-10-17",
        "Statement": [RUNS, PULL, TOKEN, HEALTH],
    }


@pytest.mark.parametrize(
    ("source", "resource"),
    [
        ("s3://bucket", "arn:aws:s3:::bucket/*"),
        ("s3://bucket/", "arn:aws:s3:::bucket/*"),
        ("s3://bucket/a/b", "arn:aws:s3:::bucket/a/b/*"),
        ("s3://bucket/a/b/", "arn:aws:s3:::bucket/a/b/*"),
    ],
)
def test_the_data_source_is_read_only_and_below_its_prefix(source: str, resource: str) -> None:
    read = {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": resource}
    assert node_policy("arn:runs", "arn:repo", "demo", source)["Statement"] == [RUNS, read, PULL, TOKEN, HEALTH]


def test_every_star_is_accounted_for() -> None:
    """Open is only what AWS offers no narrower resource for: the registry token, and health under a tag condition."""
    statements = node_policy("arn:runs", "arn:repo", "demo", "s3://bucket")["Statement"]
    open_ended = [s["Action"] for s in statements if s["Resource"] == "*" and "Condition" not in s]
    assert open_ended == ["ecr:GetAuthorizationToken"]
    assert not any("*" in str(s["Action"]) for s in statements)


def test_role_profile_and_attachments(make: Callable[..., Any]) -> None:
    made = make(NodeIdentity)
    role, policy = made.one("Role"), made.one("RolePolicy")
    (trust,) = json.loads(role.inputs["assumeRolePolicy"])["Statement"]
    assert trust == {
        "Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole",
    }  # fmt: skip
    document = json.loads(policy.inputs["policy"])
    assert document == node_policy(
        "arn:aws:s3:::runs", "arn:aws:ecr:us-east-2:1:repository/x", "test", "s3://bucket/prefix"
    )
    assert policy.inputs["role"] == role.id
    attachment = made.one("RolePolicyAttachment").inputs
    assert attachment == {
        "role": "<Role.demo-node.name>", "policyArn": "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore",
    }  # fmt: skip
    assert made.one("InstanceProfile").inputs["role"] == "<Role.demo-node.name>"
