"""Facts about existing resources that a stack on Azure uses, as Resource Manager answers. Both `up` and
`gangway preflight` read them here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from typing import Any, Protocol

from gangway.components.azure.monitoring import TABLE
from gangway.stacks.providers.azure.existing_settings import ExistingConfig, resource_name

_NETWORK, _GROUP, _LOCK, _ROLE, _IDENTITY = "2024-05-01", "2021-04-01", "2020-05-01", "2022-04-01", "2023-01-31"
_ZONE, _VAULT, _WORKSPACE, _STORAGE = "2020-06-01", "2023-07-01", "2022-10-01", "2023-05-01"
# Setting -> version of the API that describes its resource; subnets are read with their network.
_VERSIONS: Mapping[str, str] = {
    "resource_group_id": _GROUP,
    "application_security_groups.fabric": _NETWORK,
    "application_security_groups.head": _NETWORK,
    "private_dns_zone_id": _ZONE,
    "file_system_id": "2024-03-01",
    "key.vault_id": _VAULT,
    "key.identity_id": _IDENTITY,
    "key.disk_encryption_set_id": "2023-10-02",
    "node_identity_id": _IDENTITY,
    "head_identity_id": _IDENTITY,
    "log_workspace_id": _WORKSPACE,
    "registry_id": "2023-07-01",
    "run_container_id": _STORAGE,
}
SUBNETS = ("subnet_id", "lustre_subnet_id")


class Get(Protocol):
    """GETs from Resource Manager: the answer, or None if there is no such resource or the caller may not read it."""

    def __call__(self, path: str, api_version: str, query: Mapping[str, str] | None = None, /) -> Any:
        """GET."""
        ...


@dataclass(frozen=True)
class SubnetFacts:
    """A subnet. `free`: addresses; None if unknown; `network`: the answer about its network; `rules`: of its security
    group by priority, with Azure's own; empty without a group; `next_hops`: of routes for all addresses.
    """

    network: Mapping[str, Any]
    subnet: Mapping[str, Any]
    free: int | None = None
    rules: tuple[Mapping[str, Any], ...] = ()
    next_hops: tuple[str, ...] = ()

    @property
    def prefixes(self) -> list[IPv4Network]:
        """Its IPv4 addresses."""
        written = self.subnet.get("addressPrefixes") or [self.subnet.get("addressPrefix")]
        return [IPv4Network(prefix) for prefix in written if prefix and ":" not in prefix]

    @property
    def peerings(self) -> list[Mapping[str, Any]]:
        """Of its network."""
        return [one["properties"] for one in self.network["properties"].get("virtualNetworkPeerings") or ()]


@dataclass(frozen=True)
class Facts:
    """The answers. `found`: by setting, None if missing; `subnets`: those that exist; `zone_networks`: ids of the
    networks that the DNS zone is linked to; `is_versioned`: the account of the run container; `key_enabled`: None if
    the vault has no such key; `lacks_roles`: pairs of a setting and a scope on which its identity has no role.
    """

    found: Mapping[str, Mapping[str, Any] | None]
    subnets: Mapping[str, SubnetFacts] = field(default_factory=dict)
    head_is_free: bool = True
    locks: tuple[str, ...] = ()
    zone_networks: tuple[str, ...] = ()
    is_versioned: bool = True
    key_enabled: bool | None = True
    has_table: bool = False
    lacks_roles: tuple[tuple[str, str], ...] = ()

    def text(self, setting: str, *path: str) -> str:
        """A text in an answer; empty if absent."""
        value: Any = self.found.get(setting)
        for step in path:
            value = (value or {}).get(step)
        return "" if value is None else str(value)


def read_facts(own: ExistingConfig, get: Get) -> Facts:
    """Asks for everything that the settings name."""
    values = own.values
    found = {name: get(values[name], version) for name, version in _VERSIONS.items() if name in values}
    subnets = {name: _subnet(values[name], get) for name in SUBNETS if name in values}
    locks = _rows(get, f"{own.resource_group_id}/providers/Microsoft.Authorization/locks", _LOCK)
    links = _rows(get, f"{own.private_dns_zone_id}/virtualNetworkLinks", _ZONE)
    blobs = None if own.run_container_id is None else get(own.run_container_id.partition("/containers/")[0], _STORAGE)
    key = None if own.key is None else get(own.key.key_id, _VAULT)
    return Facts(
        found,
        {name: facts for name, facts in subnets.items() if facts is not None},
        head_is_free=_is_free(own, get),
        locks=tuple(str(lock["name"]) for lock in locks),
        zone_networks=tuple(str(link["properties"]["virtualNetwork"]["id"]).lower() for link in links),
        is_versioned=blobs is None or bool(blobs["properties"].get("isVersioningEnabled")),
        key_enabled=None if key is None else key["properties"].get("attributes", {}).get("enabled", True),
        has_table=own.log_workspace_id is not None
        and get(f"{own.log_workspace_id}/tables/{TABLE}", _WORKSPACE) is not None,
        lacks_roles=tuple(
            (name, scope) for name, scope in _role_scopes(own, found) if not _has_role(scope, found[name], get)
        ),
    )


def _rows(get: Get, path: str, version: str) -> list[Any]:
    """Of a list; empty below a setting without a value."""
    return [] if path.startswith("None") else list((get(path, version) or {}).get("value", ()))


def _subnet(subnet_id: str, get: Get) -> SubnetFacts | None:
    network_id = subnet_id.partition("/subnets/")[0]
    network = get(network_id, _NETWORK) or {"properties": {}}
    rows = network["properties"].get("subnets") or ()
    subnet = next((one["properties"] for one in rows if one["name"].lower() == resource_name(subnet_id).lower()), None)
    if subnet is None:
        return None
    usages = [one for one in _rows(get, f"{network_id}/usages", _NETWORK) if one["id"].lower() == subnet_id.lower()]
    group = get(subnet["networkSecurityGroup"]["id"], _NETWORK) if subnet.get("networkSecurityGroup") else None
    table = get(subnet["routeTable"]["id"], _NETWORK) if subnet.get("routeTable") else None
    lists = () if group is None else (group["properties"].get(key) or () for key in _RULES)
    rules = [one["properties"] for rows in lists for one in rows]
    routes = [] if table is None else [one["properties"] for one in table["properties"].get("routes") or ()]
    return SubnetFacts(
        network,
        subnet,
        # A negative value means that Azure does not count.
        next((int(one["limit"] - one["currentValue"]) for one in usages if one["currentValue"] >= 0), None),
        tuple(sorted(rules, key=lambda rule: int(rule["priority"]))),
        tuple(one["nextHopType"] for one in routes if one["addressPrefix"] == "0.0.0.0/0"),
    )


_RULES = ("securityRules", "defaultSecurityRules")


def _is_free(own: ExistingConfig, get: Get) -> bool:
    if own.head_private_ip is None:
        return True
    query = {"ipAddress": own.head_private_ip}
    answer = get(f"{own.network_id}/CheckIPAddressAvailability", _NETWORK, query)
    return answer is None or bool(answer.get("available"))


def _role_scopes(own: ExistingConfig, found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Identities whose roles the stack does not grant, and where they need some."""
    for name in ("node_identity_id", "head_identity_id"):
        scopes = (own.resource_group_id, own.registry_id, own.run_container_id) if name in own.values else ()
        yield from ((name, scope) for scope in scopes if scope is not None)
    vault = found.get("key.vault_id")
    # Another vault has access policies, which only its owner reads.
    if own.key is not None and vault is not None and vault["properties"].get("enableRbacAuthorization"):
        yield "key.identity_id", own.key.key_id


def _has_role(scope: str, identity: Mapping[str, Any] | None, get: Get) -> bool:
    """Whether any role applies to the scope, also through a group; which actions it allows is not read. True if
    unknown.
    """
    if identity is None:
        return True
    query = {"$filter": f"assignedTo('{identity['properties']['principalId']}')"}
    answer = get(f"{scope}/providers/Microsoft.Authorization/roleAssignments", _ROLE, query)
    return answer is None or bool(answer.get("value"))
