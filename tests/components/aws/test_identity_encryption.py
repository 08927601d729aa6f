"""EncryptionKey: it rotates, it has a name, and each service may use it only for this account."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.aws.identity import EncryptionKey, get_account, key_policy


def test_the_key_rotates_and_waits_before_it_is_gone(make: Callable[..., Any]) -> None:
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
    assert set(named) <= {None, "*", "arn:aws:iam::1234:root"}


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
