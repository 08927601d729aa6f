"""What every provider's network shares: the checked address range, and the head node's ports."""

from ipaddress import IPv4Network
from typing import NotRequired, TypedDict

from gangway.components.core.findings import InputError

# RFC 1918. Python's `is_private` also admits loopback, link-local and test ranges, which no VPC can use.
PRIVATE_RANGES = (IPv4Network("10.0.0.0/8"), IPv4Network("172.16.0.0/12"), IPv4Network("192.168.0.0/16"))
SHORTEST_PREFIX, LONGEST_PREFIX = 16, 20
ALLOWED = f"a private IPv4 network, /{SHORTEST_PREFIX} to /{LONGEST_PREFIX}"
FIX = "use 10.42.0.0/16"


def private_network(cidr: str, place: str = "gangway:network.cidr") -> IPv4Network:
    """Parse `cidr`. InputError: not a private IPv4 network between /16 and /20."""
    try:
        network = IPv4Network(cidr)
    except ValueError as error:
        raise InputError(place, str(error), value=cidr, allowed=ALLOWED, fix=FIX) from None
    is_private = any(network.subnet_of(private) for private in PRIVATE_RANGES)
    if not is_private or not SHORTEST_PREFIX <= network.prefixlen <= LONGEST_PREFIX:
        problem = "this address range does not fit a VPC of private subnets"
        raise InputError(place, problem, value=cidr, allowed=ALLOWED, fix=FIX)
    return network


class HeadPortsArgs(TypedDict):
    """Ports of the rendezvous store and the workers' metrics. `lustre` (false): the head mounts a file system."""

    rendezvous_port: int
    metrics_port: int
    lustre: NotRequired[bool]


class SlurmPortsArgs(TypedDict):
    """Ports of Slurm: controller, nodes, and a range (first and last) for launches from the head. `lustre` as above."""

    controller_port: int
    node_port: int
    client_ports: list[int]
    lustre: NotRequired[bool]
