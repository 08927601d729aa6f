"""The cost of the Azure resources. Not included: usage that no declaration fixes (see `billing.yaml`), discounts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gangway.components.azure.capacity import UP_TO_ON_DEMAND
from gangway.components.azure.fabric import is_isolated_rung
from gangway.components.azure.policies import IMAGES_TAG, LEAST_NODES_TAG, NODES_TAG, RUNG_TAG
from gangway.components.catalog.boot import load_boot
from gangway.components.catalog.loader import Catalog
from gangway.components.estimate.cost import (
    CostComponent,
    Declared,
    PriceList,
    of_resources,
    price_line,
)
from gangway.components.kubernetes.spec import RUNG_LABEL

_AZURE = "azure-native"
SCALE_SET = f"{_AZURE}:compute:VirtualMachineScaleSet"
AGENT_POOL = f"{_AZURE}:containerservice:AgentPool"
GIB_PER_TIB = 1024
# Azure documentation, "Azure managed disk types": Premium SSD, billed sizes.
DISK_TIERS = {4: 32, 6: 64, 10: 128, 15: 256, 20: 512, 30: 1024, 40: 2048, 50: 4095, 60: 8192, 70: 16384, 80: 32767}


def price_resources(resources: Sequence[Declared], catalog: Catalog, region: str) -> list[CostComponent]:
    """The bill of `resources` in `region`, nodes first. `catalog` is `load_provider("azure")`."""
    prices = PriceList(catalog, "azure", region)
    return [
        *_nodes(resources, prices),
        *(line for each in resources for line in of_resources(_price_resource(each, prices), each)),
        *_alarms(resources, prices),
    ]


def disk_tier(size_gib: float) -> int:
    """The billed size of a Premium SSD: P10 for sizes above 64 and up to 128 GiB, and so on.

    >>> disk_tier(200)
    15
    """
    return next(tier for tier, largest in DISK_TIERS.items() if size_gib <= largest)


def _nodes(resources: Sequence[Declared], prices: PriceList) -> Iterable[CostComponent]:
    for group in resources:
        if group.type == SCALE_SET:
            yield from of_resources(_group(group, prices), group)
        elif group.type == AGENT_POOL:
            yield from of_resources(_agent_pool(group, prices), group)


def _group(group: Declared, prices: PriceList) -> Iterable[CostComponent]:
    profile, tags = group.inputs["virtualMachineProfile"], group.inputs["tags"]
    market = _market(profile)
    # Every scale set starts empty; its tags say how many nodes the head gives it. Reserved capacity is paid for even
    # while unused.
    is_lower = tags[RUNG_TAG] != "0"
    standby = is_lower and market != "reservation"
    machine_type = group.inputs["sku"]["name"]
    shares_job = not is_isolated_rung(prices.catalog.machines[machine_type])
    num_nodes = int(tags[LEAST_NODES_TAG if is_lower and shares_job else NODES_TAG])
    cap = (profile.get("billingProfile") or {}).get("maxPrice")
    yield _node_price(group.name, machine_type, market, cap, num_nodes, prices, standby)
    size = profile["storageProfile"]["osDisk"]["diskSizeGB"]
    label = f"{group.name}: root disks, {size:g} GiB a node"
    yield _disk(label, size, num_nodes, prices, standby=standby)


def _market(profile: Mapping[str, Any]) -> str:
    if profile.get("capacityReservation"):
        return "reservation"
    return "spot" if profile.get("priority") == "Spot" else "on-demand"


def _agent_pool(pool: Declared, prices: PriceList) -> Iterable[CostComponent]:
    inputs = pool.inputs
    reserved = inputs.get("capacityReservationGroupId")
    market = "reservation" if reserved else "spot" if inputs.get("scaleSetPriority") == "Spot" else "on-demand"
    standby = not inputs["nodeLabels"][RUNG_LABEL].startswith("0-") and market != "reservation"
    num_nodes, cap = int(inputs["maxCount"]), inputs.get("spotMaxPrice")
    yield _node_price(pool.name, inputs["vmSize"], market, cap, num_nodes, prices, standby)
    size = inputs["osDiskSizeGB"]
    label = f"{pool.name}: root disks, {size:g} GiB a node"
    yield _disk(label, size, num_nodes, prices, standby=standby)


def _control_plane(cluster: Declared, prices: PriceList) -> Iterable[CostComponent]:
    name = cluster.name
    yield prices.service(f"{name}: control plane", "aks-cluster")
    for pool in cluster.inputs["agentPoolProfiles"]:
        number, machine_type, size = int(pool["minCount"]), pool["vmSize"], pool["osDiskSizeGB"]
        label = f"{name}: {number} x {machine_type}, on-demand"
        yield prices.service(label, f"instance-{machine_type}", number)
        yield _disk(f"{name}: root disks, {size:g} GiB a node", size, number, prices)


def _node_price(
    name: str,
    machine_type: str,
    market: str,
    cap: float | None,
    num_nodes: int,
    prices: PriceList,
    standby: bool,
) -> CostComponent:
    label = f"{name}: {num_nodes} x {machine_type}, {market}"
    quote = prices.catalog.price(machine_type, prices.region, "spot" if market == "spot" else "on-demand")
    cap_usd = None if market != "spot" or cap == UP_TO_ON_DEMAND else cap
    note = ", paid whether used or not" if market == "reservation" else ""
    return price_line(label, num_nodes, quote, kind=market, cap_usd=cap_usd, standby=standby, note=note)


def _price_resource(resource: Declared, prices: PriceList) -> Iterable[CostComponent]:
    name, inputs = resource.name, resource.inputs
    match resource.type.removeprefix(f"{_AZURE}:"):
        case "storagecache:AmlFilesystem":
            sku, size = inputs["sku"]["name"], inputs["storageCapacityTiB"] * GIB_PER_TIB
            service = f"managed-lustre-{sku.rpartition('-')[2]}"
            yield prices.service(f"{name}: {size:g} GiB, {sku}", service, size)
        case "containerservice:ManagedCluster":
            yield from _control_plane(resource, prices)
        case "compute:VirtualMachine":
            yield from _machine(resource, prices)
        case "compute:GalleryImage":
            each_gib, number = load_boot().stored_gib.value, int(inputs["tags"][IMAGES_TAG])
            label = f"{name}: {number} machine images of about {each_gib:g} GiB"
            yield prices.service(label, "snapshot-lrs", number * each_gib)
        case "containerregistry:Registry":
            sku = inputs["sku"]["name"]
            yield prices.service(f"{name}: container registry, {sku}", f"acr-{sku.lower()}")
        case "network:NatGateway":
            yield prices.service(f"{name}: NAT gateway", "nat-gateway")
        case "network:PublicIPAddress":
            yield prices.service(f"{name}: public address", "public-ip")
        case "network:PrivateEndpoint":
            yield prices.service(f"{name}: private endpoint", "private-endpoint")
        case "network:BastionHost":
            sku = inputs["sku"]["name"]
            yield prices.service(f"{name}: Bastion, {sku}", f"bastion-{sku.lower()}")
        case "privatedns:PrivateZone":
            yield prices.service(f"{name}: private DNS zone", "private-dns-zone")


def _alarms(resources: Sequence[Declared], prices: PriceList) -> Iterable[CostComponent]:
    """One line per frequency of the alarms: each costs little, and there are many."""
    rules = [one for one in resources if one.type == f"{_AZURE}:monitor:ScheduledQueryRule"]
    often: dict[str, list[Declared]] = {}
    for rule in rules:
        often.setdefault(str(rule.inputs["evaluationFrequency"]), []).append(rule)
    for frequency, alike in sorted(often.items()):
        minutes = frequency.removeprefix("PT").removesuffix("M")
        label = f"query alarms: {len(alike)}, each asks every {minutes} minutes"
        yield from of_resources([prices.service(label, f"query-alert-{frequency}", len(alike))], *alike)


def _machine(resource: Declared, prices: PriceList) -> Iterable[CostComponent]:
    name, machine_type = resource.name, resource.inputs["hardwareProfile"]["vmSize"]
    yield prices.service(f"{name}: {machine_type}, on-demand", f"instance-{machine_type}")
    size = resource.inputs["storageProfile"]["osDisk"]["diskSizeGB"]
    yield _disk(f"{name}: root disk, {size:g} GiB", size, 1, prices)


def _disk(label: str, size_gib: float, number: int, prices: PriceList, *, standby: bool = False) -> CostComponent:
    tier = disk_tier(size_gib)
    return prices.service(f"{label} (P{tier})", f"premium-ssd-p{tier}", number, standby=standby, unit="month")
