"""Facts about existing resources that the stack uses, as Azure's API answers, and what is wrong with them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Protocol

from gangway.components.azure.file_system import GIB_PER_TIB
from gangway.components.azure.monitoring import TABLE
from gangway.components.azure.network import LUSTRE_PORTS
from gangway.components.core.findings import InputError
from gangway.stacks.base.shared import METRICS_PORT, RENDEZVOUS_PORT
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.azure.existing_settings import PLACE, ExistingConfig, resource_name
from gangway.stacks.providers.azure.plan import AzurePlan
from gangway.stacks.providers.azure.settings import AzureConfig

NETWORK_API, GROUP_API, LOCK_API, ROLE_API = "2024-05-01", "2021-04-01", "2020-05-01", "2022-04-01"
# Setting -> version of the API that describes its resource.
VERSIONS: Mapping[str, str] = {
    "resource_group_id": GROUP_API,
    "application_security_groups.fabric": NETWORK_API,
    "application_security_groups.head": NETWORK_API,
    "private_dns_zone_id": "2020-06-01",
    "file_system_id": "2024-03-01",
    "key.vault_id": "2023-07-01",
    "key.identity_id": "2023-01-31",
    "key.disk_encryption_set_id": "2023-10-02",
    "node_identity_id": "2023-01-31",
    "head_identity_id": "2023-01-31",
    "log_workspace_id": "2022-10-01",
    "registry_id": "2023-07-01",
    "run_container_id": "2023-05-01",
}
# Settings whose resource must be in the stack's region: networks, groups and keys for the machines' sake, the workspace
# for its data collection rule ("Logs Ingestion API": all components in one region).
_IN_REGION = (
    *("application_security_groups.fabric", "application_security_groups.head", "file_system_id", "key.vault_id"),
    *("key.disk_encryption_set_id", "log_workspace_id"),
)
_WAYS_OUT = frozenset({"VirtualAppliance", "VirtualNetworkGateway", "Internet"})
_INTERNET = "198.51.100.1"  # any public address
_NCCL_PORT = 50000  # NCCL opens ephemeral ports between nodes
_RESERVED_FIRST = 4  # "Virtual Network FAQ": of each subnet, Azure keeps the first four addresses and the last


class Get(Protocol):
    """Reads from Resource Manager: the answer, or None where there is no such resource."""

    def __call__(self, path: str, api_version: str, query: Mapping[str, str] | None = None, /) -> Any:
        """GET."""
        ...


@dataclass(frozen=True)
class SubnetFacts:
    """A subnet. `free`: None if Azure does not count; `network`: its whole network; `rules`: by priority, with Azure's
    own; empty without a security group; `next_hops`: of the routes for all addresses.
    """

    network: Mapping[str, Any]
    subnet: Mapping[str, Any]
    free: int | None
    rules: tuple[Mapping[str, Any], ...]
    next_hops: tuple[str, ...]

    @property
    def prefixes(self) -> list[IPv4Network]:
        """Its addresses."""
        written = self.subnet.get("addressPrefixes") or [self.subnet.get("addressPrefix")]
        return [IPv4Network(prefix) for prefix in written if prefix and ":" not in prefix]


@dataclass(frozen=True)
class Facts:
    """The answers. `found`: by setting, None if missing; `subnets`: those that exist; `head_is_free`: whether nothing
    has the head's address; `lacks_roles`: identities without any role on a scope, as `setting: scope`.
    """

    found: Mapping[str, Mapping[str, Any] | None]
    subnets: Mapping[str, SubnetFacts] = field(default_factory=dict)
    head_is_free: bool = True
    locks: tuple[str, ...] = ()
    zone_networks: tuple[str, ...] = ()
    versioned: bool = True
    key_enabled: bool | None = None
    has_table: bool = False
    lacks_roles: Sequence[str] = ()

    def text(self, setting: str, *path: str) -> str:
        """A text in an answer; empty if absent."""
        value: Any = self.found.get(setting) or {}
        for step in path:
            value = (value or {}).get(step)
        return str(value or "")


@dataclass(frozen=True)
class Problem:
    """What is wrong with the resource of `setting`. `only_new`: no problem once the stack itself is the reason."""

    setting: str
    found: str
    allowed: str
    fix: str
    value: str
    only_new: bool = False

    @property
    def error(self) -> InputError:
        """As `up` raises it."""
        return InputError(f"{PLACE}.{self.setting}", self.found, value=self.value, allowed=self.allowed, fix=self.fix)


def read_facts(config: StackConfig, get: Get) -> Facts:
    """Asks for everything that the settings name."""
    own = config.section(AzureConfig).existing
    ids = {name: value for name, value in own.ids.items() if name in VERSIONS}
    found = {name: get(value, VERSIONS[name]) for name, value in ids.items()}
    subnets = {name: own.ids[name] for name in ("subnet_id", "lustre_subnet_id") if name in own.ids}
    read = {name: _read_subnet(value, get) for name, value in subnets.items()}
    group, zone, workspace, container = (
        own.resource_group_id,
        own.private_dns_zone_id,
        own.log_workspace_id,
        own.run_container_id,
    )
    locks = _rows(get, f"{group}/providers/Microsoft.Authorization/locks", LOCK_API) if group else []
    links = _rows(get, f"{zone}/virtualNetworkLinks", VERSIONS["private_dns_zone_id"]) if zone else []
    versions = None
    if container is not None:
        versions = get(f"{container.partition('/containers/')[0]}", VERSIONS["run_container_id"])
    key = None if own.key is None else get(own.key.key_id, VERSIONS["key.vault_id"])
    return Facts(
        found,
        {name: facts for name, facts in read.items() if facts is not None},
        head_is_free=_is_free(own, get),
        locks=tuple(str(lock["name"]) for lock in locks),
        zone_networks=tuple(str(link["properties"]["virtualNetwork"]["id"]).lower() for link in links),
        versioned=versions is None or bool(versions["properties"].get("isVersioningEnabled")),
        key_enabled=None if key is None else bool(key["properties"].get("attributes", {}).get("enabled", True)),
        has_table=workspace is not None
        and get(f"{workspace}/tables/{TABLE}", VERSIONS["log_workspace_id"]) is not None,
        lacks_roles=[
            f"{name}: {scope}"
            for name, scope in _role_scopes(own)
            if not _has_role(scope, str((found[name] or {}).get("properties", {}).get("principalId", "")), get)
        ],
    )


def _rows(get: Get, path: str, version: str) -> list[Any]:
    return list((get(path, version) or {}).get("value", ()))


def _read_subnet(subnet_id: str, get: Get) -> SubnetFacts | None:
    network_id = subnet_id.partition("/subnets/")[0]
    network = get(network_id, NETWORK_API)
    rows = (network or {}).get("properties", {}).get("subnets", ())
    row = next((one for one in rows if str(one["name"]).lower() == resource_name(subnet_id).lower()), None)
    if row is None:
        return None
    subnet = row["properties"]
    usages = _rows(get, f"{network_id}/usages", NETWORK_API)
    counts = [one for one in usages if str(one["id"]).lower() == subnet_id.lower() and one["currentValue"] >= 0]
    rules: list[Any] = []
    if (group := subnet.get("networkSecurityGroup")) is not None:
        answer = (get(group["id"], NETWORK_API) or {}).get("properties", {})
        rules = [one["properties"] for key in ("securityRules", "defaultSecurityRules") for one in answer.get(key, ())]
    hops: list[str] = []
    if (table := subnet.get("routeTable")) is not None:
        routes = (get(table["id"], NETWORK_API) or {}).get("properties", {}).get("routes", ())
        hops = [one["properties"]["nextHopType"] for one in routes if one["properties"]["addressPrefix"] == "0.0.0.0/0"]
    return SubnetFacts(
        network,
        subnet,
        int(counts[0]["limit"] - counts[0]["currentValue"]) if counts else None,
        tuple(sorted(rules, key=lambda rule: int(rule["priority"]))),
        tuple(hops),
    )


def _is_free(own: ExistingConfig, get: Get) -> bool:
    if own.head_private_ip is None:
        return True
    query = {"ipAddress": own.head_private_ip}
    answer = get(f"{own.network_id}/CheckIPAddressAvailability", NETWORK_API, query)
    return answer is None or bool(answer.get("available"))


def _role_scopes(own: ExistingConfig) -> Iterator[tuple[str, str]]:
    """Identities whose roles the stack does not grant, and where they need some."""
    for name in ("node_identity_id", "head_identity_id"):
        if name in own.ids:
            scopes = (own.resource_group_id, own.registry_id, own.run_container_id)
            yield from ((name, scope) for scope in scopes if scope is not None)
    if own.key is not None:
        yield "key.identity_id", own.key.key_id


def _has_role(scope: str, principal_id: str, get: Get) -> bool:
    """Whether any role reaches the scope, by a group too; which actions it allows only its owner knows."""
    query = {"$filter": f"assignedTo('{principal_id}')"}
    if not principal_id:
        return True  # the identity itself is missing, which is reported
    answer = get(f"{scope}/providers/Microsoft.Authorization/roleAssignments", ROLE_API, query)
    return bool((answer or {}).get("value"))


def problems(config: StackConfig, planned: AzurePlan, facts: Facts) -> list[Problem]:
    """Everything that keeps the stack from using the resources."""
    own = config.section(AzureConfig).existing
    missing = [name for name, value in facts.found.items() if value is None]
    missing += [name for name in ("subnet_id", "lustre_subnet_id") if name in own.ids and name not in facts.subnets]
    return [
        *(_missing(own, name) for name in missing),
        *_places(own, planned, facts),
        *_group(own, facts),
        *(_subnet(config, planned, own, facts) if "subnet_id" in facts.subnets else ()),
        *_lustre(config, planned, own, facts),
        *_key(own, facts),
        *_stores(own, facts),
        *_roles(own, facts),
    ]


def _missing(own: ExistingConfig, name: str) -> Problem:
    value = own.ids[name]
    fix = f"check it with `az resource show --ids {value}`, as a user with the role Reader there"
    return Problem(name, "there is no such resource, or you may not read it", "an existing resource", fix, value)


def _places(own: ExistingConfig, planned: AzurePlan, facts: Facts) -> Iterator[Problem]:
    region = planned.region.name
    places = {name: facts.text(name, "location") for name in _IN_REGION if name in facts.found}
    places |= {name: str(subnet.network.get("location", "")) for name, subnet in facts.subnets.items()}
    for name, place in places.items():
        # "East US" and eastus are the same.
        if place and place.replace(" ", "").lower() != region:
            yield Problem(
                name,
                f"it is in {place}, and the stack in {region}",
                f"a resource in {region}",
                f"name one there, or set gangway:region: {place.replace(' ', '').lower()}",
                own.ids[name],
            )


def _group(own: ExistingConfig, facts: Facts) -> Iterator[Problem]:
    if facts.locks and own.resource_group_id is not None:
        yield Problem(
            "resource_group_id",
            f"it has the lock {', '.join(facts.locks)}: nodes could not be replaced, and `destroy` would fail",
            "a group without locks",
            "remove the lock, or name another group",
            own.resource_group_id,
        )


def _subnet(config: StackConfig, planned: AzurePlan, own: ExistingConfig, facts: Facts) -> Iterator[Problem]:
    subnet, value = facts.subnets["subnet_id"], own.ids["subnet_id"]
    need = planned.num_machines + 1
    if subnet.free is not None and subnet.free < need:
        yield Problem(
            "subnet_id",
            f"{subnet.free} free addresses, and nodes and head need {need}",
            f"a subnet with at least {need} free addresses",
            "name a larger subnet, or set a smaller gangway:cluster.nodes.max",
            value,
            only_new=True,
        )
    endpoints = {str(one["service"]) for one in subnet.subnet.get("serviceEndpoints") or ()}
    if "Microsoft.KeyVault" not in endpoints:
        # Azure refuses a vault's rule for a subnet without (SubnetsHaveNoServiceEndpointsConfigured).
        yield Problem(
            "subnet_id",
            f"service endpoints {', '.join(sorted(endpoints)) or 'none'}: the vault of the job's keys admits machines by "
            "Microsoft.KeyVault",
            "a subnet with the service endpoint Microsoft.KeyVault",
            f"let its owner run `az network vnet subnet update --ids {value} --service-endpoints "
            f"{' '.join(sorted({*endpoints, 'Microsoft.KeyVault'}))}`",
            value,
        )
    if delegated := [str(one["properties"]["serviceName"]) for one in subnet.subnet.get("delegations") or ()]:
        found = f"delegated to {', '.join(delegated)}, so that Azure puts no machines there"
        yield Problem("subnet_id", found, "a subnet without delegation", "name another subnet", value)
    if config.network.egress == "nat":
        yield from _way_out(subnet, value)
    yield from _head_address(own, facts, subnet)
    yield from _closed_ports(own, subnet, value)
    yield from _dns(own, facts, subnet)


def _way_out(subnet: SubnetFacts, value: str) -> Iterator[Problem]:
    """A virtual WAN and a gateway announce a default route that no table shows: their peering uses remote gateways."""
    peerings = subnet.network.get("properties", {}).get("virtualNetworkPeerings") or ()
    has_gateway = any(one["properties"].get("useRemoteGateways") for one in peerings)
    direct = subnet.subnet.get("natGateway") is not None or subnet.subnet.get("defaultOutboundAccess") is True
    if not direct and not has_gateway and not _WAYS_OUT.intersection(subnet.next_hops):
        yield Problem(
            "subnet_id",
            f"no way out: no NAT gateway, and {' and '.join(subnet.next_hops) or 'no route'} for 0.0.0.0/0, while "
            "machines install Docker from the internet",
            "a NAT gateway, or a route for 0.0.0.0/0 to a firewall or gateway",
            "let its owner add a route to the firewall of the hub; with a head_image that has Docker, set "
            "gangway:network.egress: endpoints",
            value,
        )


def _head_address(own: ExistingConfig, facts: Facts, subnet: SubnetFacts) -> Iterator[Problem]:
    if own.head_private_ip is None:
        return
    address = IPv4Address(own.head_private_ip)
    usable = [(prefix[_RESERVED_FIRST], prefix[-2]) for prefix in subnet.prefixes]
    if not any(first <= address <= last for first, last in usable):
        ranges = " or ".join(f"{first} to {last}" for first, last in usable)
        fix = f"set head_private_ip: {usable[0][1]}" if usable else "name a subnet with IPv4 addresses"
        yield Problem("head_private_ip", "not a usable address of the subnet", ranges, fix, own.head_private_ip)
    elif not facts.head_is_free:
        yield Problem(
            "head_private_ip",
            "another machine has it",
            "a free address of the subnet",
            f"choose one from `az network vnet subnet list-available-ips --ids {own.subnet_id}`",
            own.head_private_ip,
            only_new=True,
        )


def _dns(own: ExistingConfig, facts: Facts, subnet: SubnetFacts) -> Iterator[Problem]:
    servers = subnet.network.get("properties", {}).get("dhcpOptions", {}).get("dnsServers")
    # DNS servers of the hub resolve what is linked to the hub's network.
    if own.private_dns_zone_id and facts.found.get("private_dns_zone_id") and not servers:
        if own.network_id.lower() not in facts.zone_networks:
            yield Problem(
                "private_dns_zone_id",
                f"not linked to the machines' network {resource_name(own.network_id)}: nodes would not find the head",
                "a zone with a link to that network",
                "let its owner link it, or leave private_dns_zone_id out: nodes then use the head's address",
                own.private_dns_zone_id,
            )


def _closed_ports(own: ExistingConfig, subnet: SubnetFacts, value: str) -> Iterator[Problem]:
    """Connections of one machine to another in the subnet, and to the internet."""
    if not subnet.prefixes:
        return
    node, head = str(subnet.prefixes[0][_RESERVED_FIRST]), own.head_private_ip or ""
    groups = own.application_security_groups
    nodes, heads = {node, groups.fabric or ""}, {head, groups.head or ""}
    needed = {
        f"between nodes (such as port {_NCCL_PORT}, for NCCL)": (nodes, nodes, _NCCL_PORT),
        f"from nodes to the head on port {RENDEZVOUS_PORT}": (nodes, heads, RENDEZVOUS_PORT),
        f"from the head to nodes on port {METRICS_PORT}": (heads, nodes, METRICS_PORT),
    }
    closed = [
        text
        for text, (source, target, port) in needed.items()
        if not all(_is_open(subnet, way, source, target, port) for way in ("Inbound", "Outbound"))
    ]
    if not _is_open(subnet, "Outbound", nodes, {_INTERNET}, 443):
        closed.append("from nodes to the internet on port 443")
    if closed:
        yield Problem(
            "subnet_id",
            f"its network security group refuses TCP {'; '.join(closed)}",
            "rules that allow these connections",
            "let its owner allow them, for the groups of application_security_groups or for the subnet's addresses",
            value,
        )


def _is_open(subnet: SubnetFacts, direction: str, source: set[str], target: set[str], port: int) -> bool:
    """Whether the first rule that applies allows it. Ends are addresses and ids of application security groups."""
    prefixes = subnet.network.get("properties", {}).get("addressSpace", {}).get("addressPrefixes", ())
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


def _has_port(rule: Mapping[str, Any], port: int) -> bool:
    for text in [rule.get("destinationPortRange"), *(rule.get("destinationPortRanges") or ())]:
        first, _, last = (text or "").partition("-")
        if text == "*" or (first and int(first) <= port <= int(last or first)):
            return True
    return False


def _has_end(rule: Mapping[str, Any], end: str, ends: set[str], network: Sequence[str]) -> bool:
    groups = {str(one["id"]).lower() for one in rule.get(f"{end}ApplicationSecurityGroups") or ()}
    if groups:
        return not groups.isdisjoint(one.lower() for one in ends)
    written = [rule.get(f"{end}AddressPrefix"), *(rule.get(f"{end}AddressPrefixes") or ())]
    addresses = [IPv4Address(one) for one in ends if one and "/" not in one]
    for text in filter(None, written):
        ranges = network if text == "VirtualNetwork" else [text] if text[0].isdigit() and ":" not in text else []
        is_inside = any(address in IPv4Network(one) for one in ranges for address in addresses)
        if text == "*" or is_inside or (text == "Internet" and _INTERNET in ends):
            return True
    return False


def _lustre(config: StackConfig, planned: AzurePlan, own: ExistingConfig, facts: Facts) -> Iterator[Problem]:
    subnet, lustre = facts.subnets.get("lustre_subnet_id"), planned.lustre
    if subnet is not None and lustre is not None and own.lustre_subnet_id is not None:
        yield from _lustre_subnet(own.lustre_subnet_id, subnet, lustre.subnet_prefix_length, facts)
    if not facts.found.get("file_system_id") or config.storage is None or own.file_system_id is None:
        return
    state = facts.text("file_system_id", "properties", "provisioningState")
    if state and state != "Succeeded":
        yield Problem(
            "file_system_id", f"its state is {state}", "a file system that is ready", "wait, or repair it",
            own.file_system_id,
        )  # fmt: skip
    tib = facts.text("file_system_id", "properties", "storageCapacityTiB")
    if tib and round(float(tib)) * GIB_PER_TIB != config.storage.capacity_gib:
        size = round(float(tib)) * GIB_PER_TIB
        yield Problem(
            "file_system_id",
            f"it has {size} GiB, and gangway:storage says {config.storage.capacity_gib}",
            "its real size, for the figures of the plan",
            f"set gangway:storage.capacity_gib: {size}",
            own.file_system_id,
        )


def _lustre_subnet(value: str, subnet: SubnetFacts, prefix_length: int, facts: Facts) -> Iterator[Problem]:
    need = 2 ** (32 - prefix_length) - _RESERVED_FIRST - 1
    if subnet.free is not None and subnet.free < need:
        yield Problem(
            "lustre_subnet_id",
            f"{subnet.free} free addresses, too few for the servers of this file system",
            f"an empty subnet of at least /{prefix_length}",
            "name an empty subnet, or set a smaller gangway:storage.capacity_gib",
            value,
            only_new=True,
        )
    clients, servers = (facts.subnets[name].prefixes if name in facts.subnets else [] for name in _BOTH)
    if not clients or not servers:
        return
    ends = {str(clients[0][_RESERVED_FIRST])}, {str(servers[0][_RESERVED_FIRST])}
    ports = [int(text.partition("-")[0]) for text in LUSTRE_PORTS]
    ways = {
        "from nodes to the servers": (subnet, *ends),
        "from the servers to nodes": (facts.subnets["subnet_id"], *ends[::-1]),
    }
    for text, (where, source, target) in ways.items():
        closed = [str(port) for port in ports if not _is_open(where, "Inbound", source, target, port)]
        if closed:
            yield Problem(
                "lustre_subnet_id",
                f"a network security group refuses TCP {text} on port {', '.join(closed)}",
                f"TCP on the ports {' and '.join(LUSTRE_PORTS)}, both ways",
                "let the owner of the network allow it",
                value,
            )


_BOTH = ("subnet_id", "lustre_subnet_id")


def _key(own: ExistingConfig, facts: Facts) -> Iterator[Problem]:
    key = own.key
    if key is None or not facts.found.get("key.vault_id"):
        return
    if not facts.key_enabled:
        found = "the vault has no such key" if facts.key_enabled is None else "the key is disabled"
        show = f"`az keyvault key list --vault-name {resource_name(key.vault_id)}` lists the keys"
        yield Problem("key.key_url", found, "an enabled key of the vault", show, key.key_url)
    if facts.text("key.vault_id", "properties", "enablePurgeProtection") != "True":
        yield Problem(
            "key.vault_id",
            "without purge protection, which storage and disks require",
            "a vault with soft delete and purge protection",
            f"let its owner run `az keyvault update --name {resource_name(key.vault_id)} --enable-purge-protection`",
            key.vault_id,
        )
    active = facts.text("key.disk_encryption_set_id", "properties", "activeKey", "keyUrl")
    if active and active.rpartition("/")[0].lower() != key.key_url.rpartition("/")[0].lower():
        yield Problem(
            "key.disk_encryption_set_id",
            f"it encrypts with {active}",
            f"a disk encryption set with the key {key.key_name}",
            "name another set, or its key in key_url and vault_id",
            key.disk_encryption_set_id,
        )


def _stores(own: ExistingConfig, facts: Facts) -> Iterator[Problem]:
    if facts.has_table and own.log_workspace_id is not None:
        yield Problem(
            "log_workspace_id",
            f"it has a table {TABLE}, of another stack: alarms would count its nodes too",
            f"a workspace without {TABLE}",
            "name another workspace, or leave log_workspace_id out",
            own.log_workspace_id,
            only_new=True,
        )
    if own.run_container_id is not None and facts.found.get("run_container_id"):
        if not facts.versioned:
            yield Problem(
                "run_container_id",
                "its account keeps no old versions, and machines overwrite records",
                "an account with blob versioning",
                "let its owner run `az storage account blob-service-properties update --enable-versioning true`",
                own.run_container_id,
            )
        if facts.text("run_container_id", "properties", "hasImmutabilityPolicy") == "True":
            yield Problem(
                "run_container_id",
                "an immutability policy refuses that machines overwrite records",
                "a container without such a policy",
                "name another container",
                own.run_container_id,
            )


def _roles(own: ExistingConfig, facts: Facts) -> Iterator[Problem]:
    for text in facts.lacks_roles:
        name, _, scope = text.partition(": ")
        role = "Key Vault Crypto Service Encryption User" if name.startswith("key.") else "the roles of the plan"
        yield Problem(
            name,
            f"it has no role on {scope}",
            f"an identity with {role}",
            f"let the owner run `az role assignment create --scope {scope} --role ROLE --assignee-object-id "
            f"{facts.text(name, 'properties', 'principalId')}`",
            own.ids[name],
        )


def address(facts: Facts) -> str:
    """The address of the file system's management server."""
    return facts.text("file_system_id", "properties", "clientInfo", "mgsAddress")
