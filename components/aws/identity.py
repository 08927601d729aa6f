"""AWS permissions and encryption: least-privilege roles, KMS keys, keys in Parameter Store."""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi_aws import iam, kms, ssm

from gangway.components.aws.alarms import events_group
from gangway.components.core.keys import KEY_USES
from gangway.components.core.outputs import after, register_outputs

# Time to notice that encrypted data is still needed after a destroy; KMS allows 7 to 30.
DELETION_DAYS = 30
FSX_LINK_ROLES = "aws-service-role/s3.data-source.lustre.fsx.amazonaws.com/*"
# The service-linked roles that launch nodes: of Auto Scaling groups, fleets and spot requests.
LAUNCH_ROLES = (
    "autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling",
    "ec2fleet.amazonaws.com/AWSServiceRoleForEC2Fleet",
    "spot.amazonaws.com/AWSServiceRoleForEC2Spot",
    "spotfleet.amazonaws.com/AWSServiceRoleForEC2SpotFleet",
)
PARTITIONS: Mapping[str, str] = {"us-gov-": "aws-us-gov", "cn-": "aws-cn"}  # by prefix of the region; others: `aws`
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
    """The account's IAM policies decide, and some services may use the key for it. Resource `*` is the key itself.
    Volumes: EC2 Auto Scaling user guide, "Required AWS KMS key policy for use with encrypted volumes".
    """
    partition, here = partition_in(region), {"StringEquals": {"aws:SourceAccount": account}}
    log_groups = {
        "ArnLike": {"kms:EncryptionContext:aws:logs:arn": f"arn:{partition}:logs:{region}:{account}:log-group:*"}
    }
    # FSx creates a role per link to S3; a principal takes no wildcard, a condition does.
    links = {
        "StringEquals": {"kms:CallerAccount": account, "kms:ViaService": f"s3.{region}.amazonaws.com"},
        "ArnLike": {"aws:PrincipalArn": f"arn:{partition}:iam::{account}:role/{FSX_LINK_ROLES}"},
    }
    # The roles that launch nodes are in a condition: KMS refuses a principal that does not exist, and in a new account
    # Auto Scaling's role is created with the first group. The account as principal would not do: it delegates to IAM
    # policies, and AWS's own policies of service-linked roles do not name our keys.
    launching = {
        "StringEquals": {"kms:CallerAccount": account},
        "ArnEquals": {
            "aws:PrincipalArn": [
                f"arn:{partition}:iam::{account}:role/aws-service-role/{role}" for role in LAUNCH_ROLES
            ]
        },
    }
    for_volumes = {**launching, "Bool": {"kms:GrantIsForAWSResource": "true"}}
    statements = [
        ("AccountDecides", {"AWS": f"arn:{partition}:iam::{account}:root"}, ["kms:*"], None),
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


def key_alias(stack: str) -> str:
    """The alias of a stack's key, which stays with the key while run records need it."""
    return f"alias/{stack}-data"


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
        alias = kms.Alias(f"{name}-data", name=key_alias(name), target_key_id=key.id, opts=child)
        # A separate resource, since the policy needs the account number from the key's ARN.
        policy = kms.KeyPolicy(
            f"{name}-data",
            key_id=key.id,
            policy=pulumi.Output.json_dumps(key.arn.apply(lambda arn: key_policy(get_account(arn), args["region"]))),
            opts=child,
        )
        # Consumers wait until the services may use the key, and are deleted before it.
        self.key_arn = after(key.arn, policy, alias)
        register_outputs(self)


def get_account(arn: str) -> str:
    """The account number in `arn`; in a plan, which has references instead of ARNs, a reference to it.

    >>> get_account("arn:aws:sns:us-east-2:123456789012:alarms")
    '123456789012'
    """
    parts = arn.split(":")
    return parts[4] if len(parts) > 5 else f"${{account of {arn.strip('${}')}}}"


def get_partition(arn: str) -> str:
    """The partition in `arn`; `aws` for a reference in a plan.

    >>> get_partition("arn:aws-us-gov:s3:::runs"), get_partition("${Bucket.demo.arn}")
    ('aws-us-gov', 'aws')
    """
    return arn.split(":")[1] if arn.startswith("arn:") else "aws"


def partition_in(region: str) -> str:
    """The partition of a region: AWS General Reference, "Amazon Resource Names (ARNs)".

    >>> partition_in("us-gov-west-1"), partition_in("cn-north-1"), partition_in("eu-west-1")
    ('aws-us-gov', 'aws-cn', 'aws')
    """
    return next((name for start, name in PARTITIONS.items() if region.startswith(start)), "aws")


def dns_suffix(region: str) -> str:
    """How names of AWS's services end in a region.

    >>> dns_suffix("cn-north-1"), dns_suffix("eu-west-1")
    ('amazonaws.com.cn', 'amazonaws.com')
    """
    return "amazonaws.com.cn" if partition_in(region) == "aws-cn" else "amazonaws.com"


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
"""What Session Manager needs of AWS's AmazonSSMManagedInstanceCore (v2), with ec2messages for older agents. Not the
rest: it reads every parameter of the account, and training code has the node's rights.
"""

GROUP_ACTIONS = (
    "autoscaling:CompleteLifecycleAction",
    "autoscaling:RecordLifecycleActionHeartbeat",
    "autoscaling:SetInstanceHealth",
    # The alarms would fill a lower rung for a job that has ended, whether its nodes stay or leave.
    "autoscaling:SuspendProcesses",
)  # a node's actions on its own group

LEAVE_ACTION = "autoscaling:TerminateInstanceInAutoScalingGroup"  # for a node that ends with its job

KEY_ACTIONS = ("ssm:GetParameter",)
LOG_ACTIONS = ("logs:CreateLogStream", "logs:PutLogEvents")
PULL_ACTIONS = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")

OPEN_RESOURCES: Mapping[str, str] = {
    "autoscaling:DescribeAutoScalingGroups": "Auto Scaling has no narrower resource for describing; it only reads",
    "ec2:DescribeInstances": "EC2 has no narrower resource for describing; it only reads",
    "ecr:GetAuthorizationToken": "ECR hands out tokens for the whole registry; what may be pulled is limited apart",
    **dict.fromkeys(SESSION_ACTIONS, "the agent's word about its own machine; AWS's policies name nothing narrower"),
}  # every action that our policies allow on resource `*`, and why there is nothing narrower


def document(statements: Sequence[Statement]) -> dict[str, Any]:
    """A policy document."""
    return {"Version": "2012-10-17", "Statement": list(statements)}


def allow(sid: str, actions: list[str], resource: str, condition: Mapping[str, Any] | None = None) -> Statement:
    """One permission."""
    allowed: Statement = {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resource}
    return {**allowed, "Condition": condition} if condition else allowed


def allow_on_groups(stack: str, sid: str, actions: list[str], stack_arn: str) -> Statement:
    """Allow `actions` on groups with the stack's tag, in the partition of `stack_arn`. Names may share a prefix."""
    groups = f"arn:{get_partition(stack_arn)}:autoscaling:*:*:autoScalingGroup:*:autoScalingGroupName/{stack}-*"
    return allow(sid, actions, groups, {"StringEquals": {"autoscaling:ResourceTag/gangway:stack": stack}})


def trust(service: str, condition: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A document that lets only an AWS service assume a role."""
    allowed: Statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    return document([{**allowed, "Condition": condition} if condition else allowed])


class HeadIdentityArgs(TypedDict):
    """Inputs of HeadIdentity. The optional ones are as for NodeIdentity."""

    run_bucket_arn: pulumi.Input[str]
    repository_arn: pulumi.Input[str]
    stack: str
    log_group_arn: NotRequired[pulumi.Input[str] | None]
    kms_key_arn: NotRequired[pulumi.Input[str] | None]
    member_key_arn: NotRequired[pulumi.Input[str] | None]
    signing_key_arn: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


class NodeIdentityArgs(HeadIdentityArgs):
    """Inputs of NodeIdentity. `log_group_arn` and its events' group may be written to; `kms_key_arn` is the only usable
    key, `member_key_arn` and `signing_key_arn` are readable parameters. `self_termination` lets a node end itself and
    shrink its group.
    """

    self_termination: NotRequired[bool]


def node_policy(
    run_bucket_arn: str, repository_arn: str, stack: str, *, self_termination: bool = False, **optional: str | None
) -> dict[str, Any]:
    """The policy document of a node: exact prefixes, the one repository, the groups with the stack's tag."""
    actions = [*GROUP_ACTIONS, *([LEAVE_ACTION] if self_termination else [])]
    return document(
        [
            *_own_runs(run_bucket_arn, stack),
            *_pull(repository_arn),
            # A node finds its own group with this.
            allow("FindOwnGroup", ["autoscaling:DescribeAutoScalingGroups"], "*"),
            allow_on_groups(stack, "OwnGroups", actions, run_bucket_arn),
            _session(),
            *_optional(**optional),
        ]
    )


def head_policy(run_bucket_arn: str, repository_arn: str, stack: str, **optional: str | None) -> dict[str, Any]:
    """The policy document of the head node: its image, the run's prefix, and discovery of the workers."""
    return document(
        [
            *_own_runs(run_bucket_arn, stack),
            *_pull(repository_arn),
            allow("FindWorkers", ["ec2:DescribeInstances"], "*"),
            _session(),
            *_optional(**optional),
        ]
    )


def _own_runs(run_bucket_arn: str, stack: str) -> list[Statement]:
    """Nothing may be deleted: the bucket keeps every version. Without ListBucket a missing object reads as forbidden;
    on the whole bucket it would show all names.
    """
    own_names = {"StringLike": {"s3:prefix": [stack, f"{stack}/*"]}}
    return [
        allow("OwnRuns", ["s3:GetObject", "s3:PutObject"], f"{run_bucket_arn}/{stack}/*"),
        allow("NamesOfOwnRuns", ["s3:ListBucket"], run_bucket_arn, own_names),
    ]


def _pull(repository_arn: str) -> list[Statement]:
    return [
        allow("PullImage", list(PULL_ACTIONS), repository_arn),
        allow("LogInToRegistry", ["ecr:GetAuthorizationToken"], "*"),
    ]


def _session() -> Statement:
    return allow("SessionManager", list(SESSION_ACTIONS), "*")


def _write_logs(log_group_arn: str) -> list[Statement]:
    return [
        allow("WriteLogs", list(LOG_ACTIONS), f"{log_group_arn}:*"),
        allow("WriteEvents", list(LOG_ACTIONS), f"{events_group(log_group_arn)}:*"),
    ]


def _optional(
    *,
    log_group_arn: str | None = None,
    kms_key_arn: str | None = None,
    member_key_arn: str | None = None,
    signing_key_arn: str | None = None,
) -> list[Statement]:
    return [
        *(_write_logs(log_group_arn) if log_group_arn else []),
        *([allow("UseKey", ["kms:Decrypt", "kms:GenerateDataKey"], kms_key_arn)] if kms_key_arn else []),
        *([allow("MemberKey", list(KEY_ACTIONS), member_key_arn)] if member_key_arn else []),
        *([allow("SigningKey", list(KEY_ACTIONS), signing_key_arn)] if signing_key_arn else []),
    ]


def declare_role(
    name: str,
    trusted: pulumi.Input[dict[str, Any]],
    policy: pulumi.Input[dict[str, Any]],
    tags: dict[str, str],
    opts: pulumi.ResourceOptions,
) -> tuple[iam.Role, iam.RolePolicy]:
    """A role and its only policy; `trusted`: who may assume it."""
    role = iam.Role(name, assume_role_policy=pulumi.Output.json_dumps(trusted), tags=tags, opts=opts)
    return role, iam.RolePolicy(name, role=role.id, policy=pulumi.Output.json_dumps(policy), opts=opts)


def instance_profile(
    name: str,
    suffix: str,
    policy: pulumi.Output[dict[str, Any]],
    tags: dict[str, str],
    child: pulumi.ResourceOptions,
) -> tuple[pulumi.Output[str], pulumi.Output[str]]:
    """A role only for EC2 -> its name, and the profile's ARN, which waits for the permissions."""
    role, own = declare_role(f"{name}-{suffix}", trust("ec2.amazonaws.com"), policy, tags, child)
    profile = iam.InstanceProfile(f"{name}-{suffix}", role=role.name, tags=tags, opts=child)
    return role.name, after(profile.arn, own)


def _named(args: HeadIdentityArgs) -> pulumi.Output[dict[str, Any]]:
    return pulumi.Output.all(
        run_bucket_arn=args["run_bucket_arn"],
        repository_arn=args["repository_arn"],
        log_group_arn=args.get("log_group_arn"),
        kms_key_arn=args.get("kms_key_arn"),
        member_key_arn=args.get("member_key_arn"),
        signing_key_arn=args.get("signing_key_arn"),
    )


class NodeIdentity(pulumi.ComponentResource):
    """Role, policy and instance profile of the nodes."""

    instance_profile_arn: pulumi.Output[str]
    role_name: pulumi.Output[str]

    def __init__(self, name: str, args: NodeIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:NodeIdentity", name, None, opts)
        leaves = args.get("self_termination", False)
        policy = _named(args).apply(lambda arns: node_policy(**arns, stack=args["stack"], self_termination=leaves))
        child = pulumi.ResourceOptions(parent=self)
        self.role_name, self.instance_profile_arn = instance_profile(name, "node", policy, args["tags"], child)
        register_outputs(self)


class HeadIdentity(pulumi.ComponentResource):
    """Role, policy and instance profile of the head node."""

    instance_profile_arn: pulumi.Output[str]
    role_name: pulumi.Output[str]

    def __init__(self, name: str, args: HeadIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:HeadIdentity", name, None, opts)
        policy = _named(args).apply(lambda arns: head_policy(**arns, stack=args["stack"]))
        child = pulumi.ResourceOptions(parent=self)
        self.role_name, self.instance_profile_arn = instance_profile(name, "head", policy, args["tags"], child)
        register_outputs(self)


class SecretParameterArgs(TypedDict):
    """Inputs of SecretParameter. `kms_key_arn` replaces AWS's own key. `what`: one of KEY_USES, whose key `pem` is."""

    what: str
    pem: pulumi.Input[str]
    stack: str
    kms_key_arn: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


def parameter_name(stack: str, what: str) -> str:
    """The parameter's name, as nodes request it.

    >>> parameter_name("demo", "member-key")
    '/gangway/demo/member-key'
    """
    return f"/gangway/{stack}/{what}"


class SecretParameter(pulumi.ComponentResource):
    """An encrypted parameter. Standard ones cost nothing (AWS Systems Manager pricing, "Parameter Store")."""

    name: pulumi.Output[str]
    arn: pulumi.Output[str]

    def __init__(self, name: str, args: SecretParameterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        what = args["what"]
        super().__init__("gangway:aws:SecretParameter", name, None, opts)
        parameter = ssm.Parameter(
            name,
            name=parameter_name(args["stack"], what),
            description=KEY_USES[what],
            type="SecureString",
            value=pulumi.Output.secret(args["pem"]),
            key_id=args.get("kms_key_arn"),
            tags=args["tags"],
            opts=pulumi.ResourceOptions(parent=self),
        )
        # Consumers of the name wait until the parameter is readable.
        self.name, self.arn = after(parameter.name, parameter), parameter.arn
        register_outputs(self)
