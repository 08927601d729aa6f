"""SecurityGroups and HeadZone: what machines need in a VPC that exists already."""

from typing import NotRequired, TypedDict

import pulumi

from gangway.components.aws.network import declare_groups, declare_zone, plan_flows
from gangway.components.core.limits import HeadPortsArgs, SlurmPortsArgs
from gangway.components.core.outputs import register_outputs


class SecurityGroupsArgs(TypedDict):
    """Inputs of SecurityGroups. `head`, or else `slurm`, adds a group for a head node."""

    vpc_id: pulumi.Input[str]
    head: NotRequired[HeadPortsArgs | None]
    slurm: NotRequired[SlurmPortsArgs | None]
    tags: dict[str, str]


class SecurityGroups(pulumi.ComponentResource):
    """The security groups of nodes and head, as TrainingNetwork makes them; without a head its id is empty."""

    fabric_security_group_id: pulumi.Output[str]
    head_security_group_id: pulumi.Output[str]

    def __init__(self, name: str, args: SecurityGroupsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:SecurityGroups", name, None, opts)
        flows = plan_flows("", args.get("head"), endpoints=False, slurm=args.get("slurm"))
        child = pulumi.ResourceOptions(parent=self)
        groups = declare_groups(name, args["vpc_id"], flows, args["tags"], child)
        self.fabric_security_group_id = groups["fabric"]
        self.head_security_group_id = groups.get("head", pulumi.Output.from_input(""))
        register_outputs(self)


class HeadZoneArgs(TypedDict):
    """Inputs of HeadZone. The VPC belongs to the stack's account and has enableDnsSupport and enableDnsHostnames."""

    vpc_id: pulumi.Input[str]
    region: str
    tags: dict[str, str]


class HeadZone(pulumi.ComponentResource):
    """The private DNS zone `<name>.gangway.internal` of a VPC."""

    zone_id: pulumi.Output[str]

    def __init__(self, name: str, args: HeadZoneArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:HeadZone", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        self.zone_id = declare_zone(name, args["vpc_id"], args["region"], args["tags"], child)
        register_outputs(self)
