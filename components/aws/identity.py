"""NodeIdentity: the role a node runs as, with no more than pulling its image, reading data and writing its own runs.

People get in through Session Manager (the managed SSM core policy); there is no SSH key anywhere.
"""

from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi_aws import iam

__all__ = ["NodeIdentity", "NodeIdentityArgs", "node_policy"]

SSM_CORE_POLICY = "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"


class NodeIdentityArgs(TypedDict):
    """Inputs of NodeIdentity. `data_source` is the `s3://bucket/prefix` nodes may read."""

    run_bucket_arn: pulumi.Input[str]
    repository_arn: pulumi.Input[str]
    stack: str
    data_source: NotRequired[str | None]
    tags: dict[str, str]


def node_policy(run_bucket_arn: str, repository_arn: str, stack: str, data_source: str | None) -> dict[str, Any]:
    """The policy document: exact prefixes, the one repository, health of the groups that carry the stack's tag."""
    objects = [
        {"Effect": "Allow", "Action": ["s3:GetObject", "s3:PutObject"], "Resource": f"{run_bucket_arn}/{stack}/*"}
    ]
    if data_source:
        path = data_source.removeprefix("s3://").rstrip("/")
        objects.append({"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": f"arn:aws:s3:::{path}/*"})
    pull = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
    return {
        "Version": "2012-10-17",
        "Statement": [
            *objects,
            {"Effect": "Allow", "Action": pull, "Resource": repository_arn},
            # ECR hands out tokens for the whole registry only; what may be pulled is limited above.
            {"Effect": "Allow", "Action": "ecr:GetAuthorizationToken", "Resource": "*"},
            {
                "Effect": "Allow",
                "Action": "autoscaling:SetInstanceHealth",
                "Resource": "*",
                "Condition": {"StringEquals": {"autoscaling:ResourceTag/gangway:stack": stack}},
            },
        ],
    }


class NodeIdentity(pulumi.ComponentResource):
    """Role, policy and instance profile of the nodes."""

    instance_profile_arn: pulumi.Output[str]
    role_name: pulumi.Output[str]

    def __init__(self, name: str, args: NodeIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:NodeIdentity", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        trust = {
            "Version": "2012-10-17",
            "Statement": [
                {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
            ],
        }
        role = iam.Role(
            f"{name}-node",
            assume_role_policy=pulumi.Output.json_dumps(trust),
            tags=args["tags"],
            opts=child,
        )
        policy = pulumi.Output.all(args["run_bucket_arn"], args["repository_arn"]).apply(
            lambda arns: node_policy(arns[0], arns[1], args["stack"], args.get("data_source"))
        )
        iam.RolePolicy(f"{name}-node", role=role.id, policy=pulumi.Output.json_dumps(policy), opts=child)
        iam.RolePolicyAttachment(f"{name}-ssm", role=role.name, policy_arn=SSM_CORE_POLICY, opts=child)
        profile = iam.InstanceProfile(f"{name}-node", role=role.name, tags=args["tags"], opts=child)
        self.instance_profile_arn = profile.arn
        self.role_name = role.name
        self.register_outputs({"instance_profile_arn": self.instance_profile_arn, "role_name": self.role_name})
