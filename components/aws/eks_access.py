"""Permissions in an EKS cluster: roles of the control plane, of machines, and of the pods that call AWS."""

from collections.abc import Sequence
from typing import Any

import pulumi
from pulumi_aws import iam

from gangway.components.aws.identity import (
    SESSION_ACTIONS,
    Statement,
    allow,
    allow_on_groups,
    document,
    get_partition,
    trust,
)
from gangway.components.core.dependencies import after

__all__ = [
    "CNI_POLICY",
    "autoscaler_policy",
    "cluster_role",
    "machine_profile",
    "machine_role",
    "pod_role",
    "pod_trust",
]

CLUSTER_POLICY = "AmazonEKSClusterPolicy"
MACHINE_POLICIES = ("AmazonEC2ContainerRegistryPullOnly", "AmazonEKSWorkerNodePolicy")
"""Policies of a machine (EKS user guide, "Amazon EKS node IAM role"), out of its pods' reach."""
CNI_POLICY = "AmazonEKS_CNI_Policy"
_READ_ACTIONS = (
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:DescribeAutoScalingInstances",
    "autoscaling:DescribeLaunchConfigurations",
    "autoscaling:DescribeScalingActivities",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeLaunchTemplateVersions",
    "ec2:GetInstanceTypesFromInstanceRequirements",
)
"""The autoscaler's read actions: none supports a narrower resource."""
_SIZE_ACTIONS = ("autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup")


def pod_trust(cluster_arn: str, account: tuple[str, str]) -> dict[str, Any]:
    """Let EKS Pod Identity assume a role for the pods of one service account (namespace, name) of one cluster.

    Without the conditions an association in any cluster of the AWS account could name the role.
    """
    tags = ("eks-cluster-arn", "kubernetes-namespace", "kubernetes-service-account")
    wanted = {f"aws:RequestTag/{tag}": value for tag, value in zip(tags, (cluster_arn, *account), strict=True)}
    allowed: Statement = {
        "Effect": "Allow",
        "Principal": {"Service": "pods.eks.amazonaws.com"},
        "Action": ["sts:AssumeRole", "sts:TagSession"],
        "Condition": {"StringEquals": wanted},
    }
    return document([allowed])


def autoscaler_policy(stack: str, beside: str) -> dict[str, Any]:
    """Read groups, and resize those with the stack's tag. `beside`: an ARN of the partition."""
    return document(
        [
            allow("LookAtGroups", list(_READ_ACTIONS), "*"),
            allow_on_groups(stack, "SetSizes", list(_SIZE_ACTIONS), beside),
        ]
    )


def cluster_role(name: str, tags: dict[str, str], opts: pulumi.ResourceOptions) -> pulumi.Output[str]:
    """ARN of the control plane's role, which waits for the permissions."""
    return _role(f"{name}-control-plane", trust("eks.amazonaws.com"), (CLUSTER_POLICY,), tags, opts)[1]


def machine_role(name: str, tags: dict[str, str], opts: pulumi.ResourceOptions) -> tuple[iam.Role, pulumi.Output[str]]:
    """Role of system nodes and workers, and its ARN, which waits for the permissions."""
    role, arn = _role(f"{name}-machine", trust("ec2.amazonaws.com"), MACHINE_POLICIES, tags, opts)
    session = iam.RolePolicy(
        f"{name}-machine",
        role=role.id,
        policy=pulumi.Output.json_dumps(document([allow("SessionManager", list(SESSION_ACTIONS), "*")])),
        opts=opts,
    )
    return role, after(arn, session)


def machine_profile(
    name: str, role: iam.Role, role_arn: pulumi.Output[str], tags: dict[str, str], opts: pulumi.ResourceOptions
) -> pulumi.Output[str]:
    """ARN of the workers' instance profile, which waits for the role's permissions."""
    profile = iam.InstanceProfile(f"{name}-machine", role=role.name, tags=tags, opts=opts)
    return after(profile.arn, role_arn)


def pod_role(
    name: str,
    policy: pulumi.Output[dict[str, Any]] | str,
    cluster_arn: pulumi.Output[str],
    account: tuple[str, str],
    tags: dict[str, str],
    opts: pulumi.ResourceOptions,
) -> pulumi.Output[str]:
    """ARN of a pod role, which waits for its permissions. `policy`: a document, or an AWS managed policy's name."""
    trusted = cluster_arn.apply(lambda arn: pod_trust(arn, account))
    role, arn = _role(name, trusted, (policy,) if isinstance(policy, str) else (), tags, opts)
    if isinstance(policy, str):
        return arn
    own = iam.RolePolicy(name, role=role.id, policy=pulumi.Output.json_dumps(policy), opts=opts)
    return after(arn, own)


def _role(
    name: str,
    trusted: pulumi.Input[dict[str, Any]],
    policies: Sequence[str],
    tags: dict[str, str],
    opts: pulumi.ResourceOptions,
) -> tuple[iam.Role, pulumi.Output[str]]:
    role = iam.Role(name, assume_role_policy=pulumi.Output.json_dumps(trusted), tags=tags, opts=opts)
    attached = [
        iam.RolePolicyAttachment(
            f"{name}-{policy}",
            role=role.name,
            policy_arn=pulumi.Output.concat("arn:", role.arn.apply(get_partition), f":iam::aws:policy/{policy}"),
            opts=opts,
        )
        for policy in policies
    ]
    return role, after(role.arn, *attached)
