"""What the declared AWS resources cost: from resource inputs to cost components.

Works on the resource graph, so it prices what would be created and not what the stack file seems to say. Usage that
no declaration fixes (requests, data processed, egress) is not in it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from components.catalog import Catalog, MachinePrice
from components.cost import CostComponent, Declared, elsewhere, from_fact, from_service, unknown_price

__all__ = ["price_resources"]


def price_resources(resources: Sequence[Declared], catalog: Catalog, region: str) -> list[CostComponent]:
    """The bill of `resources` in `region`, nodes first."""
    return [*_nodes(resources, catalog, region), *_surroundings(resources, catalog, region)]


def _nodes(resources: Sequence[Declared], catalog: Catalog, region: str) -> Iterable[CostComponent]:
    templates, opened = _templates(resources), _opened_sizes(resources)
    for group in resources:
        if group.type != "aws:autoscaling/group:Group":
            continue
        market, offers = _launches(group, templates)
        machine_types = [template.inputs["instanceType"] for template in offers]
        desired = group.inputs.get("desiredCapacity")
        standby = desired is None
        # A group that is still closed costs its price as soon as it opens.
        num_nodes = opened.get(group.id) or int(group.inputs["maxSize"] if standby else desired or 0)
        disk = _root_gib(offers[0])
        prices = [_node_price(group.name, market, name, num_nodes, catalog, region, standby) for name in machine_types]
        # Which type will launch nobody knows beforehand: one without a price leaves it open, else the dearest counts.
        yield max(prices, key=lambda price: math.inf if price.hourly is None else price.hourly)
        label = f"{group.name}: root volumes, {disk:g} GiB a node"
        price = catalog.service_price("aws", region, "ebs-gp3")
        yield from_service(label, price, num_nodes * disk, region, standby=standby)


def _templates(resources: Sequence[Declared]) -> dict[str, Declared]:
    """Launch templates by the id that groups and machines refer to them by."""
    return {r.id: r for r in resources if r.type == "aws:ec2/launchTemplate:LaunchTemplate"}


def _opened_sizes(resources: Sequence[Declared]) -> dict[str, int]:
    """By a group's id, how many nodes it may hold once a scheduled action has opened it."""
    schedules = [r.inputs for r in resources if r.type == "aws:autoscaling/schedule:Schedule"]
    return {inputs["autoscalingGroupName"]: int(inputs["maxSize"]) for inputs in schedules if inputs["maxSize"]}


def _root_gib(template: Declared) -> float:
    """The size of the root disk, which is the only one in our templates."""
    (disk,) = template.inputs["blockDeviceMappings"]
    return float(disk["ebs"]["volumeSize"])


def _launches(group: Declared, templates: Mapping[str, Declared]) -> tuple[str, list[Declared]]:
    """The market of a group, and the templates it may launch from: several where it is mixed."""
    mixed = group.inputs.get("mixedInstancesPolicy")
    if mixed is None:
        template = templates[group.inputs["launchTemplate"]["id"]]
        return (template.inputs.get("instanceMarketOptions") or {}).get("marketType", "on-demand"), [template]
    on_demand = mixed["instancesDistribution"]["onDemandPercentageAboveBaseCapacity"]
    overrides = mixed["launchTemplate"]["overrides"]
    offers = [templates[override["launchTemplateSpecification"]["launchTemplateId"]] for override in overrides]
    return "on-demand" if on_demand else "spot", offers


def _node_price(
    name: str, market: str, machine_type: str, num_nodes: int, catalog: Catalog, region: str, standby: bool
) -> CostComponent:
    label = f"{name}: {num_nodes} x {machine_type}, {market}"
    price = catalog.price(machine_type, region)
    if market == "capacity-block":
        # No rate of an hour: whoever multiplies prices would count again what the purchase has paid.
        why = f"a capacity block's hours are paid when it is bought{_paid(price, region)}"
        return CostComponent(f"{label}, paid before", "hours", num_nodes, 0.0, 0.0, why, "", "documented", standby)
    fact = None if price is None else price.spot_high if market == "spot" else price.on_demand
    if price is None or fact is None or fact.value is None:
        return unknown_price(label, num_nodes, f"no {market} price in the catalogue", standby=standby)
    seen = ", upper end seen" if market == "spot" else ""
    return from_fact(label, fact, num_nodes, standby=standby, note=f"{seen}{elsewhere(price.region, region)}")


def _paid(price: MachinePrice | None, region: str) -> str:
    """What was paid for a node's hour, where the catalogue knows it; no bill of a block that somebody owns is known."""
    fact = None if price is None else price.block
    if price is None or fact is None or fact.value is None:
        return "; the catalogue has no price of one"
    seen = f"{fact.source}, {fact.as_of.isoformat()}, {fact.confidence}{elsewhere(price.region, region)}"
    return f": about {fact.value:g} USD for a node's hour ({seen})"


def _surroundings(resources: Sequence[Declared], catalog: Catalog, region: str) -> Iterable[CostComponent]:
    for resource in resources:
        match resource.type:
            case "aws:fsx/lustreFileSystem:LustreFileSystem":
                yield from _lustre(resource, catalog, region)
            case "aws:ec2/instance:Instance":
                template = _templates(resources)[resource.inputs["launchTemplate"]["id"]]
                yield from _instance(resource, template, catalog, region)
            case "aws:kms/key:Key":
                yield from_service(f"{resource.name}: key", catalog.service_price("aws", region, "kms-key"), 1, region)
            case "aws:ec2/natGateway:NatGateway":
                price = catalog.service_price("aws", region, "nat-gateway")
                yield from_service(f"{resource.name}: NAT gateway", price, 1, region)
    interfaces = [
        resource
        for resource in resources
        if resource.type == "aws:ec2/vpcEndpoint:VpcEndpoint" and resource.inputs["vpcEndpointType"] == "Interface"
    ]
    if interfaces:
        count = sum(len(resource.inputs["subnetIds"]) for resource in interfaces)
        yield from_service(
            "interface endpoints", catalog.service_price("aws", region, "interface-endpoint"), count, region
        )


def _lustre(resource: Declared, catalog: Catalog, region: str) -> Iterable[CostComponent]:
    inputs = resource.inputs
    size = inputs["storageCapacity"]
    if inputs["deploymentType"] == "SCRATCH_2":
        price = catalog.service_price("aws", region, "lustre-scratch-2")
        yield from_service(f"{resource.name}: {size:g} GiB of scratch", price, size, region)
        return
    tier = int(inputs["perUnitStorageThroughput"])
    price = catalog.service_price("aws", region, f"lustre-persistent-2-{tier}")
    yield from_service(f"{resource.name}: {size:g} GiB at {tier} MB/s/TiB", price, size, region)
    iops = (inputs.get("metadataConfiguration") or {}).get("iops")
    if iops:
        price = catalog.service_price("aws", region, "lustre-metadata-iops")
        yield from_service(f"{resource.name}: {iops:g} metadata IOPS", price, iops, region)


def _instance(resource: Declared, template: Declared, catalog: Catalog, region: str) -> Iterable[CostComponent]:
    """A machine without accelerators, on demand, and its disk, which is its template's."""
    machine_type, disk = resource.inputs["instanceType"], _root_gib(template)
    label = f"{resource.name}: {machine_type}, on-demand"
    service = f"instance-{machine_type}"
    if service in catalog.services_of("aws"):
        yield from_service(label, catalog.service_price("aws", region, service), 1, region)
    else:
        yield unknown_price(label, 1, "no price in the catalogue")
    volume = catalog.service_price("aws", region, "ebs-gp3")
    yield from_service(f"{resource.name}: root volume, {disk:g} GiB", volume, disk, region)
