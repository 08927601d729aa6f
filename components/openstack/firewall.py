"""The firewall of a stack's network: who may open connections to whom, as data.

One table says what may pass. Machines are told apart by their security groups, one for the workers and one for the
head. Neutron's groups are stateful, so an answer needs no rule: a file server that is mounted by NFSv4.1 or CephFS is
only ever called, never calling. SR-IOV ports have no firewall at all ("SR-IOV", Neutron's administration guide): their
network is to be the cluster's own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from components.choices import Egress
from components.firewall import HeadPortsArgs

__all__ = ["ROLES", "Rule", "plan_rules"]

ROLES = ("fabric", "head")
"""The machines that rules speak of, each with a security group: workers, and the head node."""
ANYWHERE = "0.0.0.0/0"
METADATA_CIDR = "169.254.169.254/32"
EVERY_PORT = (1, 65535)


@dataclass(frozen=True)
class Rule:
    """One rule of a role's security group.

    Attributes:
        name: tells it from the others.
        role: in whose group it is.
        direction: ingress or egress.
        remote: a role, or an address range.
        protocol: None for every protocol.
        ports: first and last; None for every port.
    """

    name: str
    role: str
    direction: str
    remote: str
    protocol: str | None = None
    ports: tuple[int, int] | None = None


def plan_rules(
    head: HeadPortsArgs | None,
    egress: Egress,
    cidr: str,
    service_cidrs: Sequence[str] = (),
    dns_nameservers: Sequence[str] = (),
) -> tuple[Rule, ...]:
    """Everything that may pass.

    Args:
        head: its ports; None without a head node.
        egress: `endpoints` closes the way out to all but the cloud's own services.
        cidr: of the stack's network.
        service_cidrs: where those services are: Keystone, object store, file servers, registry.
        dns_nameservers: that machines are told of; none leaves that to the network's own.
    """
    rules = [Rule("self", "fabric", "ingress", "fabric")]
    if head is not None:
        rules += [
            Rule("rendezvous", "head", "ingress", "fabric", "tcp", (head["rendezvous_port"],) * 2),
            Rule("metrics", "fabric", "ingress", "head", "tcp", (head["metrics_port"],) * 2),
        ]
    for role in ROLES if head is not None else ROLES[:1]:
        rules += _way_out(role, egress, cidr, service_cidrs, dns_nameservers)
    return tuple(rules)


def _way_out(
    role: str, egress: Egress, cidr: str, service_cidrs: Sequence[str], dns_nameservers: Sequence[str]
) -> Iterable[Rule]:
    if egress == Egress.NAT:
        yield Rule(f"out-{role}", role, "egress", ANYWHERE)
        return
    yield Rule(f"inside-{role}", role, "egress", cidr)
    yield Rule(f"metadata-{role}", role, "egress", METADATA_CIDR, "tcp", (80, 80))
    for index, server in enumerate(dns_nameservers):
        for protocol in ("tcp", "udp"):
            yield Rule(f"dns-{index}-{protocol}-{role}", role, "egress", f"{server}/32", protocol, (53, 53))
    # Which port a service of a private cloud answers on is its administrator's choice.
    for index, service in enumerate(service_cidrs):
        yield Rule(f"service-{index}-{role}", role, "egress", service, "tcp", EVERY_PORT)
