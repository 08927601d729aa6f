"""NodePool: GPU instances of one flavour with fixed addresses, placed by a server group or a reservation. `up` creates
all, and fails if the cloud has too few: OpenStack has no group that adds or replaces nodes later.
"""

from dataclasses import dataclass
from typing import Literal, NotRequired, TypedDict, get_args

import pulumi
from pulumi_openstack import compute, networking

from gangway.components.core.capacity import RungPlan, plan_rung, rung_from_args
from gangway.components.core.findings import InputError, nearest_hint
from gangway.components.core.outputs import register_outputs
from gangway.components.core.tags import ROLE_TAG, tag_words
from gangway.components.openstack.capacity import Placing, check_flavour, check_ladder, plan_placing
from gangway.components.openstack.launch import (
    BootSource,
    declare_instance,
    declare_port,
    plan_boot_source,
    secrets_tags,
)
from gangway.components.openstack.network import plan_network

Placement = Literal["soft-affinity", "affinity", "anti-affinity", "soft-anti-affinity"]
PLACEMENTS: tuple[str, ...] = get_args(Placement)
"""Nova's guide "Server groups": affinity is one host for all, anti-affinity one for each; soft ones are best effort."""
VNIC_TYPES = ("direct", "direct-physical")
HEAD_TAG = "gangway:head"


class CapacityRungArgs(TypedDict):
    """The rung: `kind` is reservation or on-demand; the rest is as in `gangway.components.core.capacity`."""

    kind: str
    id: NotRequired[str]


class NodePoolArgs(TypedDict):
    """Inputs of NodePool. `user_data` is base64. `machine_type` is a flavour's name, `image` an image's id or name.
    `placement` (soft-affinity) is the server group's. `boot_volume_gib` boots from volumes of `volume_type`, by
    default from the flavour's disk. `cidr` is the network's, for addresses, or `addresses` lists them. `rdma_ports`
    (0) per node are created on `rdma_network_id`, of `rdma_vnic_type` (direct), without a firewall, which SR-IOV
    lacks. `head_host` is HeadNode's: nodes are deleted before the head, and survive its replacement.
    `secrets_place` and `secrets_signature` are MachineSecrets'.
    """

    machine_type: str
    num_nodes_max: int
    capacity: list[CapacityRungArgs]
    zone: str
    placement: NotRequired[str]
    image: str
    boot_volume_gib: NotRequired[int | None]
    volume_type: NotRequired[str | None]
    cidr: str
    addresses: NotRequired[list[str] | None]
    network_id: pulumi.Input[str]
    subnet_ids: pulumi.Input[list[str]]
    security_group_ids: list[pulumi.Input[str]]
    rdma_network_id: NotRequired[str | None]
    rdma_ports: NotRequired[int]
    rdma_vnic_type: NotRequired[str]
    head_host: NotRequired[pulumi.Input[str] | None]
    user_data: pulumi.Input[str]
    secrets_place: pulumi.Input[str]
    secrets_signature: pulumi.Input[str]
    tags: dict[str, str]


@dataclass(frozen=True)
class NodePoolPlan:
    """The planned resources; `addresses` are the nodes'."""

    rung: RungPlan
    placing: Placing
    boot: BootSource
    addresses: tuple[str, ...]
    rdma_ports: int


def plan_node_pool(args: NodePoolArgs) -> NodePoolPlan:
    """Compile the arguments. InputError: rung, placement or image is refused, or RDMA ports lack a network."""
    rungs = tuple(rung_from_args(rung) for rung in args["capacity"])
    check_ladder(rungs, "capacity")
    check_flavour(rungs, args["machine_type"], "capacity")
    _check_word("placement", args.get("placement", PLACEMENTS[0]), PLACEMENTS)
    _check_word("rdma_vnic_type", args.get("rdma_vnic_type", VNIC_TYPES[0]), VNIC_TYPES)
    ports = args.get("rdma_ports", 0)
    if ports and args.get("rdma_network_id") is None:
        raise InputError(
            "rdma_network_id",
            f"missing: {ports} RDMA ports a node have no network",
            allowed="the id of an SR-IOV network",
            fix="add it, or leave rdma_ports out where the flavour brings the adapters",
        )
    rung, given = plan_rung(rungs[0]), args.get("addresses")
    return NodePoolPlan(
        rung,
        plan_placing(rung, args["machine_type"]),
        plan_boot_source(args["image"], args.get("boot_volume_gib"), args.get("volume_type")),
        tuple(_addresses(args) if given is None else given),
        ports,
    )


def _addresses(args: NodePoolArgs) -> list[str]:
    network = plan_network(args["cidr"])
    return [network.worker(index) for index in range(args["num_nodes_max"])]


def _check_word(place: str, word: str, allowed: tuple[str, ...]) -> None:
    if word not in allowed:
        fix = nearest_hint(word, allowed)
        raise InputError(place, "no such word", value=word, allowed=", ".join(allowed), fix=fix)


class NodePool(pulumi.ComponentResource):
    """GPU nodes, and their server group without a reservation. `group_names` are the nodes' names, known at once;
    `launch_template_ids` their ids: an instance is its own template. `interfaces_per_node` counts its ports.
    """

    group_names: pulumi.Output[list[str]]
    launch_template_ids: pulumi.Output[list[str]]
    interfaces_per_node: pulumi.Output[int]

    def __init__(self, name: str, args: NodePoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:openstack:NodePool", name, None, opts)
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        self._plan = plan = plan_node_pool(args)
        self._subnet = pulumi.Output.from_input(args["subnet_ids"]).apply(lambda ids: ids[0])
        group = self._server_group() if plan.placing.server_group else None
        nodes = [self._node(index, address, group) for index, address in enumerate(plan.addresses)]
        self.group_names = pulumi.Output.all(*[node.name for node in nodes]).apply(list)
        self.launch_template_ids = pulumi.Output.all(*[node.id for node in nodes]).apply(list)
        self.interfaces_per_node = pulumi.Output.from_input(1 + plan.rdma_ports)
        register_outputs(self)

    def _server_group(self) -> compute.ServerGroup:
        return compute.ServerGroup(
            f"{self._name}-nodes", policies=self._args.get("placement", PLACEMENTS[0]), opts=self._child
        )

    def _node(self, index: int, address: str, group: compute.ServerGroup | None) -> compute.Instance:
        args, plan = self._args, self._plan
        name = f"{self._name}-0-{plan.rung.kind}-{index}"
        first = declare_port(
            name,
            args["network_id"],
            self._subnet,
            address,
            args["security_group_ids"],
            args["tags"],
            self._child,
        )
        ports = [first, *(self._rdma_port(f"{name}-rdma-{number}") for number in range(plan.rdma_ports))]
        return declare_instance(
            name,
            args["machine_type"],
            plan.boot,
            args["user_data"],
            ports,
            {
                **args["tags"],
                ROLE_TAG: "worker",
                **self._meeting(),
                **secrets_tags(args["secrets_place"], args["secrets_signature"]),
            },
            self._child,
            availability_zone=args["zone"] or None,
            scheduler_hints=self._hints(group),
        )

    def _hints(self, group: compute.ServerGroup | None) -> list[compute.InstanceSchedulerHintArgs] | None:
        hints = self._plan.placing.hints
        if group is None and not hints:
            return None
        own = None if group is None else group.id
        return [compute.InstanceSchedulerHintArgs(group=own, additional_properties=dict(hints) or None)]

    def _meeting(self) -> dict[str, pulumi.Input[str]]:
        """The head's address in mutable metadata: it only orders the nodes before the head."""
        host = self._args.get("head_host")
        return {} if host is None else {HEAD_TAG: host}

    def _rdma_port(self, name: str) -> networking.Port:
        """Neutron's "SR-IOV" guide: such a port may have no security groups; only the network's owner may set this."""
        return networking.Port(
            name,
            network_id=self._args.get("rdma_network_id") or "",
            binding=networking.PortBindingArgs(vnic_type=self._args.get("rdma_vnic_type", VNIC_TYPES[0])),
            no_security_groups=True,
            admin_state_up=True,
            tags=tag_words(self._args["tags"]),
            opts=self._child,
        )
