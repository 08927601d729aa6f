"""NodeIdentity and HeadIdentity: the roles machines run as, each with no more than its own part of the job.

A node pulls its image, writes its own runs and speaks for itself to its own Auto Scaling group; the data set it reads
off the file system, and FSx alone asks S3 for it. The head node never touches groups: it keeps the rendezvous, finds
the workers and puts the run record. People get in through Session Manager; there is no SSH key anywhere.
"""

from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi_aws import iam

from components.aws.policies import SESSION_ACTIONS, Statement, allow, document, on_groups_of, trust
from components.order import after

__all__ = [
    "HeadIdentity",
    "HeadIdentityArgs",
    "NodeIdentity",
    "NodeIdentityArgs",
    "head_policy",
    "node_policy",
]


class NodeIdentityArgs(TypedDict):
    """Inputs of NodeIdentity.

    `log_group_arn` is the one log group they may write to, `kms_key_arn` the one key they may use. `self_termination`
    lets a node end itself and shrink its group.
    """

    run_bucket_arn: pulumi.Input[str]
    repository_arn: pulumi.Input[str]
    stack: str
    log_group_arn: NotRequired[pulumi.Input[str] | None]
    kms_key_arn: NotRequired[pulumi.Input[str] | None]
    self_termination: NotRequired[bool]
    tags: dict[str, str]


class HeadIdentityArgs(TypedDict):
    """Inputs of HeadIdentity. The optional ones are as for NodeIdentity."""

    run_bucket_arn: pulumi.Input[str]
    repository_arn: pulumi.Input[str]
    stack: str
    log_group_arn: NotRequired[pulumi.Input[str] | None]
    kms_key_arn: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


def node_policy(
    run_bucket_arn: str,
    repository_arn: str,
    stack: str,
    *,
    log_group_arn: str | None = None,
    kms_key_arn: str | None = None,
    self_termination: bool = False,
) -> dict[str, Any]:
    """The policy document of a node: exact prefixes, the one repository, the groups that carry the stack's tag."""
    return document(
        [
            *_own_runs(run_bucket_arn, stack),
            *_pull(repository_arn),
            # By this a node finds the group it is in.
            allow("FindOwnGroup", ["autoscaling:DescribeAutoScalingGroups"], "*"),
            _own_groups(stack, self_termination),
            _session(),
            *_optional(log_group_arn, kms_key_arn),
        ]
    )


def head_policy(
    run_bucket_arn: str,
    repository_arn: str,
    stack: str,
    *,
    log_group_arn: str | None = None,
    kms_key_arn: str | None = None,
) -> dict[str, Any]:
    """The policy document of the head node: its image, the run's prefix, and where the workers are."""
    return document(
        [
            *_own_runs(run_bucket_arn, stack),
            *_pull(repository_arn),
            allow("FindWorkers", ["ec2:DescribeInstances"], "*"),
            _session(),
            *_optional(log_group_arn, kms_key_arn),
        ]
    )


def _own_runs(run_bucket_arn: str, stack: str) -> list[Statement]:
    """Nothing is deleted: the bucket keeps every version, and a node cannot take one away.

    Without ListBucket a missing object reads as forbidden; with it on the whole bucket all names would show.
    """
    own_names = {"StringLike": {"s3:prefix": [stack, f"{stack}/*"]}}
    return [
        allow("OwnRuns", ["s3:GetObject", "s3:PutObject"], f"{run_bucket_arn}/{stack}/*"),
        allow("NamesOfOwnRuns", ["s3:ListBucket"], run_bucket_arn, own_names),
    ]


def _pull(repository_arn: str) -> list[Statement]:
    pull = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
    return [allow("PullImage", pull, repository_arn), allow("LogInToRegistry", ["ecr:GetAuthorizationToken"], "*")]


def _session() -> Statement:
    """Session Manager, by which people get in."""
    return allow("SessionManager", list(SESSION_ACTIONS), "*")


def _own_groups(stack: str, self_termination: bool) -> Statement:
    """A node's word about itself, to its own group."""
    actions = [
        "autoscaling:CompleteLifecycleAction",
        "autoscaling:RecordLifecycleActionHeartbeat",
        "autoscaling:SetInstanceHealth",
        # The alarms that would fill a lower rung for a job that has ended, whether its nodes stay or leave.
        "autoscaling:SuspendProcesses",
        *(["autoscaling:TerminateInstanceInAutoScalingGroup"] if self_termination else []),
    ]
    return on_groups_of(stack, "OwnGroups", actions)


def _optional(log_group_arn: str | None, kms_key_arn: str | None) -> list[Statement]:
    logs, key = ["logs:CreateLogStream", "logs:PutLogEvents"], ["kms:Decrypt", "kms:GenerateDataKey"]
    return [
        *([allow("WriteLogs", logs, f"{log_group_arn}:*")] if log_group_arn else []),
        *([allow("UseKey", key, kms_key_arn)] if kms_key_arn else []),
    ]


def _profile(
    name: str,
    suffix: str,
    policy: pulumi.Output[dict[str, Any]],
    tags: dict[str, str],
    child: pulumi.ResourceOptions,
) -> tuple[pulumi.Output[str], pulumi.Output[str]]:
    """A role that only EC2 instances may take, with `policy`.

    Returns:
        The role's name, and the profile's ARN, which waits for the permissions: a machine that takes it has them from
        its first second, and keeps them while it leaves.
    """
    role = iam.Role(
        f"{name}-{suffix}",
        assume_role_policy=pulumi.Output.json_dumps(trust("ec2.amazonaws.com")),
        tags=tags,
        opts=child,
    )
    own = iam.RolePolicy(f"{name}-{suffix}", role=role.id, policy=pulumi.Output.json_dumps(policy), opts=child)
    profile = iam.InstanceProfile(f"{name}-{suffix}", role=role.name, tags=tags, opts=child)
    return role.name, after(profile.arn, own)


class NodeIdentity(pulumi.ComponentResource):
    """Role, policy and instance profile of the nodes."""

    instance_profile_arn: pulumi.Output[str]
    role_name: pulumi.Output[str]

    def __init__(self, name: str, args: NodeIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:NodeIdentity", name, None, opts)
        policy = pulumi.Output.all(
            args["run_bucket_arn"], args["repository_arn"], args.get("log_group_arn"), args.get("kms_key_arn")
        ).apply(
            lambda arns: node_policy(
                arns[0],
                arns[1],
                args["stack"],
                log_group_arn=arns[2],
                kms_key_arn=arns[3],
                self_termination=args.get("self_termination", False),
            )
        )
        child = pulumi.ResourceOptions(parent=self)
        self.role_name, self.instance_profile_arn = _profile(name, "node", policy, args["tags"], child)
        self.register_outputs({"instance_profile_arn": self.instance_profile_arn, "role_name": self.role_name})


class HeadIdentity(pulumi.ComponentResource):
    """Role, policy and instance profile of the head node."""

    instance_profile_arn: pulumi.Output[str]
    role_name: pulumi.Output[str]

    def __init__(self, name: str, args: HeadIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:HeadIdentity", name, None, opts)
        policy = pulumi.Output.all(
            args["run_bucket_arn"], args["repository_arn"], args.get("log_group_arn"), args.get("kms_key_arn")
        ).apply(lambda arns: head_policy(arns[0], arns[1], args["stack"], log_group_arn=arns[2], kms_key_arn=arns[3]))
        child = pulumi.ResourceOptions(parent=self)
        self.role_name, self.instance_profile_arn = _profile(name, "head", policy, args["tags"], child)
        self.register_outputs({"instance_profile_arn": self.instance_profile_arn, "role_name": self.role_name})
