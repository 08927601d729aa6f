"""The firewall of a stack's networks: who may open connections to whom, as data and as rules.

One table of flows says what may pass; what a file system's servers need is known only when it stands, and is declared
with it (`declare_lock_callbacks`). Machines are told apart by network tags, not by service accounts: a network then
knows nothing of identities, and Compute Engine does not let one rule speak of both. The tags stand in the outputs where
AWS has security groups. What no rule allows, a VPC refuses on the way in and allows on the way out; where machines may
get to is decided by the network's routes. RoCE networks take no rules at all (Cloud NGFW documentation, "Cloud NGFW for
RoCE VPC networks"); only GPU NICs of this stack's nodes lie in them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_gcp import compute

from components.firewall import HeadPortsArgs
from components.gcp.fabric import MAIN, FabricNetwork

__all__ = [
    "IAP_RANGE",
    "ROLES",
    "Flow",
    "declare_denial",
    "declare_lock_callbacks",
    "declare_rules",
    "network_tag",
    "plan_flows",
]

# Identity-Aware Proxy documentation, "Using IAP for TCP forwarding": where its connections come from.
IAP_RANGE = "35.235.240.0/20"
ROLES = ("fabric", "head")
"""The machines that rules speak of, each with a network tag: workers, and the head node."""
# Managed Lustre documentation, "Configure a VPC network": its servers call clients back on this port.
LUSTRE_PORT = 988
# The lowest that a rule can have: just above what a network refuses by itself, without a word.
LAST_PRIORITY = 65534


@dataclass(frozen=True)
class Flow:
    """Who may open connections to whom in one network.

    Attributes:
        name: tells it from the others; the last part of the rule's name.
        source: a role of ours, or an address range.
        target: the role that answers.
        protocol: `all`, or `tcp` with `ports`.
        ports: those of the target; empty for every port.
        network: `main`, or that of a GPU NIC.
    """

    name: str
    source: str
    target: str
    protocol: str = "all"
    ports: tuple[int, ...] = ()
    network: str = MAIN


def network_tag(stack: str, role: str) -> str:
    """The network tag of the machines that do `role`.

    >>> network_tag("demo", "fabric")
    'demo-fabric'
    """
    return f"{stack}-{role}"


def plan_flows(
    head: HeadPortsArgs | None, networks: Sequence[FabricNetwork] = (), services_range: str | None = None
) -> tuple[Flow, ...]:
    """Everything that may pass.

    Args:
        head: its ports; None without a head node.
        networks: those beside the main one.
        services_range: where the file system's servers are; None without one.
    """
    flows = [Flow("self", "fabric", "fabric"), Flow("iap-fabric", IAP_RANGE, "fabric", "tcp", (22,))]
    if head is not None:
        flows += [
            Flow("rendezvous", "fabric", "head", "tcp", (head["rendezvous_port"],)),
            Flow("metrics", "head", "fabric", "tcp", (head["metrics_port"],)),
            Flow("iap-head", IAP_RANGE, "head", "tcp", (22,)),
        ]
    if services_range is not None:
        flows.append(Flow("lustre", services_range, "fabric", "tcp", (LUSTRE_PORT,)))
        if head is not None and head.get("lustre", False):
            flows.append(Flow("lustre-head", services_range, "head", "tcp", (LUSTRE_PORT,)))
    flows += [
        Flow(f"{network.name}-self", "fabric", "fabric", network=network.name)
        for network in networks
        if network.takes_firewall_rules
    ]
    return tuple(flows)


def declare_rules(
    stack: str,
    project: str,
    flows: Iterable[Flow],
    networks: Mapping[str, compute.Network],
    opts: pulumi.ResourceOptions,
) -> list[pulumi.CustomResource]:
    """Declares a rule for each flow, in the network it speaks of."""
    return [_declare(stack, project, flow, networks[flow.network], opts) for flow in flows]


def declare_denial(
    stack: str, project: str, network: compute.Network, opts: pulumi.ResourceOptions
) -> pulumi.CustomResource:
    """Declares a rule that refuses what the network refuses anyway, and logs it: by itself it does not."""
    return compute.Firewall(
        f"{stack}-denied",
        project=project,
        network=network.id,
        description="Refuses what a VPC refuses anyway, and logs it",
        direction="INGRESS",
        priority=LAST_PRIORITY,
        source_ranges=["0.0.0.0/0"],
        denies=[compute.FirewallDenyArgs(protocol="all")],
        log_config=compute.FirewallLogConfigArgs(metadata="EXCLUDE_ALL_METADATA"),
        opts=opts,
    )


def declare_lock_callbacks(
    name: str,
    project: pulumi.Input[str],
    network: pulumi.Input[str],
    servers: pulumi.Input[str],
    tags: Sequence[pulumi.Input[str]],
    opts: pulumi.ResourceOptions,
) -> pulumi.CustomResource:
    """Declares that NFSv3 servers may tell machines with these `tags` of a lock that has become free.

    Filestore's guide "Configure firewall rules" asks for it where files are locked. Without it a waiting machine looks
    by itself, twice a minute. The ports of lockd and statd are whatever the kernel and rpcbind have chosen, so all are
    open to the addresses in `servers`, in which there is nothing but the file system.
    """
    return compute.Firewall(
        f"{name}-nfs-locks",
        project=project,
        network=network,
        description="NFS servers to their clients: locks",
        direction="INGRESS",
        source_ranges=[servers],
        target_tags=tags,
        allows=[compute.FirewallAllowArgs(protocol=protocol) for protocol in ("tcp", "udp")],
        opts=opts,
    )


def _declare(
    stack: str, project: str, flow: Flow, network: compute.Network, opts: pulumi.ResourceOptions
) -> compute.Firewall:
    from_machines = flow.source in ROLES
    ports = [str(port) for port in flow.ports] if flow.ports else None
    return compute.Firewall(
        f"{stack}-{flow.name}",
        project=project,
        network=network.id,
        description=f"{flow.source} to {flow.target}",
        direction="INGRESS",
        source_tags=[network_tag(stack, flow.source)] if from_machines else None,
        source_ranges=None if from_machines else [flow.source],
        target_tags=[network_tag(stack, flow.target)],
        allows=[compute.FirewallAllowArgs(protocol=flow.protocol, ports=ports)],
        opts=opts,
    )
