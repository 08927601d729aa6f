"""Lists the Azure resources with a stack's tag: one Resource Graph query over a subscription and its resource groups.

Uses `az`'s token, so one request needs no SDK. Resource Graph lags by seconds and does not list nodes of uniform scale
sets. Permissions: Reader on the subscription.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gangway.components.azure.policies import letters
from gangway.components.azure.pricing import GIB_PER_TIB, disk_tier
from gangway.components.core.findings import InputError
from gangway.components.core.http_session import Poster, open_session
from gangway.components.core.safe_text import kql_text
from gangway.finops.audit.classify_orphans import Billed, CloudResource, Listing
from gangway.finops.audit.state import StateResource
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.azure.settings import AzureConfig

BY_REGION = False
"""Whether `regions` has an effect."""
API_URL = "https://management.azure.com"
API_VERSION = "2024-04-01"
TAG = "gangway-stack"
PAGE_SIZE = 1000
TIMEOUT_SEC = 60.0
# Copied from gangway.components.azure.storage, which would load Pulumi's whole provider.
MAX_ACCOUNT_NAME = 24
FLOW_LOGS = "flows"
_MACHINE, _SCALE_SET = "microsoft.compute/virtualmachines", "microsoft.compute/virtualmachinescalesets"
# Resource groups are in a separate table.
QUERY = """Resources
| union (ResourceContainers | where type =~ 'microsoft.resources/subscriptions/resourcegroups')
| where tags[{tag}] =~ {stack}
| project id, name, type, location, sku, properties, managedBy
| order by id asc"""
_FREE = frozenset(
    {
        *("microsoft.compute/diskencryptionsets", "microsoft.compute/proximityplacementgroups"),
        *("microsoft.compute/sshpublickeys", "microsoft.insights/datacollectionrules"),
        *("microsoft.managedidentity/userassignedidentities", "microsoft.network/networkinterfaces"),
        *("microsoft.network/networksecuritygroups", "microsoft.network/routetables"),
        *("microsoft.network/virtualnetworks", "microsoft.resources/subscriptions/resourcegroups"),
    }
)


def list_resources(config: StackConfig, regions: str | None) -> Listing:  # of all regions at once
    """The resources with the stack's tag. InputError: no credentials, a missing permission, or no answer."""
    subscription = config.section(AzureConfig).subscription_id
    return list_azure(open_session(subscription), subscription, config.stack)


def price_region(location: str) -> str:
    """The region whose prices apply at a resource's location."""
    return location


def list_azure(session: Poster, subscription: str, stack: str, api_url: str = API_URL) -> Listing:
    """List the resources with the stack's tag that the caller may read. InputError: unreachable, or no permission."""
    found = [_resource(row, stack) for row in _rows(session, subscription, stack, api_url)]
    notes = ("Resource Graph silently omits resources that you may not read",)
    return Listing(tuple(_bill_once(found)), f"subscription {subscription}", notes)


def state_keys(resource: StateResource) -> set[str]:
    """The key of a state resource in the listing: its id in lower case."""
    return {resource.id.lower()}


def _rows(session: Poster, subscription: str, stack: str, api_url: str) -> Iterator[Mapping[str, Any]]:
    url = f"{api_url}/providers/Microsoft.ResourceGraph/resources"
    options: dict[str, Any] = {"resultFormat": "objectArray", "$top": PAGE_SIZE}
    while True:
        body = {
            "subscriptions": [subscription],
            "query": QUERY.format(tag=kql_text(TAG), stack=kql_text(stack)),
            "options": options,
        }
        page = _page(session, url, body, subscription)
        yield from page["data"]
        if not page.get("$skipToken"):
            return
        options = {**options, "$skipToken": page["$skipToken"]}


def _page(session: Poster, url: str, body: Mapping[str, Any], subscription: str) -> Any:
    place = f"Azure, subscription {subscription}"
    fix = f"az login, and the role Reader: az account show --subscription {subscription}"
    try:
        reply = session.post(url, params={"api-version": API_VERSION}, json=body, timeout=TIMEOUT_SEC)
        answer = reply.json()
    except (OSError, ValueError) as problem:  # every exception of requests is an OSError
        raise InputError(place, f"request failed: {type(problem).__name__}", fix=fix) from None
    if reply.status_code != 200 or not isinstance(answer, dict) or "data" not in answer:
        text = " ".join(reply.text[:300].split())
        raise InputError(place, "request failed", value=f"{reply.status_code}: {text}", fix=fix)
    return answer


def _bill_once(resources: Sequence[CloudResource]) -> Iterator[CloudResource]:
    """A flexible scale set and its machines are both listed but billed only as machines."""
    holders = frozenset(owner for each in resources if each.kind == _MACHINE for owner in each.owners)
    for each in resources:
        is_listed = each.kind == _SCALE_SET and not each.keys.isdisjoint(holders)
        yield replace(each, billed=()) if is_listed else each


def _resource(row: Mapping[str, Any], stack: str) -> CloudResource:
    kind, properties = row["type"].lower(), row.get("properties") or {}
    return CloudResource(
        id=row["id"],
        keys=frozenset({row["id"].lower()}),
        kind=kind,
        name=row["name"],
        region=row.get("location") or "",
        owners=frozenset(owner.lower() for owner in _owners(row, properties) if owner),
        gone="deleting" if str(properties.get("provisioningState")).lower() == "deleting" else "",
        kept=_retention_reason(kind, row["name"], stack),
        billed=_bill(kind, (row.get("sku") or {}), properties),
    )


def _owners(row: Mapping[str, Any], properties: Mapping[str, Any]) -> Iterator[str]:
    """Ids of what holds it: the machine of a disk or interface, the scale set of a machine."""
    yield row.get("managedBy") or ""
    for holder in ("virtualMachine", "virtualMachineScaleSet", "privateEndpoint"):
        yield (properties.get(holder) or {}).get("id") or ""


def _bill(kind: str, sku: Mapping[str, Any], properties: Mapping[str, Any]) -> tuple[Billed, ...] | None:
    if kind in _FREE:
        return ()
    name = str(sku.get("name", ""))
    match kind:
        case "microsoft.compute/virtualmachines" if _power(properties) == "powerstate/deallocated":
            return ()  # only its disks cost, and they are listed; a stopped machine is still billed
        case "microsoft.compute/virtualmachines":
            return (_machine(properties.get("hardwareProfile", {}).get("vmSize", ""), properties, 1),)
        case "microsoft.compute/virtualmachinescalesets":
            profile = properties.get("virtualMachineProfile") or {}
            return (_machine(name, profile, float(sku.get("capacity") or 0)),)
        case "microsoft.compute/disks" if name.startswith("Premium_") and "diskSizeGB" in properties:
            return (Billed(f"premium-ssd-p{disk_tier(properties['diskSizeGB'])}"),)
        case "microsoft.storagecache/amlfilesystems":
            service = f"managed-lustre-{name.rpartition('-')[2]}"
            return (Billed(service, float(properties.get("storageCapacityTiB") or 0) * GIB_PER_TIB),)
        case "microsoft.containerregistry/registries":
            return (Billed(f"acr-{name.lower()}"),)
        case "microsoft.network/bastionhosts":
            return (Billed(f"bastion-{name.lower()}"),)
        case _ if kind in _SERVICES:
            return (Billed(_SERVICES[kind]),)
    return None


_SERVICES: Mapping[str, str] = {
    "microsoft.network/natgateways": "nat-gateway",
    "microsoft.network/publicipaddresses": "public-ip",
    "microsoft.network/privateendpoints": "private-endpoint",
    "microsoft.network/privatednszones": "private-dns-zone",
}


def _machine(machine_type: str, profile: Mapping[str, Any], quantity: float) -> Billed:
    spot = profile.get("priority") == "Spot"
    return Billed(machine_type, quantity, kind="machine", market="spot" if spot else "on-demand")


def _power(properties: Mapping[str, Any]) -> str:
    """The power state in lower case; empty if Resource Graph has none."""
    view = (properties.get("extended") or {}).get("instanceView") or {}
    return str((view.get("powerState") or {}).get("code", "")).lower()


def _retention_reason(kind: str, name: str, stack: str) -> str:
    """Why the resource outlives its stack; empty if it should not. Matches what the components retain."""
    if kind == "microsoft.resources/subscriptions/resourcegroups" and name.startswith(f"{stack}-gangway"):
        return "the resource group of the retained resources"
    account = letters(stack, MAX_ACCOUNT_NAME)
    is_run_account = name.startswith(account) and not name.startswith(f"{account}{FLOW_LOGS}")
    if kind == "microsoft.storage/storageaccounts" and is_run_account:
        return "the account of the run bucket: outlives its stack"
    if kind in ("microsoft.keyvault/vaults", "microsoft.managedidentity/userassignedidentities"):
        return "the stack's key and its users: without them the run bucket cannot be read" if "-key" in name else ""
    return ""
