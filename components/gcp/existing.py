"""ExistingNetwork: what a stack adds to an existing network: firewall rules in its own project, and the head's name."""

from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict

import pulumi

from gangway.components.catalog.schema import GcpMachineType
from gangway.components.core.limits import HeadPortsArgs
from gangway.components.core.outputs import after, register_outputs
from gangway.components.gcp.fabric import MAIN, plan_fabric_networks, plan_interfaces
from gangway.components.gcp.network import (
    Flow,
    declare_head_zone,
    declare_rules,
    network_tag,
    plan_flows,
    plan_machine,
)


class ExistingNetworkArgs(TypedDict):
    """Inputs of ExistingNetwork. Networks and subnetworks are full names, of the GPU NICs of `machine_type` in order.
    `fabric_tag` and `head_tag` are network tags of existing firewall rules; without them the component makes rules in
    networks of `project`. `services_cidr`: where Managed Lustre's servers are. `head` as in TrainingNetworkArgs.
    """

    project: str
    zone: str
    network: str
    subnetwork: str
    fabric_network_ids: NotRequired[list[str]]
    fabric_subnet_ids: NotRequired[list[str]]
    machine_type: NotRequired[str]
    fabric_tag: NotRequired[str | None]
    head_tag: NotRequired[str | None]
    services_cidr: NotRequired[str | None]
    head: NotRequired[HeadPortsArgs | None]
    tags: dict[str, str]


def existing_flows(
    machine: GcpMachineType | None,
    zone: str,
    network: str,
    fabric: Sequence[str],
    head: HeadPortsArgs | None,
    services_cidr: str | None,
) -> tuple[tuple[Flow, str], ...]:
    """All connections that firewall rules must allow, each with the full name of its network."""
    further = () if machine is None else plan_fabric_networks(machine, zone)
    names = [] if machine is None else [interface.network for interface in plan_interfaces(machine)[1:]]
    networks: Mapping[str, str] = {MAIN: network, **dict(zip(names, fabric, strict=True))}
    return tuple((flow, networks[flow.network]) for flow in plan_flows(head, further, services_cidr))


class ExistingNetwork(pulumi.ComponentResource):
    """The outputs of TrainingNetwork for an existing network, with firewall rules of the stack if it may make them."""

    vpc_id: pulumi.Output[str]
    private_subnet_ids: pulumi.Output[list[str]]
    fabric_subnet_ids: pulumi.Output[list[str]]
    fabric_network_ids: pulumi.Output[list[str]]
    fabric_security_group_id: pulumi.Output[str]
    head_security_group_id: pulumi.Output[str]
    private_zone_id: pulumi.Output[str]

    def __init__(self, name: str, args: ExistingNetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:ExistingNetwork", name, None, opts)
        child, head = pulumi.ResourceOptions(parent=self), args.get("head")
        rules = _own_rules(name, args, child) if args.get("fabric_tag") is None else []
        fabric_tag = args.get("fabric_tag") or network_tag(name, "fabric")
        head_tag = args.get("head_tag") or network_tag(name, "head")
        self.vpc_id = pulumi.Output.from_input(args["network"])
        self.private_subnet_ids = after([args["subnetwork"]], *rules)
        self.fabric_subnet_ids = after(args.get("fabric_subnet_ids", []), *rules)
        self.fabric_network_ids = pulumi.Output.from_input(args.get("fabric_network_ids", []))
        self.fabric_security_group_id = pulumi.Output.from_input(fabric_tag)
        self.head_security_group_id = pulumi.Output.from_input("" if head is None else head_tag)
        self.private_zone_id = pulumi.Output.from_input("")
        if head is not None:
            self.private_zone_id = declare_head_zone(name, args["project"], args["network"], args["tags"], child)
        register_outputs(self)


def _own_rules(name: str, args: ExistingNetworkArgs, opts: pulumi.ResourceOptions) -> list[pulumi.CustomResource]:
    machine = plan_machine(args["machine_type"]) if "machine_type" in args else None
    fabric = args.get("fabric_network_ids", [])
    flows = existing_flows(machine, args["zone"], args["network"], fabric, args.get("head"), args.get("services_cidr"))
    own = [(flow, network) for flow, network in flows if network.startswith(f"projects/{args['project']}/")]
    networks: dict[str, pulumi.Input[str]] = {flow.network: network for flow, network in own}
    return declare_rules(name, args["project"], [flow for flow, _ in own], networks, opts)
