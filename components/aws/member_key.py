"""MemberKeyParameter: the key of a job's nodes in AWS's Parameter Store, which their roles alone may read."""

from typing import NotRequired, TypedDict

import pulumi
from pulumi_aws import ssm

from components.core.dependencies import after

__all__ = ["MemberKeyParameter", "MemberKeyParameterArgs", "parameter_name"]


class MemberKeyParameterArgs(TypedDict):
    """Inputs of MemberKeyParameter. `pem` is `components.core.member_key`'s; without `kms_key_arn` AWS's own key for
    parameters encrypts it.
    """

    pem: pulumi.Input[str]
    stack: str
    kms_key_arn: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


def parameter_name(stack: str) -> str:
    """What nodes ask for.

    >>> parameter_name("demo")
    '/gangway/demo/member-key'
    """
    return f"/gangway/{stack}/member-key"


class MemberKeyParameter(pulumi.ComponentResource):
    """An encrypted parameter. Standard ones cost nothing (AWS Systems Manager pricing, "Parameter Store")."""

    name: pulumi.Output[str]
    arn: pulumi.Output[str]

    def __init__(self, name: str, args: MemberKeyParameterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:MemberKeyParameter", name, None, opts)
        parameter = ssm.Parameter(
            f"{name}-member-key",
            name=parameter_name(args["stack"]),
            description="By this the nodes of the job know each other",
            type="SecureString",
            value=pulumi.Output.secret(args["pem"]),
            key_id=args.get("kms_key_arn"),
            tags=args["tags"],
            opts=pulumi.ResourceOptions(parent=self),
        )
        # Whoever takes the name waits until it can be read.
        self.name, self.arn = after(parameter.name, parameter), parameter.arn
        self.register_outputs({"name": self.name, "arn": self.arn})
