"""EncryptionKey: one customer-managed KMS key for everything a stack stores, where AWS's own keys are not enough.

Optional, about one dollar a month: without it every service encrypts with keys of its own. The services that act
without a caller's permissions (logs, budgets, FSx reading and writing S3) are named in the key's policy, each bound to
this account. Not a place for other secrets.
"""

from typing import Any, TypedDict

import pulumi
from pulumi_aws import kms

from components.aws.names import account_of

__all__ = ["EncryptionKey", "EncryptionKeyArgs", "key_policy"]

# Destroying the stack leaves this time to notice that something encrypted is still wanted; KMS allows 7 to 30.
DELETION_DAYS = 30
FSX_LINK_ROLES = "aws-service-role/s3.data-source.lustre.fsx.amazonaws.com/*"
PUBLISH = ["kms:Decrypt", "kms:GenerateDataKey"]
ENCRYPT = [*PUBLISH, "kms:DescribeKey", "kms:Encrypt", "kms:ReEncryptFrom", "kms:ReEncryptTo"]


class EncryptionKeyArgs(TypedDict):
    """Inputs of EncryptionKey."""

    region: str
    tags: dict[str, str]


def key_policy(account: str, region: str) -> dict[str, Any]:
    """The key's policy: the account's own IAM policies decide, and three services may use it for this account.

    In a key's policy, resource `*` means the key itself.
    """
    here = {"StringEquals": {"aws:SourceAccount": account}}
    log_groups = {"ArnLike": {"kms:EncryptionContext:aws:logs:arn": f"arn:aws:logs:{region}:{account}:log-group:*"}}
    # FSx makes a role for each link to S3; a principal takes no wildcard, a condition does.
    links = {
        "StringEquals": {"kms:CallerAccount": account, "kms:ViaService": f"s3.{region}.amazonaws.com"},
        "ArnLike": {"aws:PrincipalArn": f"arn:aws:iam::{account}:role/{FSX_LINK_ROLES}"},
    }
    statements = [
        ("AccountDecides", {"AWS": f"arn:aws:iam::{account}:root"}, ["kms:*"], None),
        # Budgets cannot publish to a topic under AWS's own SNS key, only under one that names it.
        ("BudgetsMayPublish", {"Service": "budgets.amazonaws.com"}, PUBLISH, here),
        ("AlarmsMayPublish", {"Service": "cloudwatch.amazonaws.com"}, PUBLISH, here),
        ("LogsMayEncrypt", {"Service": f"logs.{region}.amazonaws.com"}, ENCRYPT, log_groups),
        ("LustreMayReachS3", {"AWS": "*"}, ENCRYPT, links),
    ]
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": sid,
                "Effect": "Allow",
                "Principal": principal,
                "Action": actions,
                "Resource": "*",
                **({"Condition": condition} if condition else {}),
            }
            for sid, principal, actions, condition in statements
        ],
    }


class EncryptionKey(pulumi.ComponentResource):
    """A rotating KMS key with an alias, usable by the services of the stack."""

    key_arn: pulumi.Output[str]

    def __init__(self, name: str, args: EncryptionKeyArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:EncryptionKey", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        key = kms.Key(
            f"{name}-data",
            description=f"{name}: run records, checkpoints, logs and alarms",
            enable_key_rotation=True,
            deletion_window_in_days=DELETION_DAYS,
            tags=args["tags"],
            opts=child,
        )
        kms.Alias(f"{name}-data", name=f"alias/{name}-data", target_key_id=key.id, opts=child)
        # A resource of its own, because the policy needs the account's number, which the key's ARN tells.
        policy = kms.KeyPolicy(
            f"{name}-data",
            key_id=key.id,
            policy=pulumi.Output.json_dumps(key.arn.apply(lambda arn: key_policy(account_of(arn), args["region"]))),
            opts=child,
        )
        # Whoever takes the ARN from here waits until the services may use the key.
        self.key_arn = pulumi.Output.all(key.arn, policy.id).apply(lambda ready: str(ready[0]))
        self.register_outputs({"key_arn": self.key_arn})
