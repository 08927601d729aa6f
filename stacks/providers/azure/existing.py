"""What must be true of existing resources that a stack on Azure uses. Pure: facts come from `existing_facts`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from gangway.components.azure.network import LUSTRE_PORTS
from gangway.components.core.findings import InputError
from gangway.components.core.limits import metrics_ports
from gangway.components.estimate.storage_sizes import GIB_PER_TIB
from gangway.stacks.base.shared import RENDEZVOUS_PORT, head_ports, scrapes
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.azure.existing_facts import SUBNETS, Facts, SubnetFacts
from gangway.stacks.providers.azure.existing_settings import PLACE, ExistingConfig, resource_name
from gangway.stacks.providers.azure.plan import AzurePlan
from gangway.stacks.providers.azure.settings import get_existing

# In the stack's region: networks, groups and keys since the machines are there; the workspace since its data collection
# rule is ("Logs Ingestion API in Azure Monitor", supported configurations).
_IN_REGION = (
    *("application_security_groups.fabric", "application_security_groups.head", "file_system_id", "key.vault_id"),
    *("key.disk_encryption_set_id", "log_workspace_id"),
)
_WAYS_OUT = frozenset({"VirtualAppliance", "VirtualNetworkGateway"})
_INTERNET = "198.51.100.1"  # any public address
_NCCL_PORT = 50000  # NCCL opens ephemeral ports between nodes
_RESERVED = 4  # "Virtual Network FAQ": of each subnet, Azure keeps the first four addresses and the last
_VAULT_ENDPOINT = "Microsoft.KeyVault"


@dataclass(frozen=True)
class Problem:
    """What is wrong with the resource of `setting`. `only_new`: no problem if the stack itself is the reason."""

    setting: str
    found: str
    allowed: str
    fix: str
    only_new: bool = False

    def to_error(self, own: ExistingConfig) -> InputError:
        """As `up` raises it."""
        value = own.values[self.setting]
        return InputError(f"{PLACE}.{self.setting}", self.found, value=value, allowed=self.allowed, fix=self.fix)


def problems(config: StackConfig, planned: AzurePlan, facts: Facts) -> Iterator[Problem]:
    """Everything that keeps the stack from using the resources."""
    own = get_existing(config)
    missing = [name for name, value in facts.found.items() if value is None]
    missing += [name for name in SUBNETS if name in own.values and name not in facts.subnets]
    for name in missing:
        found = "there is no such resource, or you may not read it"
        fix = f"check it with `az resource show --ids {own.values[name]}`, as a user with the role Reader there"
        yield Problem(name, found, "an existing resource", fix)
    yield from _places(planned, facts)
    if facts.locks:
        found = f"it has the lock {', '.join(facts.locks)}: nodes could not be replaced, and `destroy` would fail"
        fix = "remove the lock, or name another group"
        yield Problem("resource_group_id", found, "a group without locks", fix)
    if (subnet := facts.subnets.get("subnet_id")) is not None:
        yield from _subnet(config, planned, subnet)
        yield from _head_address(own, facts, subnet)
        yield from _closed_ports(config, planned, subnet)
        yield from _dns(own, facts, subnet)
    yield from _file_system(config, own, facts)
    if (subnet := facts.subnets.get("lustre_subnet_id")) is not None and planned.lustre is not None:
        yield from _lustre_subnet(subnet, facts.subnets.get("subnet_id"), planned.lustre.subnet_prefix_length)
    yield from _key(own, facts)
    yield from _stores(facts)
    for name, scope in facts.lacks_roles:
        role = "Key Vault Crypto Service Encryption User" if name.startswith("key.") else "the roles of the plan"
        principal = facts.text(name, "properties", "principalId")
        create = f"az role assignment create --scope {scope} --role ROLE --assignee-object-id {principal}"
        yield Problem(name, f"it has no role on {scope}", f"an identity with {role}", f"let its owner run `{create}`")


def _places(planned: AzurePlan, facts: Facts) -> Iterator[Problem]:
    region = planned.region.name
    places = {name: facts.text(name, "location") for name in _IN_REGION}
    places |= {name: str(one.network.get("location", "")) for name, one in facts.subnets.items()}
    for name, place in places.items():
        short = place.replace(" ", "").lower()  # "East US" and eastus are the same
        if short and short != region:
            fix = f"name one there, or set gangway:region: {short}"
            yield Problem(name, f"it is in {place}, and the stack in {region}", f"a resource in {region}", fix)


def _subnet(config: StackConfig, planned: AzurePlan, subnet: SubnetFacts) -> Iterator[Problem]:
    need, setting = planned.num_machines + 1, "subnet_id"
    if subnet.free is not None and subnet.free < need:
        fix = "name a larger subnet, or set a smaller gangway:cluster.nodes.max"
        found = f"{subnet.free} free addresses, and nodes and head need {need}"
        yield Problem(setting, found, f"a subnet with at least {need} free addresses", fix, only_new=True)
    endpoints = sorted(str(one["service"]) for one in subnet.subnet.get("serviceEndpoints") or ())
    if _VAULT_ENDPOINT not in endpoints:
        # Azure refuses a vault's rule for a subnet without (SubnetsHaveNoServiceEndpointsConfigured).
        yield Problem(
            setting,
            f"its service endpoints are {', '.join(endpoints) or 'none'}: the vault of the job's keys admits machines "
            f"by {_VAULT_ENDPOINT}",
            f"a subnet with the service endpoint {_VAULT_ENDPOINT}",
            "let its owner run `az network vnet subnet update --service-endpoints "
            f"{' '.join([*endpoints, _VAULT_ENDPOINT])}`, with the subnet in --ids",
        )
    if services := [str(one["properties"]["serviceName"]) for one in subnet.subnet.get("delegations") or ()]:
        found = f"delegated to {', '.join(services)}, so that Azure puts no machines there"
        yield Problem(setting, found, "a subnet without delegation", "name another subnet")
    if config.network.egress == "nat" and not _has_way_out(subnet):
        hops = " and ".join(subnet.next_hops) or "no route"
        yield Problem(
            setting,
            f"no way out: no NAT gateway, and {hops} for 0.0.0.0/0, while machines install Docker from the internet",
            "a NAT gateway, or a route for 0.0.0.0/0 to a firewall or gateway",
            "let its owner add a route to the firewall of the hub; with a head_image that has Docker, set "
            "gangway:network.egress: endpoints",
        )


def _has_way_out(subnet: SubnetFacts) -> bool:
    """A gateway announces a default route that no table shows: the peering then uses remote gateways. Subnets that are
    not private have default outbound access ("Default outbound access in Azure").
    """
    has_gateway = any(one.get("useRemoteGateways") for one in subnet.peerings)
    is_private = subnet.subnet.get("defaultOutboundAccess") is False
    has_default = not is_private and all(hop == "Internet" for hop in subnet.next_hops)
    has_route = bool(_WAYS_OUT & {*subnet.next_hops})
    return has_route or has_gateway or has_default or subnet.subnet.get("natGateway") is not None


def _head_address(own: ExistingConfig, facts: Facts, subnet: SubnetFacts) -> Iterator[Problem]:
    if own.head_private_ip is None:
        return
    address, setting = IPv4Address(own.head_private_ip), "head_private_ip"
    usable = [(prefix[_RESERVED], prefix[-2]) for prefix in subnet.prefixes]
    if not any(first <= address <= last for first, last in usable):
        ranges = " or ".join(f"{first} to {last}" for first, last in usable)
        fix = f"set head_private_ip: {usable[0][1]}" if usable else "name a subnet with IPv4 addresses"
        yield Problem(setting, "not a usable address of the subnet", ranges, fix)
    elif not facts.head_is_free:
        fix = f"choose one from `az network vnet subnet list-available-ips --ids {own.subnet_id}`"
        yield Problem(setting, "another machine has it", "a free address of the subnet", fix, only_new=True)


def _dns(own: ExistingConfig, facts: Facts, subnet: SubnetFacts) -> Iterator[Problem]:
    servers = (subnet.network["properties"].get("dhcpOptions") or {}).get("dnsServers")
    # DNS servers of the hub resolve what is linked to the hub's network.
    if facts.found.get("private_dns_zone_id") and not servers and own.network_id.lower() not in facts.zone_networks:
        found = f"not linked to the machines' network {resource_name(own.network_id)}: nodes would not find the head"
        fix = "let its owner link it, or leave private_dns_zone_id out: nodes then use the head's address"
        yield Problem("private_dns_zone_id", found, "a zone with a link to that network", fix)


def _closed_ports(config: StackConfig, planned: AzurePlan, subnet: SubnetFacts) -> Iterator[Problem]:
    """Connections of one machine to another in the subnet, and to the internet."""
    if not subnet.prefixes:
        return
    own, several = get_existing(config), planned.num_machines > 1
    groups = own.application_security_groups
    nodes = {str(subnet.prefixes[0][_RESERVED]), groups.fabric or ""}
    heads = {own.head_private_ip or "", groups.head or ""}
    needed = {
        f"between nodes (such as port {_NCCL_PORT}, for NCCL)": (several, nodes, nodes, _NCCL_PORT),
        f"from nodes to the head on port {RENDEZVOUS_PORT}": (several, nodes, heads, RENDEZVOUS_PORT),
        **{
            f"from the head to nodes on port {port}": (scrapes(config), heads, nodes, port)
            for port in metrics_ports(head_ports(config))
        },
    }
    closed = [
        text
        for text, (is_needed, source, target, port) in needed.items()
        if is_needed and not all(is_open(subnet, way, source, target, port) for way in ("Inbound", "Outbound"))
    ]
    # With endpoints, service tags may be open instead, whose addresses are not known here.
    if config.network.egress == "nat" and not is_open(subnet, "Outbound", nodes, {_INTERNET}, 443):
        closed.append("from nodes to the internet on port 443")
    if closed:
        found = f"its network security group refuses TCP {'; '.join(closed)}"
        fix = "let its owner allow them, for the groups of application_security_groups or for the subnet's addresses"
        yield Problem("subnet_id", found, "rules that allow these connections", fix)


def is_open(subnet: SubnetFacts, direction: str, source: set[str], target: set[str], port: int) -> bool:
    """Whether the first rule that applies allows it. Ends are addresses and ids of application security groups."""
    prefixes = (subnet.network["properties"].get("addressSpace") or {}).get("addressPrefixes", ())
    for rule in subnet.rules:
        if (
            rule["direction"] == direction
            and rule["protocol"].lower() in ("*", "tcp")
            and _has_port(rule, port)
            and _has_end(rule, "source", source, prefixes)
            and _has_end(rule, "destination", target, prefixes)
        ):
            return bool(rule["access"] == "Allow")
    return True  # without a security group, everything is open


def _has_port(rule: Mapping[str, object], port: int) -> bool:
    for text in _texts(rule, "destinationPortRange"):
        first, _, last = text.partition("-")
        if text == "*" or int(first) <= port <= int(last or first):
            return True
    return False


def _has_end(rule: Mapping[str, object], end: str, ends: set[str], network: Sequence[str]) -> bool:
    groups = rule.get(f"{end}ApplicationSecurityGroups")
    if isinstance(groups, list) and groups:
        return not {one["id"].lower() for one in groups}.isdisjoint(one.lower() for one in ends)
    addresses = [IPv4Address(one) for one in ends if one and "/" not in one]
    for text in _texts(rule, f"{end}AddressPrefix"):
        ranges = network if text == "VirtualNetwork" else [text] if text[0].isdigit() and ":" not in text else []
        is_inside = any(address in IPv4Network(one) for one in ranges for address in addresses)
        if text == "*" or is_inside or (text == "Internet" and _INTERNET in ends):
            return True
    return False


def _texts(rule: Mapping[str, object], key: str) -> list[str]:
    """Azure writes one value or several, under two names."""
    several = rule.get(f"{key}s" if key.endswith("Range") else f"{key}es")
    return [str(one) for one in (rule.get(key), *(several if isinstance(several, list) else ())) if one]


def _file_system(config: StackConfig, own: ExistingConfig, facts: Facts) -> Iterator[Problem]:
    setting = "file_system_id"
    if not facts.found.get(setting) or config.storage is None:
        return
    state = facts.text(setting, "properties", "provisioningState")
    if state not in ("", "Succeeded"):
        yield Problem(setting, f"its state is {state}", "a file system that is ready", "wait, or repair it")
    tib = facts.text(setting, "properties", "storageCapacityTiB")
    if tib and (size := round(float(tib)) * GIB_PER_TIB) != config.storage.capacity_gib:
        found = f"it has {size} GiB, and gangway:storage has {config.storage.capacity_gib}"
        fix = f"set gangway:storage.capacity_gib: {size}"
        yield Problem(setting, found, "its real size, for the figures of the plan", fix)
    if facts.text(setting, "properties", "rootSquashSettings", "mode") not in ("", "None"):
        found, fix = "it maps root to another user, and nodes write as root", "let its owner set no root squash"
        yield Problem(setting, found, "a file system without root squash", fix)
    place = facts.text(setting, "properties", "filesystemSubnet").partition("/subnets/")[0].lower()
    subnet = facts.subnets.get("subnet_id")
    if place and subnet is not None:
        peers = {str((one.get("remoteVirtualNetwork") or {}).get("id")).lower() for one in subnet.peerings}
        if place not in {own.network_id.lower(), *peers}:
            found = f"it is in {place}, to which the machines' network has no peering"
            fix = "let the owners of both networks peer them, or name another file system"
            yield Problem(setting, found, "a file system in the machines' network or a peer", fix)


def _lustre_subnet(servers: SubnetFacts, clients: SubnetFacts | None, prefix_length: int) -> Iterator[Problem]:
    need, setting = 2 ** (32 - prefix_length) - _RESERVED - 1, "lustre_subnet_id"
    if servers.free is not None and servers.free < need:
        found = f"{servers.free} free addresses, too few for the servers of this file system"
        fix = "name an empty subnet, or set a smaller gangway:storage.capacity_gib"
        yield Problem(setting, found, f"an empty subnet of at least /{prefix_length}", fix, only_new=True)
    if clients is None or not clients.prefixes or not servers.prefixes:
        return
    node, server = ({str(one.prefixes[0][_RESERVED])} for one in (clients, servers))
    ways = {"from nodes to its servers": (servers, node, server), "from its servers to nodes": (clients, server, node)}
    for text, (where, source, target) in ways.items():
        ports = [int(one.partition("-")[0]) for one in LUSTRE_PORTS]
        if closed := [str(port) for port in ports if not is_open(where, "Inbound", source, target, port)]:
            found = f"a network security group refuses TCP {text} on port {', '.join(closed)}"
            allowed = f"TCP on the ports {' and '.join(LUSTRE_PORTS)}, both ways"
            yield Problem(setting, found, allowed, "let the owner of the network allow it")


def _key(own: ExistingConfig, facts: Facts) -> Iterator[Problem]:
    key = own.key
    if key is None or not facts.found.get("key.vault_id"):
        return
    vault = resource_name(key.vault_id)
    if not facts.key_enabled:
        found = "the vault has no such key" if facts.key_enabled is None else "the key is disabled"
        fix = f"choose one from `az keyvault key list --vault-name {vault}`"
        yield Problem("key.key_url", found, "an enabled key of the vault", fix)
    if facts.text("key.vault_id", "properties", "enablePurgeProtection") != "True":
        found, allowed = "without purge protection, which storage and disks require", "a vault with purge protection"
        fix = f"let its owner run `az keyvault update --name {vault} --enable-purge-protection`"
        yield Problem("key.vault_id", found, allowed, fix)
    active = facts.text("key.disk_encryption_set_id", "properties", "activeKey", "keyUrl")
    if active and active.rpartition("/")[0].lower() != key.key_url.rpartition("/")[0].lower():
        allowed, fix = f"a set with the key {key.key_name}", "name another set, or its key in key_url and vault_id"
        yield Problem("key.disk_encryption_set_id", f"it encrypts with {active}", allowed, fix)


def _stores(facts: Facts) -> Iterator[Problem]:
    if facts.has_table:
        found = "it has the table of another stack already: alarms would count its nodes too"
        fix = "name another workspace, or leave log_workspace_id out"
        yield Problem("log_workspace_id", found, "a workspace without a table of a stack", fix, only_new=True)
    setting = "run_container_id"
    if not facts.is_versioned:
        fix = "let its owner run `az storage account blob-service-properties update --enable-versioning true`"
        found = "its account keeps no old versions, and machines overwrite records"
        yield Problem(setting, found, "an account with blob versioning", fix)
    if "True" in {facts.text(setting, "properties", key) for key in ("hasImmutabilityPolicy", "hasLegalHold")}:
        found = "an immutability policy or a legal hold keeps machines from overwriting records"
        yield Problem(setting, found, "a container without such a policy", "name another container")
