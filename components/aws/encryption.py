"""EncryptionKey: one customer-managed KMS key for everything a stack stores, where AWS's own keys are not enough.

Optional, about one dollar a month: without it every service encrypts with keys of its own. The services that act
without a caller's permissions (logs, budgets, FSx reading and writing S3, Auto Scaling launching nodes) are named in
the key's policy, each bound to this account. Not a place for other secrets.
"""

from typing import Any, TypedDict

import pulumi
from pulumi_aws import kms

from components.aws.names import account_of
from components.order import after

__all__ = ["EncryptionKey", "EncryptionKeyArgs", "key_policy"]

# Destroying the stack leaves this time to notice that something encrypted is still wanted; KMS allows 7 to 30.
DELETION_DAYS = 30
FSX_LINK_ROLES = "aws-service-role/s3.data-source.lustre.fsx.amazonaws.com/*"
# The service-linked roles that launch nodes: of Auto Scaling groups, and of the fleets and the spot requests they make.
LAUNCH_ROLES = (
    "autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling",
    "ec2fleet.amazonaws.com/AWSServiceRoleForEC2Fleet",
    "spot.amazonaws.com/AWSServiceRoleForEC2Spot",
    "spotfleet.amazonaws.com/AWSServiceRoleForEC2SpotFleet",
)
PUBLISH = ["kms:Decrypt", "kms:GenerateDataKey"]
ENCRYPT = [
    *PUBLISH,
    "kms:DescribeKey",
    "kms:Encrypt",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
]


class EncryptionKeyArgs(TypedDict):
    """Inputs of EncryptionKey."""

    region: str
    tags: dict[str, str]


def key_policy(account: str, region: str) -> dict[str, Any]:
    """The key's policy: the account's own IAM policies decide, and some services may use it for this account.

    In a key's policy, resource `*` means the key itself. The statements for volumes are those of the EC2 Auto Scaling
    user guide, "Required AWS KMS key policy for use with encrypted volumes".
    """
    here = {"StringEquals": {"aws:SourceAccount": account}}
    log_groups = {"ArnLike": {"kms:EncryptionContext:aws:logs:arn": f"arn:aws:logs:{region}:{account}:log-group:*"}}
    # FSx makes a role for each link to S3; a principal takes no wildcard, a condition does.
    links = {
        "StringEquals": {"kms:CallerAccount": account, "kms:ViaService": f"s3.{region}.amazonaws.com"},
        "ArnLike": {"aws:PrincipalArn": f"arn:aws:iam::{account}:role/{FSX_LINK_ROLES}"},
    }
    # The roles that launch nodes stand in a condition: KMS refuses a principal that does not exist, and in a fresh
    # account Auto Scaling's role comes only with the first group. The account as the principal would not do: it leaves
    # the decision to IAM policies, and those of a service-linked role are AWS's own and say nothing of our keys.
    launching = {
        "StringEquals": {"kms:CallerAccount": account},
        "ArnEquals": {
            "aws:PrincipalArn": [f"arn:aws:iam::{account}:role/aws-service-role/{role}" for role in LAUNCH_ROLES]
        },
    }
    for_volumes = {**launching, "Bool": {"kms:GrantIsForAWSResource": "true"}}
    statements = [
        ("AccountDecides", {"AWS": f"arn:aws:iam::{account}:root"}, ["kms:*"], None),
        # Budgets cannot publish to a topic under AWS's own SNS key, only under one that names it.
        ("BudgetsMayPublish", {"Service": "budgets.amazonaws.com"}, PUBLISH, here),
        ("AlarmsMayPublish", {"Service": "cloudwatch.amazonaws.com"}, PUBLISH, here),
        ("LogsMayEncrypt", {"Service": f"logs.{region}.amazonaws.com"}, ENCRYPT, log_groups),
        ("LustreMayReachS3", {"AWS": "*"}, ENCRYPT, links),
        ("NodesMayBeLaunched", {"AWS": "*"}, ENCRYPT, launching),
        ("VolumesMayBeAttached", {"AWS": "*"}, ["kms:CreateGrant"], for_volumes),
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
        self.key_arn = after(key.arn, policy)
        self.register_outputs({"key_arn": self.key_arn})
