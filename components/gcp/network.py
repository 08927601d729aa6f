"""TrainingNetwork: a private subnet in which GPU nodes reach Google and each other, and nothing reaches them.

Two ways out: `endpoints` (Google's APIs and registries through Private Google Access; there is no route to anything
else) or `nat` (Cloud NAT, for jobs that fetch from elsewhere). No machine gets an external address. A machine type with
GPU NICs brings networks of its own (`components.gcp.fabric`), which lead nowhere else. Which ports pass is
`components.gcp.firewall`. No VPN and no peering but the one of Google's own services: those belong to the team's
landing zone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import NotRequired, TypedDict, cast

import pulumi
from pulumi_gcp import compute, dns, servicenetworking

from components.catalog import GcpMachineType, load_provider
from components.choices import Egress
from components.cidr import private_network
from components.findings import InputError
from components.firewall import HeadPortsArgs
from components.gcp.fabric import JUMBO_MTU_BYTES, MAIN, FabricNetwork, plan_fabric_networks, plan_interfaces
from components.gcp.firewall import declare_denial, declare_rules, network_tag, plan_flows
from components.order import after

__all__ = ["Egress", "HeadPortsArgs", "NetworkPlan", "TrainingNetwork", "TrainingNetworkArgs", "plan_network"]

# VPC documentation, "Configure Private Google Access": the addresses of private.googleapis.com, which serves nearly
# every Google API and Artifact Registry; restricted.googleapis.com would leave out those without VPC Service Controls.
PRIVATE_API_RANGE = "199.36.153.8/30"
PRIVATE_API_ADDRESSES = [str(address) for address in IPv4Network(PRIVATE_API_RANGE)]
PRIVATE_API_DOMAINS = {"apis": "googleapis.com.", "registry": "pkg.dev."}
# The range is cut into so many pieces.
PIECES_BITS = 4
MAIN_PIECES = 4


class TrainingNetworkArgs(TypedDict):
    """Inputs of TrainingNetwork: address range, place, way out, what the machines need, tags (as labels).

    `head` lets a head node be reached and makes a private DNS zone `<name>.gangway.internal`. `machine_type` adds the
    networks of its GPU NICs. `private_services` connects the network to Google's own services, which Managed Lustre
    needs. Flow logs are kept unless `flow_logs` is false; `log_denied` also logs what the firewall refuses.
    """

    cidr: str
    project: str
    region: str
    zone: str
    egress: Egress
    head: NotRequired[HeadPortsArgs | None]
    machine_type: NotRequired[str]
    private_services: NotRequired[bool]
    flow_logs: NotRequired[bool]
    log_denied: NotRequired[bool]
    tags: dict[str, str]


@dataclass(frozen=True)
class NetworkPlan:
    """Address ranges, none overlapping another: Compute Engine wants that of one machine's NICs, in all networks.

    Attributes:
        private_cidr: of the main subnet, a quarter of the whole.
        fabric_cidrs: of the subnets of further NICs, in the machine's order.
        services_cidr: for Google's own services, an eighth: a /23 at least, which one Managed Lustre instance takes.
    """

    private_cidr: str
    fabric_cidrs: tuple[str, ...]
    services_cidr: str


def plan_network(cidr: str, num_fabric_subnets: int = 0, place: str = "gangway:network.cidr") -> NetworkPlan:
    """Divides `cidr` into sixteenths: four for the main subnet, one for each further NIC, the last two for services.

    Raises:
        InputError: when `cidr` is no private IPv4 network between /16 and /20.
    """
    network = private_network(cidr, place)
    pieces = list(network.subnets(prefixlen_diff=PIECES_BITS))
    main = next(network.subnets(prefixlen_diff=2))
    *_, services = network.subnets(prefixlen_diff=3)
    further = pieces[MAIN_PIECES : MAIN_PIECES + num_fabric_subnets]
    assert not any(piece.overlaps(services) for piece in further), "no machine has so many NICs"
    return NetworkPlan(str(main), tuple(map(str, further)), str(services))


def _machine(name: str) -> GcpMachineType:
    return cast("GcpMachineType", load_provider("gcp").machine(name, "machine_type"))


class TrainingNetwork(pulumi.ComponentResource):
    """A VPC network with one private subnet, a way out, a firewall, and the networks of the GPU NICs.

    `private_subnet_ids` holds the one subnet and, like `fabric_subnet_ids` (those of the further NICs, in the machine's
    order), waits for the way out and the firewall: a machine has both from its first second to its last. `vpc_id` waits
    for the connection to Google's services. The two security group ids are network tags; the head's is empty
    without a head node, as is `private_zone_id`, the DNS zone's name.
    """

    vpc_id: pulumi.Output[str]
    private_subnet_ids: pulumi.Output[list[str]]
    fabric_subnet_ids: pulumi.Output[list[str]]
    fabric_security_group_id: pulumi.Output[str]
    head_security_group_id: pulumi.Output[str]
    private_zone_id: pulumi.Output[str]

    def __init__(self, name: str, args: TrainingNetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:TrainingNetwork", name, None, opts)
        self._name, self._args = name, args
        self._child = pulumi.ResourceOptions(parent=self)
        _check_place(args["region"], args["zone"])
        machine = _machine(args["machine_type"]) if "machine_type" in args else None
        further = () if machine is None else plan_fabric_networks(machine, args["zone"])
        plan = plan_network(args["cidr"], 0 if machine is None else len(plan_interfaces(machine)) - 1)
        networks = {MAIN: self._main_network(), **{network.name: self._fabric_network(network) for network in further}}
        services = self._private_services(networks[MAIN], plan) if args.get("private_services", False) else None
        flows = plan_flows(args.get("head"), further, None if services is None else plan.services_cidr)
        rules = declare_rules(name, args["project"], flows, networks, self._child)
        if args.get("log_denied", False):
            rules.append(declare_denial(name, args["project"], networks[MAIN], self._child))
        subnet = self._main_subnet(networks[MAIN], plan)
        way_out = self._nat(networks[MAIN]) if args["egress"] == Egress.NAT else self._private_apis(networks[MAIN])
        fabric_subnets = self._fabric_subnets(further, networks, plan)
        nothing = pulumi.Output.from_input("")
        head = args.get("head") is not None
        self.vpc_id = after(networks[MAIN].id, *([] if services is None else [services]))
        self.private_subnet_ids = after(pulumi.Output.all(subnet.id), *way_out, *rules)
        self.fabric_subnet_ids = after(pulumi.Output.all(*[made.id for made in fabric_subnets]), *rules)
        self.fabric_security_group_id = pulumi.Output.from_input(network_tag(name, "fabric"))
        self.head_security_group_id = pulumi.Output.from_input(network_tag(name, "head")) if head else nothing
        self.private_zone_id = self._head_zone(networks[MAIN]).name if head else nothing
        self.register_outputs(
            {
                "vpc_id": self.vpc_id,
                "private_subnet_ids": self.private_subnet_ids,
                "fabric_subnet_ids": self.fabric_subnet_ids,
                "fabric_security_group_id": self.fabric_security_group_id,
                "head_security_group_id": self.head_security_group_id,
                "private_zone_id": self.private_zone_id,
            }
        )

    def _main_network(self) -> compute.Network:
        return compute.Network(
            f"{self._name}-main",
            project=self._args["project"],
            auto_create_subnetworks=False,
            routing_mode="REGIONAL",
            mtu=JUMBO_MTU_BYTES,
            # With endpoints the one route there is leads to Google's APIs.
            delete_default_routes_on_create=self._args["egress"] != Egress.NAT,
            opts=self._child,
        )

    def _fabric_network(self, network: FabricNetwork) -> compute.Network:
        """A network of GPU NICs. A profile says itself which routes there are, and refuses to be told."""
        profile = network.profile
        return compute.Network(
            f"{self._name}-{network.name}",
            project=self._args["project"],
            auto_create_subnetworks=False,
            routing_mode="REGIONAL",
            mtu=network.mtu_bytes,
            delete_default_routes_on_create=True if profile is None else None,
            network_profile=profile and f"projects/{self._args['project']}/global/networkProfiles/{profile}",
            opts=self._child,
        )

    def _main_subnet(self, network: compute.Network, plan: NetworkPlan) -> compute.Subnetwork:
        logged = self._args.get("flow_logs", True)
        return compute.Subnetwork(
            f"{self._name}-private",
            project=self._args["project"],
            region=self._args["region"],
            network=network.id,
            ip_cidr_range=plan.private_cidr,
            private_ip_google_access=True,
            # Half of the flows, every ten minutes; they end up in the project's default log bucket, kept for 30 days.
            log_config=compute.SubnetworkLogConfigArgs(
                aggregation_interval="INTERVAL_10_MIN", flow_sampling=0.5, metadata="INCLUDE_ALL_METADATA"
            )
            if logged
            else None,
            opts=self._child,
        )

    def _fabric_subnets(
        self, further: Sequence[FabricNetwork], networks: dict[str, compute.Network], plan: NetworkPlan
    ) -> list[compute.Subnetwork]:
        places = [(network.name, subnet) for network in further for subnet in range(network.num_subnets)]
        return [
            compute.Subnetwork(
                f"{self._name}-{network}-{subnet}",
                project=self._args["project"],
                region=self._args["region"],
                network=networks[network].id,
                ip_cidr_range=cidr,
                opts=self._child,
            )
            for (network, subnet), cidr in zip(places, plan.fabric_cidrs, strict=True)
        ]

    def _nat(self, network: compute.Network) -> list[pulumi.CustomResource]:
        """The way through Cloud NAT. Traffic to Google's APIs does not take it."""
        project, region = self._args["project"], self._args["region"]
        router = compute.Router(
            f"{self._name}-nat", project=project, region=region, network=network.id, opts=self._child
        )
        nat = compute.RouterNat(
            f"{self._name}-nat",
            project=project,
            region=region,
            router=router.name,
            nat_ip_allocate_option="AUTO_ONLY",
            source_subnetwork_ip_ranges_to_nat="ALL_SUBNETWORKS_ALL_IP_RANGES",
            log_config=compute.RouterNatLogConfigArgs(enable=True, filter="ERRORS_ONLY"),
            opts=self._child,
        )
        return [nat]

    def _private_apis(self, network: compute.Network) -> list[pulumi.CustomResource]:
        """A route to Google's APIs alone, and names that lead there."""
        project = self._args["project"]
        made: list[pulumi.CustomResource] = [
            compute.Route(
                f"{self._name}-apis",
                project=project,
                network=network.id,
                dest_range=PRIVATE_API_RANGE,
                next_hop_gateway="default-internet-gateway",
                description="Google's APIs, over Google's own network",
                opts=self._child,
            )
        ]
        for key, domain in PRIVATE_API_DOMAINS.items():
            zone = self._zone(key, domain, "Google's APIs by their private addresses", network)
            for name, kind, values in ((domain, "A", PRIVATE_API_ADDRESSES), (f"*.{domain}", "CNAME", [domain])):
                record = dns.RecordSet(
                    f"{self._name}-{key}-{kind.lower()}",
                    project=project,
                    managed_zone=zone.name,
                    name=name,
                    type=kind,
                    ttl=300,
                    rrdatas=values,
                    opts=self._child,
                )
                made.append(record)
        return made

    def _private_services(self, network: compute.Network, plan: NetworkPlan) -> pulumi.CustomResource:
        """The connection over which Google's managed file systems are reached."""
        services = IPv4Network(plan.services_cidr)
        held = compute.GlobalAddress(
            f"{self._name}-services",
            project=self._args["project"],
            purpose="VPC_PEERING",
            address_type="INTERNAL",
            address=str(services.network_address),
            prefix_length=services.prefixlen,
            network=network.id,
            labels=self._args["tags"],
            opts=self._child,
        )
        return servicenetworking.Connection(
            f"{self._name}-services",
            network=network.id,
            service="servicenetworking.googleapis.com",
            reserved_peering_ranges=[held.name],
            opts=self._child,
        )

    def _head_zone(self, network: compute.Network) -> dns.ManagedZone:
        """Names that only this network resolves, so that workers find the head node wherever it has been restarted."""
        return self._zone("head", f"{self._name}.gangway.internal.", "The head node's fixed name", network)

    def _zone(self, key: str, domain: str, description: str, network: compute.Network) -> dns.ManagedZone:
        return dns.ManagedZone(
            f"{self._name}-{key}",
            project=self._args["project"],
            dns_name=domain,
            description=description,
            visibility="private",
            private_visibility_config=dns.ManagedZonePrivateVisibilityConfigArgs(
                networks=[dns.ManagedZonePrivateVisibilityConfigNetworkArgs(network_url=network.id)]
            ),
            labels=self._args["tags"],
            opts=self._child,
        )


def _check_place(region: str, zone: str) -> None:
    if not zone.startswith(f"{region}-"):
        raise InputError(
            "gangway:cluster.zone",
            "this zone is in another region",
            value=zone,
            allowed=f"a zone of {region}, such as {region}-a",
            fix=f"set gangway:region: {zone.rpartition('-')[0]}, or another zone",
        )
