"""TrainingNetwork: a private subnet with access to Azure but none from outside; its firewall, Azure Bastion, and
PrivateEndpoints of the stack's run account, registry and vault (service tags would admit all accounts).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, NotRequired

import pulumi
from pulumi_azure_native import network, privatedns

from gangway.components.azure.common import CommonArgs, common_inputs, replacing
from gangway.components.azure.storage import declare_flow_log, plan_watcher
from gangway.components.core.fields import Egress
from gangway.components.core.limits import HeadPortsArgs, metrics_ports, private_network
from gangway.components.core.outputs import after, register_outputs

# Azure Bastion documentation, "Subnet": at least a /26, with this name.
BASTION_PREFIX, BASTION_SUBNET = 26, "AzureBastionSubnet"
ROLES = ("fabric", "head")  # roles with an application security group each: workers and the head node
LUSTRE_PORTS = ("988", "1019-1023")  # Azure Managed Lustre documentation, "Network prerequisites": in and out
# Azure allows 100 to 4096; the lowest number wins. Its default rules begin at 65000.
FIRST_PRIORITY, LAST_PRIORITY, STEP = 100, 4096, 10
EVERYWHERE = "*"
HTTPS = ("443",)
# Azure Managed Lustre documentation, "Network size requirements": from the smallest file system to the largest.
LUSTRE_PREFIXES = range(23, 28)
NAT_IDLE_MINUTES = 4
SERVICE_ENDPOINTS = ("Microsoft.Storage", "Microsoft.KeyVault")  # services with endpoints in the subnet


AZURE_SERVICES: Mapping[str, str] = {
    "AzureActiveDirectory": "people's sign-in by SSH",
    "AzureContainerRegistry": "the trainer's image",
    "AzureKeyVault": "the job's member key",
    "AzureMonitor": "log lines",
    "AzureResourceManager": "a node that leaves, the head that fills a scale set",
    "Storage": "runs, data, the layers of the image",
}  # service tags reachable with `egress: endpoints`, by HTTPS, and their uses
PRIVATE = frozenset({"AzureContainerRegistry", "AzureKeyVault", "Storage"})  # replaced by private endpoints


@dataclass(frozen=True)
class Flow:
    """A connection between roles, address ranges or service tags; `ports`: of the target; empty for every port."""

    name: str
    source: str
    target: str
    protocol: str = "*"
    ports: tuple[str, ...] = ()
    direction: str = "Inbound"


@dataclass(frozen=True)
class Rule:
    """A flow with its priority; `allow` false refuses it."""

    flow: Flow
    priority: int
    allow: bool


def plan_flows(
    head: HeadPortsArgs | None,
    egress: Egress,
    lustre_cidr: str | None = None,
    bastion_cidr: str | None = None,
    *,
    private_endpoints: bool = False,
    pods: tuple[str, str] | None = None,
) -> tuple[Flow, ...]:
    """All allowed connections of the machines' subnet. `egress`: `endpoints` allows only Azure's services; `pods`:
    ranges of a Kubernetes cluster's nodes and pods, whose NICs are in no group.
    """
    flows = [Flow("self", "fabric", "fabric")]
    if pods is not None:
        # "Azure CNI Overlay networking": what a subnet's rules must allow.
        nodes, pod_range = pods
        flows += [Flow("nodes", nodes, nodes), Flow("nodes-pods", nodes, pod_range), Flow("pods", pod_range, pod_range)]
    if head is not None:
        flows += [
            Flow("rendezvous", "fabric", "head", "Tcp", (str(head["rendezvous_port"]),)),
            Flow("metrics", "head", "fabric", "Tcp", tuple(map(str, metrics_ports(head)))),
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
            Flow(f"to-{tag}", "VirtualNetwork", tag, "Tcp", HTTPS, direction="Outbound")
            for tag in AZURE_SERVICES
            if not (private_endpoints and tag in PRIVATE)
        ]
        flows += [inside, *services]
    return tuple(flows)


def plan_lustre_flows(lustre_cidr: str, client_cidr: str) -> tuple[Flow, ...]:
    """Ingress of the file system's subnet (Azure Managed Lustre, "Configure a network security group"): servers,
    clients and Azure's monitoring; egress is left to Azure.
    """
    return (
        Flow("self", lustre_cidr, lustre_cidr),
        Flow("clients", client_cidr, lustre_cidr, "Tcp", LUSTRE_PORTS),
        Flow("azure-monitor", "AzureMonitor", "VirtualNetwork", "Tcp"),
    )


def plan_rules(flows: Iterable[Flow]) -> tuple[Rule, ...]:
    """The flows as rules, followed by a denial of the rest in each of their directions."""
    flows = tuple(flows)
    allowed = [Rule(flow, FIRST_PRIORITY + STEP * index, allow=True) for index, flow in enumerate(flows)]
    denied = [
        Rule(Flow(f"refuse-{direction.lower()}", EVERYWHERE, EVERYWHERE, direction=direction), LAST_PRIORITY, False)
        for direction in sorted({flow.direction for flow in flows})
    ]
    return (*allowed, *denied)


class TrainingNetworkArgs(CommonArgs):
    """Inputs of TrainingNetwork. `head` opens a head node's ports and creates a private DNS zone
    `<name>.gangway.internal`. `lustre_prefix_length` creates a subnet of that size for one Managed Lustre file system,
    `bastion` (false) a Bastion. With `private_endpoints` (false) machines need no access to shared storage, registries
    and vaults. `pods_cidr` is of a Kubernetes cluster's pods. With `flow_log_account_id` and `flow_log_identity_id`,
    outputs of a FlowLogStore, flow logs are written there by `network_watcher` (resource id or GROUP/NAME); by default
    by Azure's own for the region, with a wait of `watcher_wait_sec` (0), only in Python programs
    (`gangway.components.core.settling`).
    """

    zone: str
    cidr: str
    egress: Egress
    head: NotRequired[HeadPortsArgs | None]
    lustre_prefix_length: NotRequired[int | None]
    bastion: NotRequired[bool]
    private_endpoints: NotRequired[bool]
    pods_cidr: NotRequired[str | None]
    flow_log_account_id: NotRequired[pulumi.Input[str] | None]
    flow_log_identity_id: NotRequired[pulumi.Input[str] | None]
    network_watcher: NotRequired[str | None]
    watcher_wait_sec: NotRequired[float]


@dataclass(frozen=True)
class NetworkPlan:
    """Disjoint subnets: machines the first quarter, Lustre in the third, Bastion in the last; None if unused."""

    private_cidr: str
    lustre_cidr: str | None
    bastion_cidr: str


def plan_network(
    cidr: str, lustre_prefix_length: int | None = None, place: str = "gangway:network.cidr"
) -> NetworkPlan:
    """Divide `cidr`. InputError: not a private IPv4 network between /16 and /20."""
    private, _, third, last = private_network(cidr, place).subnets(prefixlen_diff=2)
    *_, bastion = last.subnets(new_prefix=BASTION_PREFIX)
    if lustre_prefix_length is None:
        return NetworkPlan(str(private), None, str(bastion))
    assert lustre_prefix_length in LUSTRE_PREFIXES, "a plan of a file system says it"
    return NetworkPlan(str(private), str(next(third.subnets(new_prefix=lustre_prefix_length))), str(bastion))


class TrainingNetwork(pulumi.ComponentResource):
    """A virtual network with a private subnet, egress, a firewall; optionally subnets of Lustre and Bastion.
    `private_subnet_ids` holds the machines' only subnet, `lustre_subnet_id` is empty without a file system; both wait
    for the rest. The security group ids are application security groups of workers and head; the head's, and
    `private_zone_id` (the DNS zone's name), are empty without one.
    """

    vpc_id: pulumi.Output[str]
    private_subnet_ids: pulumi.Output[list[str]]
    lustre_subnet_id: pulumi.Output[str]
    fabric_security_group_id: pulumi.Output[str]
    head_security_group_id: pulumi.Output[str]
    private_zone_id: pulumi.Output[str]

    def __init__(self, name: str, args: TrainingNetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:TrainingNetwork", name, None, replacing(opts))
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        self._plan = plan_network(args["cidr"], args.get("lustre_prefix_length"))
        head, bastion = args.get("head"), args.get("bastion", False)
        self._groups = {role: self._machine_group(role) for role in (ROLES if head is not None else ROLES[:1])}
        self._network = self._virtual_network()
        nat = self._nat()
        private = self._private_subnet(nat, bastion)
        lustre = self._lustre_subnet(nat, self._plan.lustre_cidr, private) if self._plan.lustre_cidr else None
        made = [private, *([] if lustre is None else [lustre])]
        if bastion:
            self._bastion(made[-1])
        account, identity = args.get("flow_log_account_id"), args.get("flow_log_identity_id")
        if account is not None and identity is not None:
            watcher = plan_watcher(args.get("network_watcher"), args["location"], place="network_watcher")
            place, wait_sec = (args["location"], args["tags"], self._child), args.get("watcher_wait_sec", 0)
            declare_flow_log(name, self._network.id, (account, identity), watcher, wait_sec, *place)
        nothing = pulumi.Output.from_input("")
        self.vpc_id = self._network.id
        # Azure changes one subnet of a network at a time: a machine created meanwhile would fail.
        self.private_subnet_ids = after(pulumi.Output.all(private.id), *made)
        self.lustre_subnet_id = nothing if lustre is None else lustre.id
        self.fabric_security_group_id = self._groups["fabric"].id
        self.head_security_group_id = self._groups["head"].id if head is not None else nothing
        self.private_zone_id = self._head_zone() if head is not None else nothing
        register_outputs(self)

    @property
    def _zones(self) -> list[str] | None:
        return [self._args["zone"]] if self._args["zone"] else None

    def _virtual_network(self) -> network.VirtualNetwork:
        return network.VirtualNetwork(
            f"{self._name}-network",
            **common_inputs(self._args),
            address_space=network.AddressSpaceArgs(address_prefixes=[self._args["cidr"]]),
            opts=self._child,
        )

    def _machine_group(self, role: str) -> network.ApplicationSecurityGroup:
        return network.ApplicationSecurityGroup(
            f"{self._name}-{role}",
            **common_inputs(self._args),
            opts=self._child,
        )

    def _security_group(self, label: str, rules: tuple[Rule, ...]) -> network.NetworkSecurityGroup:
        """A subnet's rules in one resource, so that they are never partly in effect."""
        return network.NetworkSecurityGroup(
            f"{self._name}-{label}",
            **common_inputs(self._args),
            security_rules=[self._rule(rule) for rule in rules],
            opts=self._child,
        )

    def _rule(self, rule: Rule) -> network.SecurityRuleArgs:
        flow = rule.flow
        ports = list(flow.ports) or ["*"]
        source, target = self._groups.get(flow.source), self._groups.get(flow.target)
        return network.SecurityRuleArgs(
            name=flow.name,
            priority=rule.priority,
            access="Allow" if rule.allow else "Deny",
            direction=flow.direction,
            protocol=flow.protocol,
            source_port_range="*",
            source_address_prefix=flow.source if source is None else None,
            source_application_security_groups=None if source is None else [_group(source)],
            destination_address_prefix=flow.target if target is None else None,
            destination_application_security_groups=None if target is None else [_group(target)],
            # Azure takes one port range in the one field, and several in the other.
            destination_port_range=ports[0] if len(ports) == 1 else None,
            destination_port_ranges=ports if len(ports) > 1 else None,
        )

    def _public_address(self, label: str) -> network.PublicIPAddress:
        return network.PublicIPAddress(
            f"{self._name}-{label}",
            **common_inputs(self._args),
            sku=network.PublicIPAddressSkuArgs(name="Standard"),
            public_ip_allocation_method="Static",
            zones=self._zones,
            opts=self._child,
        )

    def _nat(self) -> network.NatGateway:
        return network.NatGateway(
            f"{self._name}-nat",
            **common_inputs(self._args),
            sku=network.NatGatewaySkuArgs(name="Standard"),
            public_ip_addresses=[network.SubResourceArgs(id=self._public_address("nat").id)],
            idle_timeout_in_minutes=NAT_IDLE_MINUTES,
            zones=self._zones,
            opts=self._child,
        )

    def _private_subnet(self, nat: network.NatGateway, bastion: bool) -> network.Subnet:
        plan = self._plan
        flows = plan_flows(
            self._args.get("head"),
            self._args["egress"],
            plan.lustre_cidr,
            plan.bastion_cidr if bastion else None,
            private_endpoints=self._args.get("private_endpoints", False),
            pods=None if (pods := self._args.get("pods_cidr")) is None else (plan.private_cidr, pods),
        )
        return self._subnet("private", plan.private_cidr, nat, self._security_group("private", plan_rules(flows)))

    def _lustre_subnet(self, nat: network.NatGateway, cidr: str, before: network.Subnet) -> network.Subnet:
        """The file system's own: its servers need Azure's services, so it uses the NAT gateway as well."""
        rules = self._security_group("lustre", plan_rules(plan_lustre_flows(cidr, self._plan.private_cidr)))
        return self._subnet("lustre", cidr, nat, rules, before)

    def _subnet(
        self,
        label: str,
        cidr: str,
        nat: network.NatGateway,
        rules: network.NetworkSecurityGroup,
        before: network.Subnet | None = None,
    ) -> network.Subnet:
        return network.Subnet(
            f"{self._name}-{label}",
            resource_group_name=self._args["resource_group_name"],
            virtual_network_name=self._network.name,
            address_prefix=cidr,
            default_outbound_access=False,
            nat_gateway=network.SubResourceArgs(id=nat.id),
            network_security_group=network.NetworkSecurityGroupArgs(id=rules.id),
            # Free, over Azure's network, and accounts and vaults can restrict access to the subnet.
            service_endpoints=[
                network.ServiceEndpointPropertiesFormatArgs(service=service) for service in SERVICE_ENDPOINTS
            ],
            opts=self._after_subnet(before),
        )

    def _after_subnet(self, before: network.Subnet | None) -> pulumi.ResourceOptions:
        """After another subnet: Azure refuses to change two of a network at once."""
        later = pulumi.ResourceOptions(depends_on=[] if before is None else [before])
        return pulumi.ResourceOptions.merge(self._child, later)

    def _bastion(self, before: network.Subnet) -> None:
        args = self._args
        subnet = network.Subnet(
            f"{self._name}-bastion",
            resource_group_name=args["resource_group_name"],
            virtual_network_name=self._network.name,
            subnet_name=BASTION_SUBNET,
            address_prefix=self._plan.bastion_cidr,
            default_outbound_access=False,
            opts=self._after_subnet(before),
        )
        address = self._public_address("bastion")
        network.BastionHost(
            f"{self._name}-bastion",
            **common_inputs(args),
            sku=network.SkuArgs(name="Standard"),
            enable_tunneling=True,
            ip_configurations=[
                network.BastionHostIPConfigurationArgs(
                    name="bastion",
                    subnet=network.SubResourceArgs(id=subnet.id),
                    public_ip_address=network.SubResourceArgs(id=address.id),
                )
            ],
            # A network has at most one Bastion.
            opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True),
        )

    def _head_zone(self) -> pulumi.Output[str]:
        """A zone of this network only, so that workers find a replaced head node by name."""
        name = f"{self._name}.gangway.internal"
        zone, link = _declare_zone(f"{self._name}-head", name, self._args, self._network.id, self._child)
        return after(zone.name, link)


def _declare_zone(
    label: str, name: str, args: CommonArgs, network_id: pulumi.Input[str], opts: pulumi.ResourceOptions
) -> tuple[privatedns.PrivateZone, privatedns.VirtualNetworkLink]:
    place = {**common_inputs(args), "location": "global"}
    zone = privatedns.PrivateZone(label, private_zone_name=name, **place, opts=opts)
    link = privatedns.VirtualNetworkLink(
        label,
        private_zone_name=zone.name,
        virtual_network=privatedns.SubResourceArgs(id=network_id),
        registration_enabled=False,
        **place,
        opts=opts,
    )
    return zone, link


def _group(group: network.ApplicationSecurityGroup) -> network.ApplicationSecurityGroupArgs:
    return network.ApplicationSecurityGroupArgs(id=group.id)


class PrivateService(NamedTuple):
    """`part`: the target as Azure Private Link calls it. `zone`: maps the public name to the endpoint."""

    part: str
    zone: str


PRIVATE_SERVICES = {
    "account": PrivateService("blob", "privatelink.blob.core.windows.net"),
    "registry": PrivateService("registry", "privatelink.azurecr.io"),
    "vault": PrivateService("vault", "privatelink.vaultcore.azure.net"),
}


class PrivateEndpointsArgs(CommonArgs):
    """Inputs of PrivateEndpoints. `subnet_id` is in `network_id`; `registry_id` must be Premium."""

    subnet_id: pulumi.Input[str]
    network_id: pulumi.Input[str]
    account_id: pulumi.Input[str]
    registry_id: pulumi.Input[str]
    vault_id: pulumi.Input[str]


class PrivateEndpoints(pulumi.ComponentResource):
    """An endpoint and a zone per service. `subnet_id`: the machines' subnet, known once all names resolve."""

    subnet_id: pulumi.Output[str]

    def __init__(self, name: str, args: PrivateEndpointsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:PrivateEndpoints", name, None, replacing(opts))
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        targets = {"account": args["account_id"], "registry": args["registry_id"], "vault": args["vault_id"]}
        named: list[pulumi.CustomResource] = []
        for what, target in targets.items():
            named = [*named, *self._endpoint(what, target, PRIVATE_SERVICES[what], named)]
        self.subnet_id = after(args["subnet_id"], *named)
        register_outputs(self)

    def _endpoint(
        self, what: str, target: pulumi.Input[str], service: PrivateService, before: list[pulumi.CustomResource]
    ) -> list[pulumi.CustomResource]:
        """An endpoint, after those `before`: Azure changes a subnet once at a time."""
        args = self._args
        endpoint = network.PrivateEndpoint(
            f"{self._name}-{what}",
            **common_inputs(args),
            subnet=network.SubnetArgs(id=args["subnet_id"]),
            private_link_service_connections=[
                network.PrivateLinkServiceConnectionArgs(
                    name=what, private_link_service_id=target, group_ids=[service.part]
                )
            ],
            opts=pulumi.ResourceOptions.merge(self._child, pulumi.ResourceOptions(depends_on=before)),
        )
        zone, link = _declare_zone(f"{self._name}-{what}", service.zone, args, args["network_id"], self._child)
        group = network.PrivateDnsZoneGroup(
            f"{self._name}-{what}",
            resource_group_name=args["resource_group_name"],
            private_endpoint_name=endpoint.name,
            private_dns_zone_group_name="default",
            private_dns_zone_configs=[network.PrivateDnsZoneConfigArgs(name=what, private_dns_zone_id=zone.id)],
            opts=self._child,
        )
        return [group, link]
