"""TrainingNetwork: a private subnet with access to Google but none from outside, with its firewall as data and rules;
ServicePerimeter around the project.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import NotRequired, TypedDict, cast

import pulumi
from pulumi_gcp import accesscontextmanager, compute, dns, servicenetworking

from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import GcpMachineType
from gangway.components.core.fields import Egress
from gangway.components.core.findings import InputError
from gangway.components.core.limits import HeadPortsArgs, metrics_ports, private_network
from gangway.components.core.outputs import after, register_outputs
from gangway.components.gcp.fabric import JUMBO_MTU_BYTES, MAIN, FabricNetwork, plan_fabric_networks, plan_interfaces

# Identity-Aware Proxy documentation, "Using IAP for TCP forwarding": the source of its connections.
IAP_RANGE = "35.235.240.0/20"
ROLES = ("fabric", "head")  # roles with a network tag each: workers and the head node
# Managed Lustre documentation, "Configure a VPC network": its servers call clients back on this port.
LUSTRE_PORT = 988
# The lowest of a rule: just above the implicit denial.
LAST_PRIORITY = 65534
# VPC Service Controls documentation, "Private Google Access with VPC Service Controls": addresses of
# restricted.googleapis.com, which serves only APIs that a perimeter can hold. Machines call no others: Cloud Storage,
# Cloud Logging, Compute Engine and Cloud TPU ("Supported products and limitations"), and Artifact Registry at pkg.dev
# ("Configure restricted access for GKE private clusters"). File servers are in the network, tokens come from the
# metadata server.
RESTRICTED_API_RANGE = "199.36.153.4/30"
RESTRICTED_API_ADDRESSES = [str(address) for address in IPv4Network(RESTRICTED_API_RANGE)]
RESTRICTED_API_DOMAINS = {"apis": "googleapis.com.", "registry": "pkg.dev."}
# The range is divided into sixteenths.
PIECES_BITS = 4
MAIN_PIECES = 4


@dataclass(frozen=True)
class Flow:
    """An allowed connection in one network. `source`: a role of ours, or an address range; `protocol`: `all`, or `tcp`
    with `ports`; `ports`: of the target; empty for every port; `network`: `main`, or that of a GPU NIC.
    """

    name: str
    source: str
    target: str
    protocol: str = "all"
    ports: tuple[int, ...] = ()
    network: str = MAIN


def network_tag(stack: str, role: str) -> str:
    """The network tag of a role's machines.

    >>> network_tag("demo", "fabric")
    'demo-fabric'
    """
    return f"{stack}-{role}"


def plan_flows(
    head: HeadPortsArgs | None, networks: Sequence[FabricNetwork] = (), services_range: str | None = None
) -> tuple[Flow, ...]:
    """All allowed connections. `networks`: besides the main one; `services_range`: of the file servers, or None."""
    flows = [Flow("self", "fabric", "fabric"), Flow("iap-fabric", IAP_RANGE, "fabric", "tcp", (22,))]
    if head is not None:
        flows += [
            Flow("rendezvous", "fabric", "head", "tcp", (head["rendezvous_port"],)),
            Flow("metrics", "head", "fabric", "tcp", tuple(metrics_ports(head))),
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
    networks: Mapping[str, pulumi.Input[str]],
    opts: pulumi.ResourceOptions,
) -> list[pulumi.CustomResource]:
    """Declare a rule per flow in its network. `networks`: their ids."""
    return [_declare(stack, project, flow, networks[flow.network], opts) for flow in flows]


def declare_denial(
    stack: str, project: str, network: compute.Network, opts: pulumi.ResourceOptions
) -> pulumi.CustomResource:
    """Declare an explicit denial that is logged, unlike the implicit one."""
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
    """Let NFSv3 servers notify machines of a freed lock (Filestore, "Configure firewall rules"); without it they poll
    twice a minute. The ports of lockd and statd vary, so all are open to `servers`.
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
    stack: str, project: str, flow: Flow, network: pulumi.Input[str], opts: pulumi.ResourceOptions
) -> compute.Firewall:
    from_machines = flow.source in ROLES
    ports = [str(port) for port in flow.ports] if flow.ports else None
    return compute.Firewall(
        f"{stack}-{flow.name}",
        project=project,
        network=network,
        description=f"{flow.source} to {flow.target}",
        direction="INGRESS",
        source_tags=[network_tag(stack, flow.source)] if from_machines else None,
        source_ranges=None if from_machines else [flow.source],
        target_tags=[network_tag(stack, flow.target)],
        allows=[compute.FirewallAllowArgs(protocol=flow.protocol, ports=ports)],
        opts=opts,
    )


class TrainingNetworkArgs(TypedDict):
    """Inputs of TrainingNetwork. `head` opens a head node's ports and creates a private DNS zone
    `<name>.gangway.internal`. `machine_type` adds the networks of its GPU NICs. `private_services` connects the network
    to Google's managed services, which Managed Lustre needs. Flow logs are kept unless `flow_logs` is false;
    `log_denied` also logs what the firewall refuses.
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
    """Disjoint ranges (required for a machine's NICs); `services_cidr`: at least the /23 of one Managed Lustre."""

    private_cidr: str
    fabric_cidrs: tuple[str, ...]
    services_cidr: str


def plan_network(cidr: str, num_fabric_subnets: int = 0, place: str = "gangway:network.cidr") -> NetworkPlan:
    """`cidr` in sixteenths: four main, one per further NIC, two for services. InputError: no private /16 to /20."""
    network = private_network(cidr, place)
    pieces = list(network.subnets(prefixlen_diff=PIECES_BITS))
    main = next(network.subnets(prefixlen_diff=2))
    *_, services = network.subnets(prefixlen_diff=3)
    further = pieces[MAIN_PIECES : MAIN_PIECES + num_fabric_subnets]
    assert not any(piece.overlaps(services) for piece in further), "no machine has so many NICs"
    return NetworkPlan(str(main), tuple(map(str, further)), str(services))


def plan_machine(name: str) -> GcpMachineType:
    """The machine whose GPU NICs need networks."""
    return cast("GcpMachineType", load_provider("gcp").machine(name, "machine_type"))


class TrainingNetwork(pulumi.ComponentResource):
    """A VPC network with one private subnet, egress, a firewall, and the networks of the GPU NICs. `private_subnet_ids`
    (one subnet) and `fabric_subnet_ids` (further NICs, in the machine's order, in `fabric_network_ids`) wait for egress
    and firewall, so that machines have them all their life. `vpc_id` waits for the connection to Google's services. The
    security group ids are network tags; the head's, and `private_zone_id` (the DNS zone's name), are empty without a
    head node.
    """

    vpc_id: pulumi.Output[str]
    private_subnet_ids: pulumi.Output[list[str]]
    fabric_subnet_ids: pulumi.Output[list[str]]
    fabric_network_ids: pulumi.Output[list[str]]
    fabric_security_group_id: pulumi.Output[str]
    head_security_group_id: pulumi.Output[str]
    private_zone_id: pulumi.Output[str]

    def __init__(self, name: str, args: TrainingNetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:TrainingNetwork", name, None, opts)
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        _check_place(args["region"], args["zone"])
        machine = plan_machine(args["machine_type"]) if "machine_type" in args else None
        further = () if machine is None else plan_fabric_networks(machine, args["zone"])
        plan = plan_network(args["cidr"], 0 if machine is None else len(plan_interfaces(machine)) - 1)
        networks = {MAIN: self._main_network(), **{network.name: self._fabric_network(network) for network in further}}
        services = self._private_services(networks[MAIN], plan) if args.get("private_services", False) else None
        flows = plan_flows(args.get("head"), further, None if services is None else plan.services_cidr)
        ids: dict[str, pulumi.Input[str]] = {key: network.id for key, network in networks.items()}
        rules = declare_rules(name, args["project"], flows, ids, self._child)
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
        self.fabric_network_ids = pulumi.Output.all(
            *[networks[network.name].id for network in further for _ in range(network.num_subnets)]
        ).apply(list)
        self.fabric_security_group_id = pulumi.Output.from_input(network_tag(name, "fabric"))
        self.head_security_group_id = pulumi.Output.from_input(network_tag(name, "head")) if head else nothing
        self.private_zone_id = nothing
        if head:
            self.private_zone_id = declare_head_zone(
                name, args["project"], networks[MAIN].id, args["tags"], self._child
            )
        register_outputs(self)

    def _main_network(self) -> compute.Network:
        return compute.Network(
            f"{self._name}-main",
            project=self._args["project"],
            auto_create_subnetworks=False,
            routing_mode="REGIONAL",
            mtu=JUMBO_MTU_BYTES,
            # With endpoints the only route leads to Google's APIs.
            delete_default_routes_on_create=self._args["egress"] != Egress.NAT,
            opts=self._child,
        )

    def _fabric_network(self, network: FabricNetwork) -> compute.Network:
        """A network of GPU NICs. A profile sets its routes itself, and refuses the setting."""
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
            # Half of the flows, every ten minutes; in the project's default log bucket for 30 days.
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
        """The route through Cloud NAT. Traffic to Google's APIs bypasses it."""
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
        """A route to the Google APIs that a service perimeter can hold, and their names."""
        project = self._args["project"]
        made: list[pulumi.CustomResource] = [
            compute.Route(
                f"{self._name}-apis",
                project=project,
                network=network.id,
                dest_range=RESTRICTED_API_RANGE,
                next_hop_gateway="default-internet-gateway",
                description="Google's APIs, over Google's own network",
                opts=self._child,
            )
        ]
        for key, domain in RESTRICTED_API_DOMAINS.items():
            zone = self._zone(key, domain, "Google's APIs by their restricted addresses", network)
            for name, kind, values in ((domain, "A", RESTRICTED_API_ADDRESSES), (f"*.{domain}", "CNAME", [domain])):
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
        services = IPv4Network(plan.services_cidr)
        address = compute.GlobalAddress(
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
            reserved_peering_ranges=[address.name],
            opts=self._child,
        )

    def _zone(self, key: str, domain: str, description: str, network: compute.Network) -> dns.ManagedZone:
        args = self._args
        return _declare_zone(
            f"{self._name}-{key}", args["project"], domain, description, network.id, args["tags"], self._child
        )


def declare_head_zone(
    name: str,
    project: pulumi.Input[str],
    network: pulumi.Input[str],
    tags: dict[str, str],
    opts: pulumi.ResourceOptions,
) -> pulumi.Output[str]:
    """The name of a zone of one network only, so that workers find a replaced head node by name."""
    domain = f"{name}.gangway.internal."
    return _declare_zone(f"{name}-head", project, domain, "The head node's fixed name", network, tags, opts).name


def _declare_zone(
    name: str,
    project: pulumi.Input[str],
    domain: str,
    description: str,
    network: pulumi.Input[str],
    tags: dict[str, str],
    opts: pulumi.ResourceOptions,
) -> dns.ManagedZone:
    return dns.ManagedZone(
        name,
        project=project,
        dns_name=domain,
        description=description,
        visibility="private",
        private_visibility_config=dns.ManagedZonePrivateVisibilityConfigArgs(
            networks=[dns.ManagedZonePrivateVisibilityConfigNetworkArgs(network_url=network)]
        ),
        labels=tags,
        opts=opts,
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


# ServicePerimeter: the stack's project in a perimeter of VPC Service Controls. Untested on a real organisation.
# Google's services then serve machines only resources inside, and outside callers only by rule.

RESTRICTED = tuple(
    f"{service}.googleapis.com"
    for service in ("artifactregistry", "compute", "logging", "monitoring", "secretmanager", "storage", "tpu")
)  # services of a perimeter: all that machines call (VPC Service Controls, "Supported products and limitations")

# "Supported service method restrictions": Cloud Storage has methods; Artifact Registry has none.
READ_METHODS = {
    "storage.googleapis.com": (
        "google.storage.buckets.get",
        "google.storage.objects.get",
        "google.storage.objects.list",
    ),
    "artifactregistry.googleapis.com": ("*",),
}
# "Ingress and egress rules": any source; only the rule's identities count.
ANYWHERE = "*"


class ServicePerimeterArgs(TypedDict):
    """Inputs of ServicePerimeter. `access_policy`: the organisation's number; `operators`: may call from outside, such
    as `user:ops@example.com`; `access_levels`: from where, by names in that policy, or anywhere; `reads_from`: numbers
    of outside projects whose buckets and images machines read; `enforced`: false is a dry run that only logs.
    """

    access_policy: int
    project: str
    project_number: pulumi.Input[str]
    operators: list[str]
    access_levels: NotRequired[list[str]]
    reads_from: NotRequired[list[int]]
    enforced: bool


@dataclass(frozen=True)
class PerimeterPlan:
    """The perimeter's short name, derived from the project (which can be in only one), and its rules as data."""

    name: str
    ingress: dict[str, object]
    egress: tuple[dict[str, object], ...]


def perimeter_name(access_policy: int, short_name: str) -> str:
    """The full name.

    >>> perimeter_name(330193482019, "gangway_lab")
    'accessPolicies/330193482019/servicePerimeters/gangway_lab'
    """
    return f"accessPolicies/{access_policy}/servicePerimeters/{short_name}"


def plan_perimeter(
    access_policy: int,
    project: str,
    operators: Sequence[str],
    access_levels: Sequence[str] = (),
    reads_from: Sequence[int] = (),
) -> PerimeterPlan:
    """Allow operators from outside, and service accounts to read from the named projects."""
    levels = [f"accessPolicies/{access_policy}/accessLevels/{level}" for level in access_levels] or [ANYWHERE]
    ingress: dict[str, object] = {
        "title": "Whoever runs up",
        "ingress_from": {"identities": list(operators), "sources": [{"access_level": level} for level in levels]},
        "ingress_to": {"resources": ["*"], "operations": [{"service_name": "*"}]},
    }
    reading: dict[str, object] = {
        "title": "Data and images of other projects",
        "egress_from": {"identity_type": "ANY_SERVICE_ACCOUNT"},
        "egress_to": {
            "resources": [f"projects/{number}" for number in reads_from],
            "operations": [
                {"service_name": service, "method_selectors": [{"method": method} for method in methods]}
                for service, methods in READ_METHODS.items()
            ],
        },
    }
    # Names of perimeters have letters, digits and `_`.
    return PerimeterPlan(f"gangway_{project.replace('-', '_')}", ingress, (reading,) if reads_from else ())


class ServicePerimeter(pulumi.ComponentResource):
    """A regular perimeter around one project, whose networks can call only RESTRICTED services."""

    perimeter_name: pulumi.Output[str]

    def __init__(self, name: str, args: ServicePerimeterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:ServicePerimeter", name, None, opts)
        policy, project = args["access_policy"], args["project"]
        levels, reads_from = args.get("access_levels", []), args.get("reads_from", [])
        plan = plan_perimeter(policy, project, args["operators"], levels, reads_from)
        holds = {
            "resources": [pulumi.Output.concat("projects/", args["project_number"])],
            "restricted_services": list(RESTRICTED),
            "vpc_accessible_services": {"enable_restriction": True, "allowed_services": ["RESTRICTED-SERVICES"]},
            "ingress_policies": [plan.ingress],
            "egress_policies": list(plan.egress),
        }
        enforced = args["enforced"]
        made = accesscontextmanager.ServicePerimeter(
            f"{name}-perimeter",
            parent=f"accessPolicies/{policy}",
            name=perimeter_name(policy, plan.name),
            title=plan.name,
            description=f"The project {project}, made by Gangway",
            perimeter_type="PERIMETER_TYPE_REGULAR",
            use_explicit_dry_run_spec=None if enforced else True,
            status=cast("accesscontextmanager.ServicePerimeterStatusArgsDict", holds) if enforced else None,
            spec=None if enforced else cast("accesscontextmanager.ServicePerimeterSpecArgsDict", holds),
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.perimeter_name = made.name
        register_outputs(self)


def missing_from(resources: Sequence[str], services: Sequence[str], project_number: str) -> list[str]:
    """What an enforced perimeter with these members and restricted services lacks for the stack's project."""
    missing = [] if f"projects/{project_number}" in resources else [f"projects/{project_number}"]
    return missing + [service for service in RESTRICTED if service not in services]


def read_perimeter(
    name: str, access_policy: int, short_name: str, project_number: pulumi.Input[str], opts: pulumi.ResourceOptions
) -> pulumi.Output[str]:
    """An existing perimeter's full name, checked in a preview or `up`. InputError: it does not hold the project."""
    full_name = perimeter_name(access_policy, short_name)
    found = accesscontextmanager.ServicePerimeter.get(f"{name}-perimeter", full_name, opts=opts)

    def check(known: list[object]) -> str:
        title, status, number = known
        if title is None:
            return full_name
        held = cast("accesscontextmanager.outputs.ServicePerimeterStatus | None", status)
        resources, services = (held.resources or [], held.restricted_services or []) if held else ([], [])
        missing = missing_from(resources, services, str(number))
        if missing:
            raise InputError(
                "gangway:gcp.service_perimeter.existing",
                "this perimeter, as enforced, does not hold all that the stack needs held",
                value=full_name,
                allowed=f"a perimeter with {', '.join(missing)}",
                fix="have its administrator add that, or leave existing out and let the stack make one",
            )
        return full_name

    return pulumi.Output.all(found.title, found.status, project_number).apply(check)
