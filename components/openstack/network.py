"""TrainingNetwork: a private network with access to the cloud's services but none from outside; its firewall."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import NotRequired, TypedDict

import pulumi
from pulumi_openstack import networking

from gangway.components.core.fields import Egress
from gangway.components.core.findings import InputError
from gangway.components.core.limits import HeadPortsArgs, metrics_ports, private_network
from gangway.components.core.outputs import after, register_outputs
from gangway.components.core.tags import tag_words

ROLES = ("fabric", "head")  # roles with a security group each: workers and the head node
ANYWHERE = "0.0.0.0/0"
METADATA_CIDR = "169.254.169.254/32"
EVERY_PORT = (1, 65535)
# Addresses below the workers' are for the gateway and manual additions.
HEAD_OFFSET, WORKER_OFFSET = 10, 16
CIDR_PLACE = "gangway:network.cidr"
SERVICES_PLACE = "gangway:openstack.service_cidrs"


@dataclass(frozen=True)
class Rule:
    """One rule of a security group. `remote`: a role, or an address range; `protocol`, `ports`: None for every one."""

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
    """The rules. `egress`: `endpoints` allows only `service_cidrs`; `dns_nameservers`: empty for the network's own."""
    rules = [Rule("self", "fabric", "ingress", "fabric")]
    if head is not None:
        metrics = metrics_ports(head)
        rules += [
            Rule("rendezvous", "head", "ingress", "fabric", "tcp", (head["rendezvous_port"],) * 2),
            Rule("metrics", "fabric", "ingress", "head", "tcp", (metrics[0], metrics[-1])),
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
    # Administrators of private clouds choose their services' ports.
    for index, service in enumerate(service_cidrs):
        yield Rule(f"service-{index}-{role}", role, "egress", service, "tcp", EVERY_PORT)


class TrainingNetworkArgs(TypedDict):
    """Inputs of TrainingNetwork. `external_network_id` is the router's external network. `service_cidrs` are reachable
    with `egress: endpoints`. `head` opens a head node's ports. `dns_nameservers` default to the network's own.
    """

    cidr: str
    egress: Egress
    external_network_id: str
    service_cidrs: NotRequired[list[str]]
    dns_nameservers: NotRequired[list[str]]
    head: NotRequired[HeadPortsArgs | None]
    tags: dict[str, str]


@dataclass(frozen=True)
class NetworkPlan:
    """Address plan. Machines' addresses are fixed, so Prometheus and the rendezvous need no names. `pool`: Neutron's
    dynamic range for file servers and agents: the upper half.
    """

    cidr: str
    gateway: str
    head: str
    first_worker: str
    pool: tuple[str, str]

    def worker(self, index: int) -> str:
        """The address of a worker, counted from 0."""
        return str(IPv4Address(self.first_worker) + index)


def plan_network(cidr: str, place: str = CIDR_PLACE) -> NetworkPlan:
    """Divide `cidr`: fixed addresses below, Neutron's own above. InputError: not a private IPv4 network between /16 and
    /20.

    >>> plan_network("10.42.0.0/20").worker(0)
    '10.42.0.16'
    """
    network = private_network(cidr, place)
    _, upper = network.subnets(prefixlen_diff=1)
    pool = str(upper[0]), str(network[-2])
    return NetworkPlan(str(network), str(network[1]), str(network[HEAD_OFFSET]), str(network[WORKER_OFFSET]), pool)


def plan_addresses(cidr: str, num_nodes: int, place: str) -> NetworkPlan:
    """Addresses in an existing subnet, the head's first. InputError: not a network, or too small.

    >>> plan_addresses("10.20.8.0/28", 2, "machine_cidr").worker(0)
    '10.20.8.1'
    """
    try:
        network = IPv4Network(cidr)
    except ValueError as error:
        raise InputError(place, str(error), value=cidr, allowed="an IPv4 network", fix="use 10.20.8.0/26") from None
    if network.num_addresses < num_nodes + 1:
        raise InputError(
            place,
            f"{network.num_addresses} addresses, but the head and {num_nodes} nodes need {num_nodes + 1}",
            value=cidr,
            allowed=f"at least {num_nodes + 1} addresses",
            fix="name a larger range, or set a smaller gangway:cluster.nodes.max",
        )
    return NetworkPlan(str(network), "", str(network[0]), str(network[1]), ("", ""))


def check_services(egress: Egress, service_cidrs: list[str], place: str = SERVICES_PLACE) -> None:
    """Check the egress settings. InputError: no services, an invalid range, or ranges that would have no effect."""
    if egress == Egress.ENDPOINTS and not service_cidrs:
        raise InputError(
            place,
            "missing: OpenStack has no private endpoints, so with egress: endpoints no machine would reach Keystone, "
            "the object store or the registry",
            allowed="the address ranges of those services",
            fix="add them, such as service_cidrs: [192.0.2.0/24], or set gangway:network.egress: nat",
        )
    if egress == Egress.NAT and service_cidrs:
        raise InputError(
            place,
            "of no effect with egress: nat, by which machines reach everything",
            value=", ".join(service_cidrs),
            allowed="only with gangway:network.egress: endpoints",
            fix="leave service_cidrs out, or set egress: endpoints",
        )
    for index, cidr in enumerate(service_cidrs):
        try:
            IPv4Network(cidr)
        except ValueError as error:
            raise InputError(
                f"{place}[{index}]",
                str(error),
                value=cidr,
                allowed="an IPv4 network",
                fix="write it like 192.0.2.0/24",
            ) from None


def ipv4_of(addresses: Sequence[str | None]) -> str:
    """A router's first IPv4 address; on a dual-stack network the first address may be IPv6. InputError: there is none,
    so machines have no way out.

    >>> ipv4_of(["2001:db8::5", "203.0.113.5"])
    '203.0.113.5'
    """
    for address in addresses:
        # Only IPv6 has colons; in a plan the address is a reference.
        if address and ":" not in address:
            return address
    raise InputError(
        "gangway:openstack.external_network_id",
        "the router has no IPv4 address on that network, and this stack's machines have no other kind",
        value=", ".join(address for address in addresses if address) or "no address",
        allowed="an external network with an IPv4 subnet",
        fix="name one that `openstack subnet list --network ID --ip-version 4` shows a subnet of",
    )


class TrainingNetwork(pulumi.ComponentResource):
    """A network with one subnet, a router and a security group per role. `private_subnet_ids` holds the subnet, and
    waits for routes and rules. `head_security_group_id` is empty without a head node. `egress_ip` is the external
    address.
    """

    vpc_id: pulumi.Output[str]
    private_subnet_ids: pulumi.Output[list[str]]
    fabric_security_group_id: pulumi.Output[str]
    head_security_group_id: pulumi.Output[str]
    egress_ip: pulumi.Output[str]

    def __init__(self, name: str, args: TrainingNetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:openstack:TrainingNetwork", name, None, opts)
        services = args.get("service_cidrs", [])
        check_services(args["egress"], services, "service_cidrs")
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        self._tags = tag_words(args["tags"])
        self._plan = plan_network(args["cidr"])
        head, servers = args.get("head"), args.get("dns_nameservers", [])
        network = networking.Network(
            f"{name}-network", admin_state_up=True, port_security_enabled=True, tags=self._tags, opts=self._child
        )
        subnet = self._subnet(network)
        router = self._router()
        joined = networking.RouterInterface(
            f"{name}-private", router_id=router.id, subnet_id=subnet.id, opts=self._child
        )
        rules = plan_rules(head, args["egress"], self._plan.cidr, services, servers)
        groups, made = declare_groups(name, rules, self._tags, self._child)
        self.vpc_id = network.id
        self.private_subnet_ids = after(pulumi.Output.all(subnet.id), joined, *made)
        self.fabric_security_group_id = groups["fabric"].id
        self.head_security_group_id = groups["head"].id if head is not None else pulumi.Output.from_input("")
        self.egress_ip = router.external_fixed_ips.apply(lambda ips: ipv4_of([ip.ip_address for ip in ips]))
        register_outputs(self)

    def _subnet(self, network: networking.Network) -> networking.Subnet:
        plan = self._plan
        return networking.Subnet(
            f"{self._name}-private",
            network_id=network.id,
            cidr=plan.cidr,
            ip_version=4,
            gateway_ip=plan.gateway,
            enable_dhcp=True,
            allocation_pools=[networking.SubnetAllocationPoolArgs(start=plan.pool[0], end=plan.pool[1])],
            dns_nameservers=self._args.get("dns_nameservers") or None,
            tags=self._tags,
            opts=self._child,
        )

    def _router(self) -> networking.Router:
        return networking.Router(
            f"{self._name}-nat",
            admin_state_up=True,
            external_network_id=self._args["external_network_id"],
            tags=self._tags,
            opts=self._child,
        )


def declare_groups(
    name: str, rules: Sequence[Rule], tags: list[str], opts: pulumi.ResourceOptions
) -> tuple[dict[str, networking.SecGroup], list[networking.SecGroupRule]]:
    """A security group per role of the rules, with their rules."""
    roles = [role for role in ROLES if any(rule.role == role for rule in rules)]
    groups = {
        role: networking.SecGroup(
            f"{name}-{role}",
            description=f"Gangway: {role} of {name}",
            # Neutron's default rules allow all egress.
            delete_default_rules=True,
            tags=tags,
            opts=opts,
        )
        for role in roles
    }
    return groups, [_declare_rule(name, rule, groups, opts) for rule in rules]


def _declare_rule(
    name: str, rule: Rule, groups: Mapping[str, networking.SecGroup], opts: pulumi.ResourceOptions
) -> networking.SecGroupRule:
    remote = groups.get(rule.remote)
    return networking.SecGroupRule(
        f"{name}-{rule.name}",
        description=rule.name,
        security_group_id=groups[rule.role].id,
        direction=rule.direction,
        ethertype="IPv4",
        protocol=rule.protocol,
        port_range_min=rule.ports[0] if rule.ports else None,
        port_range_max=rule.ports[1] if rule.ports else None,
        remote_group_id=None if remote is None else remote.id,
        remote_ip_prefix=rule.remote if remote is None else None,
        opts=opts,
    )


class ExistingNetworkArgs(TypedDict):
    """Inputs of ExistingNetwork. `cidr` is the machines' range in the subnet; the rest as in TrainingNetworkArgs."""

    network_id: str
    subnet_id: str
    cidr: str
    egress: Egress
    service_cidrs: NotRequired[list[str]]
    dns_nameservers: NotRequired[list[str]]
    head: NotRequired[HeadPortsArgs | None]
    tags: dict[str, str]


class ExistingNetwork(pulumi.ComponentResource):
    """An existing network with security groups of the stack. Outputs as of TrainingNetwork, without `egress_ip`."""

    vpc_id: pulumi.Output[str]
    private_subnet_ids: pulumi.Output[list[str]]
    fabric_security_group_id: pulumi.Output[str]
    head_security_group_id: pulumi.Output[str]

    def __init__(self, name: str, args: ExistingNetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:openstack:ExistingNetwork", name, None, opts)
        head, services, servers = args.get("head"), args.get("service_cidrs", []), args.get("dns_nameservers", [])
        rules = plan_rules(head, args["egress"], args["cidr"], services, servers)
        groups, made = declare_groups(name, rules, tag_words(args["tags"]), pulumi.ResourceOptions(parent=self))
        self.vpc_id = pulumi.Output.from_input(args["network_id"])
        self.private_subnet_ids = after([args["subnet_id"]], *made)
        self.fabric_security_group_id = groups["fabric"].id
        self.head_security_group_id = groups["head"].id if head is not None else pulumi.Output.from_input("")
        register_outputs(self)
