"""The firewall of a stack's network: who may open connections to whom, as data and as rules.

One table of flows says what may pass. Machines are told apart by application security groups, which are the security
group ids of the network's outputs: a NIC without one is reached by nobody. Rules stand in one security group for each
subnet. Azure's own last rules let a whole virtual network talk to itself, so each table here ends with a rule that
refuses everything. Flows on InfiniBand pass no security group: a scale set's partition key divides those.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from components.choices import Egress
from components.firewall import HeadPortsArgs

__all__ = [
    "AZURE_SERVICES",
    "BASTION",
    "FIRST_PRIORITY",
    "LAST_PRIORITY",
    "LUSTRE_PORTS",
    "ROLES",
    "Flow",
    "Rule",
    "plan_flows",
    "plan_lustre_flows",
    "plan_rules",
]

ROLES = ("fabric", "head")
"""The machines that rules speak of, each with an application security group: workers, and the head node."""
BASTION = "bastion"
"""Stands in a flow for the subnet of Azure Bastion, through which people come in."""
LUSTRE_PORTS = ("988", "1019-1023")
"""Azure Managed Lustre documentation, "Network prerequisites": in and out."""
AZURE_SERVICES: Mapping[str, str] = {
    "AzureActiveDirectory": "people's sign-in by SSH",
    "AzureContainerRegistry": "the trainer's image",
    "AzureMonitor": "log lines",
    "AzureResourceManager": "a node that leaves, the head that fills a scale set",
    "Storage": "runs, data, the layers of the image",
}
"""Service tags a machine may reach with `egress: endpoints`, and for what. All of them by HTTPS."""
# Azure takes 100 to 4096; the lowest number wins. Its own rules begin at 65000.
FIRST_PRIORITY, LAST_PRIORITY, STEP = 100, 4096, 10
EVERYWHERE = "*"
HTTPS = ("443",)


@dataclass(frozen=True)
class Flow:
    """Who may open connections to whom.

    Attributes:
        name: tells it from the others.
        source: a role of ours, an address range, or a service tag.
        target: likewise.
        protocol: `*` or `Tcp`.
        ports: those of the target, as Azure writes them; empty for every port.
        direction: Inbound or Outbound.
    """

    name: str
    source: str
    target: str
    protocol: str = "*"
    ports: tuple[str, ...] = ()
    direction: str = "Inbound"


@dataclass(frozen=True)
class Rule:
    """A flow with its place among the others; `allow` false refuses it."""

    flow: Flow
    priority: int
    allow: bool


def plan_flows(
    head: HeadPortsArgs | None, egress: Egress, lustre_cidr: str | None = None, bastion_cidr: str | None = None
) -> tuple[Flow, ...]:
    """Everything that may pass in the machines' subnet.

    Args:
        head: its ports; None without a head node.
        egress: `endpoints` closes the way out to all but Azure's services.
        lustre_cidr: where the file system's servers are; None without one.
        bastion_cidr: where people come from; None without a Bastion.
    """
    flows = [Flow("self", "fabric", "fabric")]
    if head is not None:
        flows += [
            Flow("rendezvous", "fabric", "head", "Tcp", (str(head["rendezvous_port"]),)),
            Flow("metrics", "head", "fabric", "Tcp", (str(head["metrics_port"]),)),
        ]
    roles = ROLES if head is not None else ROLES[:1]
    if bastion_cidr is not None:
        flows += [Flow(f"bastion-{role}", bastion_cidr, role, "Tcp", ("22",)) for role in roles]
    if lustre_cidr is not None:
        # The servers call clients back.
        mounts = [role for role in roles if role == "fabric" or (head is not None and head.get("lustre", False))]
        flows += [Flow(f"lustre-{role}", lustre_cidr, role, "Tcp", LUSTRE_PORTS) for role in mounts]
    if egress == Egress.ENDPOINTS:
        inside = Flow("inside", "VirtualNetwork", "VirtualNetwork", direction="Outbound")
        services = [
            Flow(f"to-{tag}", "VirtualNetwork", tag, "Tcp", HTTPS, direction="Outbound") for tag in AZURE_SERVICES
        ]
        flows += [inside, *services]
    return tuple(flows)


def plan_lustre_flows(lustre_cidr: str, client_cidr: str) -> tuple[Flow, ...]:
    """Everything that may come into the file system's subnet; its way out is Azure's own business.

    After "Configure a network security group" of Azure Managed Lustre's documentation: its servers among themselves,
    its clients, and the monitoring that Azure does.
    """
    return (
        Flow("self", lustre_cidr, lustre_cidr),
        Flow("clients", client_cidr, lustre_cidr, "Tcp", LUSTRE_PORTS),
        Flow("azure-monitor", "AzureMonitor", "VirtualNetwork", "Tcp"),
    )


def plan_rules(flows: Iterable[Flow]) -> tuple[Rule, ...]:
    """The flows as rules, and after them in each direction that they speak of one which refuses everything else."""
    flows = tuple(flows)
    allowed = [Rule(flow, FIRST_PRIORITY + STEP * index, allow=True) for index, flow in enumerate(flows)]
    denied = [
        Rule(Flow(f"refuse-{direction.lower()}", EVERYWHERE, EVERYWHERE, direction=direction), LAST_PRIORITY, False)
        for direction in sorted({flow.direction for flow in flows})
    ]
    return (*allowed, *denied)
