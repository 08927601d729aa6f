"""NodeIdentity and HeadIdentity: what each role may do, on what, under which condition, and who may take it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gangway.components.aws.budget import stop_policy
from gangway.components.aws.identity import (
    OPEN_RESOURCES,
    SESSION_ACTIONS,
    EncryptionKey,
    HeadIdentity,
    NodeIdentity,
    SecretParameter,
    get_account,
    head_policy,
    key_policy,
    node_policy,
    parameter_name,
)
from gangway.components.aws.network import delivery_policy
from gangway.components.aws.slurm import slurm_head_policy, slurm_node_policy
from tests.components.fixture_types import Make

OPTIONAL = {
    "log_group_arn": "arn:logs",
    "kms_key_arn": "arn:key",
    "member_key_arn": "arn:member",
    "signing_key_arn": "arn:sign",
}
ALL = {
    "node": node_policy("arn:runs", "arn:repo", "demo", self_termination=True, **OPTIONAL),
    "head": head_policy("arn:runs", "arn:repo", "demo", **OPTIONAL),
    "slurm head": slurm_head_policy("arn:munge", "demo", "arn:key"),
    "slurm node": slurm_node_policy("arn:munge", "demo", "arn:key"),
    "stop": stop_policy("arn:logs", "demo"),
    "flow logs": delivery_policy("arn:logs"),
}
every_policy = pytest.mark.parametrize("document", ALL.values(), ids=ALL)


def by_sid(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {statement["Sid"]: statement for statement in document["Statement"]}


def grants(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every (action, resource, statement) that the document allows."""
    for statement in document["Statement"]:
        assert statement["Effect"] == "Allow"
        resources = statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]
        for action in statement["Action"]:
            yield from ((action, resource, statement) for resource in resources)


@every_policy
def test_no_action_is_a_pattern_and_every_open_resource_has_its_reason(document: dict[str, Any]) -> None:
    for action, resource, _ in grants(document):
        service, _, verb = action.partition(":")
        assert service, action
        assert verb.isalpha(), f"{action} is no single action"
        if resource == "*":
            assert len(OPEN_RESOURCES[action]) > 20, action
    assert len({statement["Sid"] for statement in document["Statement"]}) == len(document["Statement"])


@pytest.mark.attack("root of a node", "changes another stack's groups (AWS)")
@pytest.mark.parametrize("name", ALL)
def test_only_the_groups_of_the_stack_can_be_touched(name: str) -> None:
    changes = [
        (resource, statement)
        for action, resource, statement in grants(ALL[name])
        if action.startswith("autoscaling:") and not action.startswith("autoscaling:Describe")
    ]
    assert bool(changes) == (name not in ("head", "flow logs"))
    for resource, statement in changes:
        assert "demo-*" in resource
        assert statement["Condition"] == {"StringEquals": {"autoscaling:ResourceTag/gangway:stack": "demo"}}


def test_every_reason_is_still_needed() -> None:
    used = {action for document in ALL.values() for action, resource, _ in grants(document) if resource == "*"}
    assert used == set(OPEN_RESOURCES)


@pytest.mark.attack("root of a node", "reads or deletes another stack's runs (AWS)")
def test_a_node_reads_and_writes_its_own_runs_and_no_other_stacks() -> None:
    statements = by_sid(node_policy("arn:runs", "arn:repo", "demo"))
    assert statements["OwnRuns"]["Action"] == ["s3:GetObject", "s3:PutObject"], "no DeleteObject"
    assert statements["OwnRuns"]["Resource"] == "arn:runs/demo/*"
    assert statements["NamesOfOwnRuns"]["Resource"] == "arn:runs"
    assert statements["NamesOfOwnRuns"]["Condition"] == {"StringLike": {"s3:prefix": ["demo", "demo/*"]}}
    assert set(statements) == {
        "OwnRuns", "NamesOfOwnRuns", "PullImage", "LogInToRegistry", "FindOwnGroup", "OwnGroups", "SessionManager",
    }  # fmt: skip


@pytest.mark.attack("root of a node", "reads secrets of the account (AWS)")
@pytest.mark.parametrize("name", ["node", "head"])
def test_people_get_in_and_no_secret_of_the_account_gets_out(name: str) -> None:
    """AWS's managed policy for Session Manager would read every parameter; the training code asks as its node does."""
    actions = {action for action, _, _ in grants(ALL[name])}
    assert set(SESSION_ACTIONS) == set(by_sid(ALL[name])["SessionManager"]["Action"])
    assert {"ssm:UpdateInstanceInformation", "ssmmessages:OpenDataChannel"} <= actions
    services = {service for service, _, _ in (action.partition(":") for action in actions)}
    assert services == {"s3", "ecr", "ssm", "ssmmessages", "ec2messages", "logs", "kms"} | (
        {"autoscaling"} if name == "node" else {"ec2"}
    )
    own = [(action, resource) for action, resource, _ in grants(ALL[name]) if action.startswith("ssm:")]
    assert own == [
        ("ssm:UpdateInstanceInformation", "*"),
        ("ssm:GetParameter", "arn:member"),
        ("ssm:GetParameter", "arn:sign"),
    ]
    assert {resource for action, resource, _ in grants(ALL[name]) if action.startswith("s3:")} == {
        "arn:runs", "arn:runs/demo/*",
    }  # fmt: skip


def test_logs_and_key_are_exactly_the_given_ones() -> None:
    for name in ("node", "head"):
        statements = by_sid(ALL[name])
        assert statements["WriteLogs"]["Resource"] == "arn:logs:*"
        assert statements["WriteEvents"]["Resource"] == "arn:logs/events:*"
        assert statements["UseKey"]["Resource"] == "arn:key"
        assert statements["UseKey"]["Action"] == ["kms:Decrypt", "kms:GenerateDataKey"]
        assert statements["PullImage"]["Resource"] == "arn:repo"


@pytest.mark.parametrize("wanted", [False, True])
def test_a_node_may_end_itself_only_when_told(wanted: bool) -> None:
    (groups,) = [
        statement
        for statement in node_policy("arn:runs", "arn:repo", "demo", self_termination=wanted)["Statement"]
        if statement["Sid"] == "OwnGroups"
    ]
    assert ("autoscaling:TerminateInstanceInAutoScalingGroup" in groups["Action"]) is wanted
    assert {"autoscaling:CompleteLifecycleAction", "autoscaling:RecordLifecycleActionHeartbeat"} <= set(
        groups["Action"]
    )


def test_the_head_finds_workers_and_touches_no_group_and_no_data() -> None:
    statements = by_sid(head_policy("arn:runs", "arn:repo", "demo"))
    assert set(statements) == {
        "OwnRuns", "NamesOfOwnRuns", "PullImage", "LogInToRegistry", "FindWorkers", "SessionManager",
    }  # fmt: skip
    assert statements["FindWorkers"]["Action"] == ["ec2:DescribeInstances"]


@pytest.mark.parametrize(("component", "name"), [(NodeIdentity, "demo-node"), (HeadIdentity, "demo-head")])
def test_role_and_profile(make: Make, component: Any, name: str) -> None:
    made = make(component)
    role, policy = made.one("Role"), made.one("RolePolicy")
    (trust,) = json.loads(role.inputs["assumeRolePolicy"])["Statement"]
    assert trust == {
        "Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole",
    }  # fmt: skip
    assert policy.inputs["role"] == role.id
    assert made.one("InstanceProfile").inputs["role"] == f"${{Role.{name}.name}}"


def test_the_documents_on_the_wire_are_the_planned_ones(make: Make) -> None:
    bucket, repository = "arn:aws:s3:::runs", "arn:aws:ecr:us-east-2:1:repository/x"
    given = {
        "log_group_arn": "arn:aws:logs:us-east-2:1:log-group:x",
        "kms_key_arn": "arn:aws:kms:us-east-2:1:key/x",
        "member_key_arn": "arn:aws:ssm:us-east-2:1:parameter/gangway/test/member-key",
        "signing_key_arn": "arn:aws:ssm:us-east-2:1:parameter/gangway/test/signing-key",
    }
    node = json.loads(make(NodeIdentity).one("RolePolicy").inputs["policy"])
    assert node == node_policy(
        bucket, repository, "test", self_termination=True, **given
    )  # fmt: skip
    assert json.loads(make(HeadIdentity).one("RolePolicy").inputs["policy"]) == head_policy(
        bucket, repository, "test", **given
    )


def test_the_key_rotates_and_waits_before_it_is_gone(make: Make) -> None:
    made = make(EncryptionKey)
    key = made.one("Key").inputs
    assert (key["enableKeyRotation"], key["deletionWindowInDays"]) == (True, 30)
    assert made.one("Alias").inputs["name"] == "alias/demo-data"
    policy = json.loads(made.one("KeyPolicy").inputs["policy"])
    assert policy == key_policy("${account of Key.demo-data.arn}", "us-east-2")


def test_services_are_bound_to_the_account_and_nobody_administers_but_its_iam() -> None:
    statements = {statement["Sid"]: statement for statement in key_policy("1234", "us-east-2")["Statement"]}
    admin = statements.pop("AccountDecides")
    assert admin["Principal"] == {"AWS": "arn:aws:iam::1234:root"}
    assert set(statements) == {
        "AlarmsMayPublish", "BudgetsMayPublish", "LogsMayEncrypt", "LustreMayReachS3", "NodesMayBeLaunched",
        "VolumesMayBeAttached",
    }  # fmt: skip
    for statement in statements.values():
        assert not any("*" in action for action in statement["Action"])
        assert any("1234" in value for test in statement["Condition"].values() for value in test.values())
    assert statements["BudgetsMayPublish"]["Principal"] == {"Service": "budgets.amazonaws.com"}
    assert statements["AlarmsMayPublish"]["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert {"kms:Decrypt", "kms:GenerateDataKey"} <= set(statements["BudgetsMayPublish"]["Action"])
    open_to_all = [sid for sid, statement in statements.items() if statement["Principal"] == {"AWS": "*"}]
    assert open_to_all == ["LustreMayReachS3", "NodesMayBeLaunched", "VolumesMayBeAttached"]
    for sid in open_to_all:
        condition = statements[sid]["Condition"]
        assert condition["StringEquals"]["kms:CallerAccount"] == "1234"
        assert any("aws:PrincipalArn" in test for test in condition.values()), "bound by the ARN of the caller instead"
    assert (
        "/s3.data-source.lustre.fsx.amazonaws.com/"
        in statements["LustreMayReachS3"]["Condition"]["ArnLike"]["aws:PrincipalArn"]
    )
    assert statements["LogsMayEncrypt"]["Principal"] == {"Service": "logs.us-east-2.amazonaws.com"}


def test_auto_scaling_may_launch_nodes_whose_disks_the_key_encrypts() -> None:
    """EC2 Auto Scaling user guide, "Required AWS KMS key policy for use with encrypted volumes"."""
    statements = {statement["Sid"]: statement for statement in key_policy("1234", "us-east-2")["Statement"]}
    use, grant = statements["NodesMayBeLaunched"], statements["VolumesMayBeAttached"]
    role = "arn:aws:iam::1234:role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
    for statement in (use, grant):
        roles = statement["Condition"]["ArnEquals"]["aws:PrincipalArn"]
        assert role in roles
        assert not any("*" in arn for arn in roles)
        assert all(arn.startswith("arn:aws:iam::1234:role/aws-service-role/") for arn in roles)
    assert set(use["Action"]) == {
        "kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey", "kms:GenerateDataKeyWithoutPlaintext",
        "kms:ReEncryptFrom", "kms:ReEncryptTo",
    }  # fmt: skip
    assert grant["Action"] == ["kms:CreateGrant"]
    assert grant["Condition"]["Bool"] == {"kms:GrantIsForAWSResource": "true"}, "only EBS gets a grant, nobody else"


def test_the_policy_names_no_role_as_principal_for_a_fresh_account_has_none() -> None:
    """KMS refuses a policy whose principal does not exist."""
    named = [statement["Principal"].get("AWS") for statement in key_policy("1234", "us-east-2")["Statement"]]
    assert {"arn:aws:iam::1234:root"} <= set(named) <= {None, "*", "arn:aws:iam::1234:root"}


@pytest.mark.parametrize(
    ("arn", "account"),
    [
        ("arn:aws:sns:us-east-2:123456789012:alarms", "123456789012"),
        ("arn:aws:kms:us-east-2:123456789012:key/1-2", "123456789012"),
        ("${Topic.demo-budget.arn}", "${account of Topic.demo-budget.arn}"),
    ],
)
def test_the_account_is_read_from_an_arn_or_referred_to(arn: str, account: str) -> None:
    assert get_account(arn) == account


def test_it_is_encrypted_and_a_secret(make: Make) -> None:
    made = make(SecretParameter).one("Parameter")
    assert made.inputs["type"] == "SecureString"
    assert made.inputs["name"] == parameter_name("test", "signing-key")
    assert made.inputs["keyId"] == "arn:aws:kms:us-east-2:1:key/x"
    assert made.to_json()["inputs"]["value"] == "[secret]"
    assert "keyId" not in make(SecretParameter, kms_key_arn=None).one("Parameter").inputs
