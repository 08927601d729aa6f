"""SecretParameter: a stack's key in AWS's Parameter Store, readable only by its machines' roles."""

from typing import NotRequired, TypedDict

import pulumi
from pulumi_aws import ssm

from gangway.components.core.dependencies import after
from gangway.components.core.signing_key import KEY_USES

__all__ = ["SecretParameter", "SecretParameterArgs", "parameter_name"]


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
        self.register_outputs({"name": self.name, "arn": self.arn})
