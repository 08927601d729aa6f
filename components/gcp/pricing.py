"""The cost of the Google Cloud resources, without usage that no declaration fixes (`billing.yaml`) and discounts."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gangway.components.catalog.boot import load_boot
from gangway.components.catalog.loader import Catalog, load_filestore_tiers, load_tpus
from gangway.components.catalog.prices import Kind, resolve_price
from gangway.components.estimate.cost import (
    CostComponent,
    Declared,
    PriceList,
    of_resources,
    price_line,
)
from gangway.components.gcp.gke_plan import tpu_chips
from gangway.components.gcp.slices import SlicePlan, chip_prices, plan_slice
from gangway.components.kubernetes.spec import RUNG_LABEL

TEMPLATE = "gcp:compute/instanceTemplate:InstanceTemplate"
GROUP = "gcp:compute/instanceGroupManager:InstanceGroupManager"
RESIZE_REQUEST = "gcp:compute/resizeRequest:ResizeRequest"
# Dynamic resources: the engine prepends its language.
QUEUED_TPU, BUILT_IMAGE = ":QueuedTpuRequest", ":BuiltImage"
NAT = "gcp:compute/routerNat:RouterNat"
TPU_VM = "gcp:tpu/v2Vm:V2Vm"
INSTANCE = "gcp:compute/instance:Instance"
NODE_POOL = "gcp:container/nodePool:NodePool"
# Cloud NAT pricing: per machine up to the first, above it a flat price. The second is machines per address at 64 ports.
NAT_MACHINES, NAT_MACHINES_PER_ADDRESS = 32, 1008
_KINDS: Mapping[str, Kind] = {"spot": "spot", "flex-start": "flex-start"}  # others are on demand
MARKETS = {"SPOT": "spot", "FLEX_START": "flex-start", "RESERVATION_BOUND": "reservation"}


def price_resources(
    resources: Sequence[Declared], catalog: Catalog, region: str, num_nodes_min: int | None = None
) -> list[CostComponent]:
    """The bill of `resources`, nodes first. `num_nodes_min`: size of filled lower groups, default that of the first."""
    prices = PriceList(catalog, "gcp", region)
    return [
        *_nodes(resources, prices, num_nodes_min),
        *_by_type(resources, NODE_POOL, lambda pool: _node_pool(pool, prices)),
        *_by_type(resources, QUEUED_TPU, lambda tpu: [_tpu(tpu.name, tpu.inputs, region)]),
        *_by_type(resources, TPU_VM, lambda vm: [_tpu(vm.name, _queued_inputs(vm.inputs), region)]),
        *_surroundings(resources, prices),
        *_alarms(resources, prices),
    ]


def _by_type(
    resources: Sequence[Declared], suffix: str, price: Callable[[Declared], Iterable[CostComponent]]
) -> Iterable[CostComponent]:
    for resource in resources:
        if resource.type.endswith(suffix):
            yield from of_resources(price(resource), resource)


def _nodes(resources: Sequence[Declared], prices: PriceList, num_nodes_min: int | None) -> Iterable[CostComponent]:
    templates = {r.id: r for r in resources if r.type == TEMPLATE}
    sizes = _sizes(resources)
    lower = num_nodes_min or max(sizes.values(), default=0)
    for group in resources:
        if group.type == GROUP:
            (version,) = group.inputs["versions"]
            template = templates[version["instanceTemplate"]].inputs
            yield from of_resources(_group(group.name, template, sizes[group.name], lower, prices), group)


def _group(name: str, template: Mapping[str, Any], size: int, lower: int, prices: PriceList) -> Iterable[CostComponent]:
    # A group without nodes is a lower rung, which the head fills. Reserved capacity is paid for even while unused.
    standby = not size and _market(template) != "reservation"
    num_nodes = size or lower
    yield _node_price(name, _market(template), template["machineType"], num_nodes, prices, standby)
    (disk,) = template["disks"]
    label = f"{name}: boot disks, {disk['diskSizeGb']:g} GiB a node"
    yield prices.service(label, disk["diskType"], num_nodes * disk["diskSizeGb"], standby=standby, unit="GiB-month")


def _sizes(resources: Sequence[Declared]) -> dict[str, int]:
    sizes = {r.name: int(r.inputs.get("targetSize") or 0) for r in resources if r.type == GROUP}
    for request in resources:
        if request.type == RESIZE_REQUEST:
            sizes[request.name] += int(request.inputs["resizeBy"])
    return sizes


def _market(template: Mapping[str, Any]) -> str:
    affinity = (template.get("reservationAffinity") or {}).get("type")
    model = (template.get("scheduling") or {}).get("provisioningModel")
    return "reservation" if affinity == "SPECIFIC_RESERVATION" else MARKETS.get(str(model), "on-demand")


def _node_price(
    name: str, market: str, machine_type: str, num_nodes: int, prices: PriceList, standby: bool
) -> CostComponent:
    label = f"{name}: {num_nodes} x {machine_type}, {market}"
    quote = prices.catalog.price(machine_type, prices.region, _KINDS.get(market, "on-demand"))
    note = ", paid whether used or not" if market == "reservation" else ""
    return price_line(label, num_nodes, quote, kind=market, standby=standby, note=note)


def _node_pool(pool: Declared, prices: PriceList) -> Iterable[CostComponent]:
    node, market = pool.inputs["nodeConfig"], _pool_market(pool)
    rung = (node.get("labels") or {}).get(RUNG_LABEL)
    name = _rung_label(pool.name, rung)
    number, machine_type = _pool_size(pool), node["machineType"]
    # Reserved capacity is paid for even while unused.
    standby = not _is_first(pool) and market != "reservation"
    if (host := tpu_chips(machine_type)) is not None:
        generation, chips = host
        yield _chips(f"{name}: {number} x {machine_type}", generation, number * chips, market, prices.region, standby)
    elif rung is None:
        yield prices.machines(f"{name}: {number} x {machine_type}, on-demand", machine_type, number)
    else:
        yield _node_price(name, market, machine_type, number, prices, standby)
    label = f"{name}: boot disks, {node['diskSizeGb']:g} GiB a node"
    yield prices.service(label, node["diskType"], number * node["diskSizeGb"], standby=standby, unit="GiB-month")


def _rung_label(name: str, rung: str | None) -> str:
    """A pool's name as a prefix of its lines, in which slices follow their rung.

    >>> _rung_label("demo-0-spot-2", "0-spot"), _rung_label("demo-0-spot", "0-spot")
    ('demo-0-spot: slice 2', 'demo-0-spot')
    """
    before, found, number = name.rpartition(f"-{rung}-")
    return f"{before}-{rung}: slice {number}" if rung is not None and found and number.isdigit() else name


def _pool_market(pool: Declared) -> str:
    node = pool.inputs["nodeConfig"]
    if (node.get("reservationAffinity") or {}).get("consumeReservationType") == "SPECIFIC_RESERVATION":
        return "reservation"
    return "spot" if node.get("spot") else "flex-start" if node.get("flexStart") else "on-demand"


def _pool_size(pool: Declared) -> int:
    sizes = pool.inputs["autoscaling"]
    of_rung = RUNG_LABEL in (pool.inputs["nodeConfig"].get("labels") or {})
    return int(sizes["maxNodeCount" if of_rung else "minNodeCount"])


def _tpu(name: str, inputs: Mapping[str, Any], region: str) -> CostComponent:
    plan, slices = _slice(inputs), int(inputs.get("num_slices") or 1)
    chips = plan.chips * slices
    market = "spot" if inputs["tier"] == "spot" else "reservation" if inputs.get("reservation_name") else "on-demand"
    return _chips(f"{name}: {slices} x {plan.accelerator_type}", plan.generation, chips, market, region, False)


def _chips(name: str, generation: str, chips: int, market: str, region: str, standby: bool) -> CostComponent:
    label = f"{name}, {chips} chips, {market}"
    quote = resolve_price(chip_prices(generation), region, _KINDS.get(market, "on-demand"))
    return price_line(label, chips, quote, kind=market, unit="chip-hour", standby=standby)


def _queued_inputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
    scheduling = inputs.get("schedulingConfig") or {}
    return {
        "accelerator_type": inputs.get("acceleratorType"),
        "accelerator_config": inputs.get("acceleratorConfig"),
        "tier": "spot" if scheduling.get("spot") else "on-demand",
        "reservation_name": scheduling.get("reserved"),
    }


def _slice(inputs: Mapping[str, Any]) -> SlicePlan:
    if inputs.get("accelerator_type"):
        return plan_slice(accelerator_type=inputs["accelerator_type"])
    shape = inputs["accelerator_config"]
    generations = load_tpus().generations
    generation = next(name for name, tpu in generations.items() if tpu.api_type.value == shape["type"])
    return plan_slice(generation, topology=shape["topology"])


def _surroundings(resources: Sequence[Declared], prices: PriceList) -> Iterable[CostComponent]:
    for resource in resources:
        lines = _nat(resource.name, resources, prices) if resource.type == NAT else _price_resource(resource, prices)
        yield from of_resources(lines, resource)


def _price_resource(resource: Declared, prices: PriceList) -> Iterable[CostComponent]:
    name, inputs = resource.name, resource.inputs
    match resource.type:
        case "gcp:lustre/instance:Instance":
            size, tier = int(inputs["capacityGib"]), inputs["perUnitStorageThroughput"]
            label, service = f"{name}: {size} GiB at {tier} MB/s/TiB", f"managed-lustre-{tier}"
            yield prices.service(label, service, size)
        case "gcp:filestore/instance:Instance":
            yield _filestore(resource, prices)
        case "gcp:container/cluster:Cluster":
            yield prices.service(f"{name}: control plane", "gke-cluster")
        case "gcp:compute/instance:Instance":
            yield from _instance(resource, prices)
        case "gcp:secretmanager/secretVersion:SecretVersion":
            yield prices.service(f"{name}: version", "secret-version")
        case "gcp:kms/cryptoKey:CryptoKey":
            yield prices.service(f"{name}: key version", "kms-key")
        case "gcp:dns/managedZone:ManagedZone":
            yield prices.service(f"{name}: DNS zone", "dns-zone")
        case type_ if type_.endswith(BUILT_IMAGE):
            each_gib, number = load_boot().stored_gib.value, int(inputs["keep"])
            label = f"{name}: {number} machine images of about {each_gib:g} GiB"
            yield prices.service(label, "machine-image", number * each_gib)


def _nat(name: str, resources: Sequence[Declared], prices: PriceList) -> Iterable[CostComponent]:
    """Cloud NAT: by machines without an external address (all of ours), and by its own addresses."""
    number = _machines(resources)
    if number <= NAT_MACHINES:
        yield prices.service(f"{name}: Cloud NAT, {number} machines", "cloud-nat-machine", number)
    else:
        yield prices.service(f"{name}: Cloud NAT, more than {NAT_MACHINES} machines", "cloud-nat", 1)
    addresses = max(1, math.ceil(number / NAT_MACHINES_PER_ADDRESS))
    yield prices.service(f"{name}: Cloud NAT's addresses", "public-ipv4", addresses)


def _machines(resources: Sequence[Declared]) -> int:
    """Virtual machines while the first rung is full: nodes, head, hosts of slices."""
    slices = [
        (one.inputs, int(one.inputs.get("num_slices") or 1)) for one in resources if one.type.endswith(QUEUED_TPU)
    ]
    slices += [(_queued_inputs(one.inputs), 1) for one in resources if one.type == TPU_VM]
    hosts = sum(_slice(inputs).hosts * number for inputs, number in slices)
    # A cluster's first rung and its system.
    pools = sum(_pool_size(one) for one in resources if one.type == NODE_POOL and _is_first(one))
    return sum(_sizes(resources).values()) + sum(one.type == INSTANCE for one in resources) + hosts + pools


def _is_first(pool: Declared) -> bool:
    rung = (pool.inputs["nodeConfig"].get("labels") or {}).get(RUNG_LABEL, "0-")
    return bool(rung.startswith("0-"))


def _alarms(resources: Sequence[Declared], prices: PriceList) -> Iterable[CostComponent]:
    """All alert conditions in one line: each costs little, and there are many."""
    policies = [one for one in resources if one.type == "gcp:monitoring/alertPolicy:AlertPolicy"]
    if policies:
        number = sum(len(policy.inputs["conditions"]) for policy in policies)
        yield from of_resources([prices.service(f"alarms: conditions, {number}", "alert-condition", number)], *policies)


def _filestore(resource: Declared, prices: PriceList) -> CostComponent:
    ours = {tier.api_tier: name for name, tier in load_filestore_tiers().items()}
    tier, size = ours[resource.inputs["tier"]], resource.inputs["fileShares"]["capacityGb"]
    return prices.service(f"{resource.name}: {size:g} GiB, {tier}", f"filestore-{tier}", size)


def _instance(resource: Declared, prices: PriceList) -> Iterable[CostComponent]:
    name, machine_type = resource.name, resource.inputs["machineType"]
    yield prices.machines(f"{name}: {machine_type}, on-demand", machine_type, 1)
    disk = resource.inputs["bootDisk"]["initializeParams"]
    yield prices.service(f"{name}: boot disk, {disk['size']:g} GiB", disk["type"], disk["size"], unit="GiB-month")
