"""The cost of the AWS resources, and a check of the catalogue's machine types against EC2."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from gangway.components.catalog.boot import load_boot
from gangway.components.catalog.loader import Catalog
from gangway.components.catalog.prices import PriceQuote
from gangway.components.catalog.schema import EfaFabric, MachineType
from gangway.components.core.findings import InputError
from gangway.components.estimate.cost import (
    CostComponent,
    Declared,
    PriceList,
    of_resources,
    price_line,
)

Answer = Mapping[str, Any]
Value = str | int | float | None

QUEUE_TAG = ("gangway:sized-by", "queue")  # tag of a group that a queue of jobs sizes
GP3_MIBPS = 125  # throughput of a gp3 volume without extra cost (Amazon EBS user guide, "General Purpose SSD volumes")
NOTHING_PAID: Mapping[str, PriceQuote] = {}
_PERFORMANCE = re.compile(r"(?:Up to )?(?:(\d+)x )?([\d.]+) Gigabit$")


class Ec2Client(Protocol):
    """The part of `boto3.client("ec2")` that is used here."""

    def get_paginator(self, operation_name: str) -> Any:
        """As in boto3."""
        ...


@dataclass(frozen=True)
class Difference:
    """A field on which the catalogue and EC2 disagree; `catalogue` is None if unknown there."""

    machine_type: str
    field: str
    catalogue: Value
    live: Value

    def to_json(self) -> dict[str, Value]:
        """The difference as plain JSON data."""
        return asdict(self)


def fetch_types(client: Ec2Client, place: str) -> list[Answer]:
    """Every instance type of the region, about ten requests. InputError at `place`: EC2 is unreachable or refuses."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        pages = client.get_paginator("describe_instance_types").paginate()
        return [row for page in pages for row in page["InstanceTypes"]]
    except (BotoCoreError, ClientError) as problem:
        raise InputError(
            place,
            "EC2 did not answer",
            value=str(problem),
            allowed="credentials that may call ec2:DescribeInstanceTypes, and a region of AWS",
            fix="sign in (aws sso login, or AWS_PROFILE) and try again; without --live nothing is asked",
        ) from None


def compare(machines: Iterable[MachineType], answer: Sequence[Answer]) -> list[Difference]:
    """Differences between the catalogue and `answer`, and missing EFA types; omitted fields and types do not count."""
    live = {row["InstanceType"]: row for row in answer}
    known = {machine.name: machine for machine in machines if machine.provider == "aws"}
    found = [
        difference for name, machine in known.items() if name in live for difference in _of_one(machine, live[name])
    ]
    lacking = [name for name, row in live.items() if name not in known and _trains_over_efa(row)]
    return [*found, *(Difference(name, "machine_type", None, name) for name in sorted(lacking))]


def not_offered(machines: Iterable[MachineType], answer: Sequence[Answer]) -> list[str]:
    """The catalogue's AWS machines that the answer's region lacks."""
    offered = {row["InstanceType"] for row in answer}
    return [machine.name for machine in machines if machine.provider == "aws" and machine.name not in offered]


def _of_one(machine: MachineType, row: Answer) -> Iterable[Difference]:
    stated = {**_of_machine(machine), **_of_fabric(machine)}
    for field, value in {**_live_machine(row), **_live_network(row)}.items():
        if value is not None and field in stated and stated[field] != value:
            yield Difference(machine.name, field, stated[field], value)


def _of_machine(machine: MachineType) -> dict[str, Value]:
    return {
        "architecture": machine.architecture,
        "num_accelerators": machine.num_accelerators.value,
        "accelerator_memory_gib": machine.accelerator_memory_gib.value,
        "vcpus": machine.vcpus.value,
        "memory_gib": machine.memory_gib.value,
        "network_gbps": machine.network_gbps.value,
        "instance_store_gib": machine.instance_store_gib.value,
    }


def _of_fabric(machine: MachineType) -> dict[str, Value]:
    fabric = machine.fabric
    if not isinstance(fabric, EfaFabric):
        return {"max_efa_interfaces": 0}
    runs = fabric.layout.value
    return {
        "max_efa_interfaces": fabric.max_efa_interfaces.value,
        "num_cards": fabric.num_cards.value,
        "max_interfaces of each card": _spans([(run.last - run.first + 1, run.max_interfaces) for run in runs]),
    }


def _live_machine(row: Answer) -> dict[str, Value]:
    devices = [*row.get("GpuInfo", {}).get("Gpus", ()), *(row.get("NeuronInfo") or {}).get("NeuronDevices", ())]
    architectures = row.get("ProcessorInfo", {}).get("SupportedArchitectures", ())
    memory = devices[0].get("MemoryInfo", {}).get("SizeInMiB") if devices else None
    return {
        "architecture": architectures[0] if len(architectures) == 1 else None,
        "num_accelerators": sum(device["Count"] for device in devices) or None,
        "accelerator_memory_gib": None if memory is None else round(memory / 1024, 2),
        "vcpus": row.get("VCpuInfo", {}).get("DefaultVCpus"),
        "memory_gib": row["MemoryInfo"]["SizeInMiB"] / 1024 if "MemoryInfo" in row else None,
        "network_gbps": _gbps(row.get("NetworkInfo", {}).get("NetworkPerformance", "")),
        "instance_store_gib": round(row.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0) * 1e9 / 2**30),
    }


def _live_network(row: Answer) -> dict[str, Value]:
    network = row.get("NetworkInfo", {})
    cards = network.get("NetworkCards", ())
    efa = network.get("EfaInfo", {}).get("MaximumEfaInterfaces")
    return {
        "max_efa_interfaces": 0 if network.get("EfaSupported") is False else efa,
        "num_cards": network.get("MaximumNetworkCards"),
        "max_interfaces of each card": _spans([(1, card["MaximumNetworkInterfaces"]) for card in cards]) or None,
    }


def _spans(counted: Sequence[tuple[int, int | None]]) -> str:
    """`1 x 2, 16 x 4`: how many cards in a row take how many interfaces."""
    spans: list[tuple[int, int | None]] = []
    for cards, most in counted:
        before = spans.pop() if spans and spans[-1][1] == most else (0, most)
        spans.append((before[0] + cards, most))
    return ", ".join(f"{cards} x {'unknown' if most is None else most}" for cards, most in spans)


def _gbps(performance: str) -> float | None:
    """`8x 100 Gigabit` -> 800; None for words such as `High`."""
    match = _PERFORMANCE.match(performance)
    return int(match[1] or 1) * float(match[2]) if match else None


def _trains_over_efa(row: Answer) -> bool:
    return bool(row.get("NetworkInfo", {}).get("EfaSupported") and ("GpuInfo" in row or "NeuronInfo" in row))


def price_resources(
    resources: Sequence[Declared], catalog: Catalog, region: str, paid: Mapping[str, PriceQuote] = NOTHING_PAID
) -> list[CostComponent]:
    """The bill of `resources` in `region`, nodes first. `paid`: price of an owned block's node-hour, by group."""
    prices = PriceList(catalog, "aws", region)
    return [*_nodes(resources, prices, paid), *_surroundings(resources, prices), *_monitoring(resources, prices)]


def _nodes(resources: Sequence[Declared], prices: PriceList, paid: Mapping[str, PriceQuote]) -> Iterable[CostComponent]:
    templates, opened = _templates(resources), _opened_sizes(resources)
    groups = [one for one in resources if one.type == "aws:autoscaling/group:Group"]
    # The first group that a queue sizes holds all nodes when there is work.
    first = next((group for group in groups if _is_sized_by_queue(group)), None)
    for group in groups:
        standby = group.inputs.get("desiredCapacity") is None and group is not first
        of_block = paid.get(group.name)
        yield from of_resources(_group(group, templates, opened, prices, standby, of_block), group)


def _group(
    group: Declared,
    templates: Mapping[str, Declared],
    opened: Mapping[str, int],
    prices: PriceList,
    standby: bool,
    paid: PriceQuote | None,
) -> Iterable[CostComponent]:
    market, offers = _launches(group, templates)
    cap_usd = _spot_cap(group, offers[0]) if market == "spot" else None
    machine_types = [template.inputs["instanceType"] for template in offers]
    desired = group.inputs.get("desiredCapacity")
    # A closed group costs its price as soon as it opens.
    num_nodes = opened.get(group.id) or int(group.inputs["maxSize"] if desired is None else desired or 0)
    disk, mibps = _root_disk(offers[0])
    lines = [_node_price(group.name, market, name, num_nodes, prices, standby, cap_usd, paid) for name in machine_types]
    # The type that will launch is unknown: if one has no price the result is unknown, else the most expensive counts.
    dearest = max(lines, key=lambda price: math.inf if price.hourly is None else price.hourly)
    highest = max((price.price_high or price.price or 0.0) for price in lines)
    yield dearest if dearest.price is None or highest <= dearest.price else replace(dearest, price_high=highest)
    label = f"{group.name}: root volumes, {disk:g} GiB a node"
    yield prices.service(label, "ebs-gp3", num_nodes * disk, standby=standby)
    if (more_mibps := mibps - GP3_MIBPS) > 0:
        label = f"{group.name}: root volumes, {more_mibps:g} MiB/s a node beyond gp3's own"
        yield prices.service(label, "ebs-gp3-throughput", num_nodes * more_mibps, standby=standby)


def _is_sized_by_queue(group: Declared) -> bool:
    key, value = QUEUE_TAG
    return any(tag["key"] == key and tag["value"] == value for tag in group.inputs.get("tags") or ())


def _templates(resources: Sequence[Declared]) -> dict[str, Declared]:
    return {r.id: r for r in resources if r.type == "aws:ec2/launchTemplate:LaunchTemplate"}


def _opened_sizes(resources: Sequence[Declared]) -> dict[str, int]:
    schedules = [r.inputs for r in resources if r.type == "aws:autoscaling/schedule:Schedule"]
    return {inputs["autoscalingGroupName"]: int(inputs["maxSize"]) for inputs in schedules if inputs["maxSize"]}


def _root_disk(template: Declared) -> tuple[float, float]:
    """Size and throughput of the root disk, the only one in our templates."""
    (disk,) = template.inputs["blockDeviceMappings"]
    return float(disk["ebs"]["volumeSize"]), float(disk["ebs"].get("throughput") or GP3_MIBPS)


def _launches(group: Declared, templates: Mapping[str, Declared]) -> tuple[str, list[Declared]]:
    mixed = group.inputs.get("mixedInstancesPolicy")
    if mixed is None:
        template = templates[group.inputs["launchTemplate"]["id"]]
        return (template.inputs.get("instanceMarketOptions") or {}).get("marketType", "on-demand"), [template]
    on_demand = mixed["instancesDistribution"]["onDemandPercentageAboveBaseCapacity"]
    overrides = mixed["launchTemplate"]["overrides"]
    offers = [templates[override["launchTemplateSpecification"]["launchTemplateId"]] for override in overrides]
    return "on-demand" if on_demand else "spot", offers


def _spot_cap(group: Declared, template: Declared) -> float | None:
    mixed = group.inputs.get("mixedInstancesPolicy")
    if mixed is None:
        cap = (template.inputs["instanceMarketOptions"].get("spotOptions") or {}).get("maxPrice")
    else:
        cap = mixed["instancesDistribution"].get("spotMaxPrice")
    return None if cap is None else float(cap)


def _node_price(
    name: str,
    market: str,
    machine_type: str,
    num_nodes: int,
    prices: PriceList,
    standby: bool,
    cap_usd: float | None,
    paid: PriceQuote | None,
) -> CostComponent:
    label = f"{name}: {num_nodes} x {machine_type}, {market}"
    if market == "capacity-block" and paid is not None:
        return price_line(f"{label}, paid before", num_nodes, paid, kind=market, standby=standby)
    if market == "capacity-block":
        # No hourly rate: it would count the purchase again.
        why = f"a capacity block's hours are paid when it is bought{_paid(prices, machine_type)}"
        return CostComponent(f"{label}, paid before", "hours", num_nodes, None, 0.0, why, "", "", standby)
    quote = prices.catalog.price(machine_type, prices.region, "spot" if market == "spot" else "on-demand")
    return price_line(label, num_nodes, quote, kind=market, cap_usd=cap_usd, standby=standby)


def _paid(prices: PriceList, machine_type: str) -> str:
    """The catalogue's price of a node-hour in a block, if any; the bill of an owned block is unknown."""
    quote = prices.catalog.price(machine_type, prices.region, "capacity-block")
    if quote is None:
        return "; the catalogue has no price of one"
    seen = f"{quote.source}, {quote.expected.dated}, {quote.expected.confidence}"
    return f": about {quote.usd:g} USD for a node's hour ({seen})"


def _surroundings(resources: Sequence[Declared], prices: PriceList) -> Iterable[CostComponent]:
    templates = _templates(resources)
    for resource in resources:
        yield from of_resources(_price_resource(resource, templates, prices), resource)
    interfaces = [
        resource
        for resource in resources
        if resource.type == "aws:ec2/vpcEndpoint:VpcEndpoint" and resource.inputs["vpcEndpointType"] == "Interface"
    ]
    if interfaces:
        count = sum(len(resource.inputs["subnetIds"]) for resource in interfaces)
        yield from of_resources([prices.service("interface endpoints", "interface-endpoint", count)], *interfaces)
    lists = [
        one for one in resources if one.type == "aws:route53/resolverFirewallDomainList:ResolverFirewallDomainList"
    ]
    if lists:
        names = sum(len(one.inputs["domains"]) for one in lists)
        yield from of_resources([prices.service("names of the DNS firewall", "dns-firewall-name", names)], *lists)


def _price_resource(
    resource: Declared, templates: Mapping[str, Declared], prices: PriceList
) -> Iterable[CostComponent]:
    def of_service(label: str, service: str) -> CostComponent:
        return prices.service(f"{resource.name}: {label}", service)

    match resource.type:
        case "aws:fsx/lustreFileSystem:LustreFileSystem":
            yield from _lustre(resource, prices)
        case "aws:ec2/instance:Instance":
            yield from _instance(resource, templates[resource.inputs["launchTemplate"]["id"]], prices)
        case "aws:eks/cluster:Cluster":
            yield of_service("control plane", "eks-cluster")
        case "aws:eks/nodeGroup:NodeGroup":
            yield from _node_group(resource, templates[resource.inputs["launchTemplate"]["id"]], prices)
        case "aws:kms/key:Key":
            yield of_service("key", "kms-key")
        case "aws:ec2/natGateway:NatGateway":
            yield of_service("NAT gateway", "nat-gateway")
        case "aws:ec2/eip:Eip":
            yield of_service("public address", "public-ipv4")
        case "pulumi-python:dynamic/gangway:KeptImages":
            each_gib, number = load_boot().stored_gib.value, int(resource.inputs["keep"])
            label = f"{resource.name}: {number} machine images of about {each_gib:g} GiB"
            yield prices.service(label, "ebs-snapshot", number * each_gib)
        case "aws:route53/zone:Zone":
            yield of_service("private DNS zone", "dns-zone")


def _monitoring(resources: Sequence[Declared], prices: PriceList) -> Iterable[CostComponent]:
    """CloudWatch, one line per price. An alarm is billed by its expression's metrics, a metric from its first point."""

    def line(label: str, service: str, kind: str) -> Iterable[CostComponent]:
        found = [one for one in resources if one.type == f"aws:cloudwatch/{kind}"]
        if not found:
            return ()
        # An alarm without an expression has one metric.
        number = sum(sum("metric" in query for query in one.inputs.get("metricQueries") or ()) or 1 for one in found)
        return of_resources([prices.service(f"CloudWatch: {label}, {number}", service, number)], *found)

    yield from line("dashboards", "dashboard", "dashboard:Dashboard")
    yield from line("metrics that alarms look at", "metric-alarm", "metricAlarm:MetricAlarm")
    yield from line("composite alarms", "composite-alarm", "compositeAlarm:CompositeAlarm")
    yield from line("metrics out of log lines", "metric", "logMetricFilter:LogMetricFilter")


def _lustre(resource: Declared, prices: PriceList) -> Iterable[CostComponent]:
    inputs = resource.inputs
    size = inputs["storageCapacity"]
    if inputs["deploymentType"] == "SCRATCH_2":
        yield prices.service(f"{resource.name}: {size:g} GiB of scratch", "lustre-scratch-2", size)
        return
    tier = int(inputs["perUnitStorageThroughput"])
    yield prices.service(f"{resource.name}: {size:g} GiB at {tier} MB/s/TiB", f"lustre-persistent-2-{tier}", size)
    iops = (inputs.get("metadataConfiguration") or {}).get("iops")
    if iops:
        yield prices.service(f"{resource.name}: {iops:g} metadata IOPS", "lustre-metadata-iops", iops)


def _instance(resource: Declared, template: Declared, prices: PriceList) -> Iterable[CostComponent]:
    machine_type, (disk, _) = resource.inputs["instanceType"], _root_disk(template)
    yield prices.machines(f"{resource.name}: {machine_type}, on-demand", machine_type, 1)
    yield prices.service(f"{resource.name}: root volume, {disk:g} GiB", "ebs-gp3", disk)


def _node_group(resource: Declared, template: Declared, prices: PriceList) -> Iterable[CostComponent]:
    machine_type, (disk, _) = template.inputs["instanceType"], _root_disk(template)
    number = int(resource.inputs["scalingConfig"]["desiredSize"])
    label = f"{resource.name}: {number} x {machine_type}, on-demand"
    yield prices.machines(label, machine_type, number)
    yield prices.service(f"{resource.name}: root volumes, {disk:g} GiB a node", "ebs-gp3", number * disk)
