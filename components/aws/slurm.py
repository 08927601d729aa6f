"""SlurmIdentity: permissions of Slurm machines. The controller sizes the stack's groups, names and ends machines."""

from typing import Any, NotRequired, TypedDict

import pulumi

from gangway.components.aws.alarms import events_group
from gangway.components.aws.identity import (
    GROUP_ACTIONS,
    KEY_ACTIONS,
    LOG_ACTIONS,
    SESSION_ACTIONS,
    Statement,
    allow,
    allow_on_groups,
    document,
    get_partition,
    instance_profile,
)
from gangway.components.core.outputs import register_outputs

NODE_TAG = "gangway:slurm-node"  # tag with a machine's Slurm node name (gangway.images.node.aws.slurm_scaler)
SIZE_ACTIONS = (
    "autoscaling:SetDesiredCapacity",
    "autoscaling:TerminateInstanceInAutoScalingGroup",
)
NODE_GROUP_ACTIONS = tuple(action for action in GROUP_ACTIONS if action != "autoscaling:SuspendProcesses")
"""A node's actions on its own group, without those that end a queue for all."""


class SlurmIdentityArgs(TypedDict):
    """Inputs of SlurmIdentity. `role`: head or node; `munge_key_arn`: the parameter with the cluster's key, read by
    both; `kms_key_arn`: the stack's key that encrypts it, if any; `log_group_arn`: nodes write to its events.
    """

    role: str
    stack: str
    munge_key_arn: pulumi.Input[str]
    kms_key_arn: NotRequired[pulumi.Input[str] | None]
    log_group_arn: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


def slurm_head_policy(munge_key_arn: str, stack: str, kms_key_arn: str | None = None) -> dict[str, Any]:
    """The policy document of the controller."""
    machines = f"arn:{get_partition(munge_key_arn)}:ec2:*:*:instance/*"
    own_machines = {
        "StringEquals": {"aws:ResourceTag/gangway:stack": stack},
        "ForAllValues:StringEquals": {"aws:TagKeys": [NODE_TAG]},
    }
    return document(
        [
            allow("FindGroups", ["autoscaling:DescribeAutoScalingGroups"], "*"),
            allow("FindMachines", ["ec2:DescribeInstances"], "*"),
            allow_on_groups(stack, "Sizes", list(SIZE_ACTIONS), munge_key_arn),
            allow("NameMachines", ["ec2:CreateTags"], machines, own_machines),
            *_common(munge_key_arn, kms_key_arn),
        ]
    )


def slurm_node_policy(
    munge_key_arn: str, stack: str, kms_key_arn: str | None = None, log_group_arn: str | None = None
) -> dict[str, Any]:
    """The policy document of a node."""
    return document(
        [
            allow("FindOwnGroup", ["autoscaling:DescribeAutoScalingGroups"], "*"),
            allow_on_groups(stack, "OwnGroups", list(NODE_GROUP_ACTIONS), munge_key_arn),
            *([allow("WriteEvents", list(LOG_ACTIONS), f"{events_group(log_group_arn)}:*")] if log_group_arn else []),
            *_common(munge_key_arn, kms_key_arn),
        ]
    )


def _common(munge_key_arn: str, kms_key_arn: str | None) -> list[Statement]:
    return [
        allow("SessionManager", list(SESSION_ACTIONS), "*"),
        allow("MungeKey", list(KEY_ACTIONS), munge_key_arn),
        *([allow("UseKey", ["kms:Decrypt"], kms_key_arn)] if kms_key_arn else []),
    ]


class SlurmIdentity(pulumi.ComponentResource):
    """Role, policy and instance profile of the controller, or of the nodes."""

    instance_profile_arn: pulumi.Output[str]
    role_name: pulumi.Output[str]

    def __init__(self, name: str, args: SlurmIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:SlurmIdentity", name, None, opts)
        made = {"head": slurm_head_policy, "node": slurm_node_policy}[args["role"]]
        named = {"munge_key_arn": args["munge_key_arn"], "kms_key_arn": args.get("kms_key_arn")}
        named |= {"log_group_arn": args.get("log_group_arn")} if args["role"] == "node" else {}
        policy = pulumi.Output.all(**named).apply(lambda arns: made(**arns, stack=args["stack"]))
        child = pulumi.ResourceOptions(parent=self)
        self.role_name, self.instance_profile_arn = instance_profile(
            name, f"slurm-{args['role']}", policy, args["tags"], child
        )
        register_outputs(self)
