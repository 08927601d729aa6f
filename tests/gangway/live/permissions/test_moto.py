"""Moto, with IAM enforced, applies the stacks of AWS with nothing but the printed policies, and misses each action."""

import socket
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

from gangway.live.permissions.needs import DEFAULT, Answer, Command, make_needs
from gangway.sandbox.rows import SandboxRow, Status
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import make_plan
from tests.gangway.live.permissions.moto_judge import SANDBOX_READS, Watch, apply, moto_names, permits, simplified

STACKS = ("aws-demo", "aws-g5-dev", "aws-p4d-block", "aws-p5-slurm", "aws-p5-spot", "eks-p5-kueue")
FOLDER = Path(__file__).resolve().parents[4] / "stacks"
FINE = {Status.READ_BACK_EQUAL, Status.ACCEPTED, Status.VALIDATED}

# Validated, not applied: what `up` needs for aws-demo and moto never judges, with the reason.
UNJUDGED = {
    "only an update or a failed creation makes the request": (
        *("ec2:AssociateIamInstanceProfile", "ec2:DisassociateIamInstanceProfile", "ec2:DeleteTags"),
        *("ec2:ReplaceIamInstanceProfileAssociation", "ec2:ModifyInstanceAttribute", "ec2:ModifyVolume"),
        *("ec2:ModifyInstanceMaintenanceOptions", "ec2:ModifyInstanceMetadataOptions", "ec2:StartInstances"),
        *("ec2:ModifyNetworkInterfaceAttribute", "ec2:ModifySubnetAttribute", "ec2:StopInstances"),
        *("ec2:RevokeSecurityGroupIngress", "iam:DeleteRole", "iam:DeleteRolePolicy", "iam:DetachRolePolicy"),
        *("iam:RemoveRoleFromInstanceProfile", "iam:UntagInstanceProfile", "iam:UntagRole", "sns:UntagResource"),
        *("cloudwatch:UntagResource", "ecr:UntagResource", "ssm:RemoveTagsFromResource"),
    ),
    "the sandbox's request creates the resource with its tags, and moto asks for the creation alone": (
        *("cloudwatch:TagResource", "ecr:TagResource", "iam:TagInstanceProfile", "iam:TagRole"),
        *("s3:TagResource", "sns:TagResource", "ssm:AddTagsToResource"),
    ),
    "moto lacks the request (see tests/gangway/sandbox)": (
        *("cloudwatch:PutCompositeAlarm", "ec2:CreatePlacementGroup", "fsx:CreateDataRepositoryAssociation"),
    ),
    "no image is pushed": (
        *("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:CompleteLayerUpload"),
        *("ecr:InitiateLayerUpload", "ecr:PutImage", "ecr:UploadLayerPart"),
    ),
    "moto judges a request by its own action alone, not by others that AWS checks with it": (
        *("iam:CreateServiceLinkedRole", "iam:PassRole", "route53:AssociateVPCWithHostedZone"),
    ),
    "moto's S3 judges no request for these settings": (
        *("s3:PutBucketOwnershipControls", "s3:PutBucketPublicAccessBlock", "s3:PutEncryptionConfiguration"),
    ),
}
# Their ARNs are longer than those of the topic or group that IAM asks about.
INSIDE = ("aws:sns/topicSubscription:TopicSubscription", "aws:autoscaling/policy:Policy")


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the sandbox reached for the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@cache
def config(name: str) -> StackConfig:
    return from_file(FOLDER / f"Pulumi.{name}.yaml")


@cache
def answer(name: str) -> Answer:
    return make_needs("aws", lambda: make_plan(config(name)), DEFAULT)


@cache
def applied(name: str) -> tuple[tuple[SandboxRow, ...], Watch, Mapping[str, list[str]]]:
    """The stack, applied with all of the policies."""
    return apply(config(name), simplified(answer(name).documents))


def judged(name: str) -> list[str]:
    """The needed actions that moto judges."""
    seen = applied(name)[1].seen
    return sorted({one.action for one in answer(name).needs if not seen.keys().isdisjoint(moto_names(one.action))})


@pytest.mark.parametrize(
    "name", [name if name == "aws-demo" else pytest.param(name, marks=pytest.mark.slow) for name in STACKS]
)
def test_a_user_with_the_printed_policies_alone_applies_the_stack(name: str) -> None:
    rows, watch, arns = applied(name)
    assert watch.refused == []
    assert [f"{row.type} {row.name}: {row.note}" for row in rows if row.status not in FINE] == []
    granted = {moto for need in answer(name).needs for moto in moto_names(need.action)}
    assert watch.seen.keys() <= granted | {*SANDBOX_READS}
    assert len(judged(name)) > 60
    scopes = [arn for need in answer(name).needs for arn in need.scope if arn != "*"]
    outside = {
        arn
        for type_, made in arns.items()
        for arn in made
        if type_ not in INSIDE and not any(fnmatchcase(arn, scope) for scope in scopes)
    }
    assert outside == set(), "no statement names these resources"


def test_what_moto_does_not_judge_is_listed() -> None:
    name = "aws-demo"
    changing = {
        need.action
        for need in answer(name).needs
        if any(reason.startswith("create ") for reason in need.reasons)
        and not need.action.partition(":")[2].startswith(("Describe", "Get", "List", "View"))
    }
    assert changing - {*judged(name)} == {action for actions in UNJUDGED.values() for action in actions}


@pytest.mark.slow
@pytest.mark.parametrize("commands", [(), (Command.PREFLIGHT,)])
def test_less_than_the_policies_applies_nothing(commands: tuple[Command, ...]) -> None:
    found = make_needs("aws", lambda: make_plan(config("aws-demo")), commands)
    rows, watch, _ = apply(config("aws-demo"), simplified(found.documents if commands else []))
    assert watch.refused
    assert {row.status for row in rows} <= {Status.REFUSED}


def check_missed(name: str, action: str) -> None:
    rows, watch, _ = apply(config(name), simplified(answer(name).documents, {action}))
    assert watch.refused, f"moto did not miss {action}"
    assert {*watch.refused} <= {*moto_names(action)}
    assert any(row.status not in FINE for row in rows)


REMOVED = ("iam:CreateRole", "s3:PutBucketPolicy", "fsx:CreateFileSystem", "logs:PutRetentionPolicy")


@pytest.mark.parametrize("action", ["ec2:CreateVpc", *(pytest.param(one, marks=pytest.mark.slow) for one in REMOVED)])
def test_a_removed_action_is_missed(action: str) -> None:
    check_missed("aws-demo", action)


@pytest.mark.parametrize(
    "name", [name if name == "aws-demo" else pytest.param(name, marks=pytest.mark.slow) for name in STACKS]
)
def test_moto_would_refuse_each_request_without_its_action(name: str) -> None:
    """The same for all actions, by moto's judge of the request that it saw."""
    documents, seen = answer(name).documents, applied(name)[1].seen
    for action in judged(name):
        rest = simplified(documents, {action})
        for moto in {*moto_names(action)} & seen.keys():
            assert permits(simplified(documents), moto, seen[moto]), moto
            assert not permits(rest, moto, seen[moto]), f"moto does not miss {action}"
