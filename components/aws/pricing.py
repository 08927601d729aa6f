"""What the declared AWS resources cost: from resource inputs to cost components.

Works on the resource graph, so it prices what would be created and not what the stack file seems to say. Usage that
no declaration fixes (requests, data processed, egress) is not in it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from components.catalog import Catalog, ServicePrice
from components.cost import CostComponent, from_fact

__all__ = ["Declared", "price_resources"]


class Declared(Protocol):
    """A resource of the plan: type token, name, id that others refer to it by, inputs as they go over the wire."""

    @property
    def type(self) -> str:
        """Type token."""
        ...

    @property
    def name(self) -> str:
        """Logical name."""
        ...

    @property
    def id(self) -> str:
        """What other resources refer to it by."""
        ...

    @property
    def inputs(self) -> Mapping[str, Any]:
        """Inputs in camelCase."""
        ...


def price_resources(resources: Sequence[Declared], catalog: Catalog, region: str) -> list[CostComponent]:
    """The bill of `resources` in `region`, nodes first."""
    return [*_nodes(resources, catalog, region), *_surroundings(resources, catalog, region)]


def _nodes(resources: Sequence[Declared], catalog: Catalog, region: str) -> Iterable[CostComponent]:
    templates = {r.id: r for r in resources if r.type == "aws:ec2/launchTemplate:LaunchTemplate"}
    for group in resources:
        if group.type != "aws:autoscaling/group:Group":
            continue
        template = templates[group.inputs["launchTemplate"]["id"]]
        machine_type = template.inputs["instanceType"]
        desired = group.inputs.get("desiredCapacity")
        standby = desired is None
        num_nodes = int(group.inputs["maxSize"] if standby else desired or 0)
        disk = template.inputs["blockDeviceMappings"][0]["ebs"]["volumeSize"]
        yield _node_price(group.name, template, machine_type, num_nodes, catalog, region, standby)
        label = f"{group.name}: root volumes, {disk:g} GiB a node"
        price = catalog.service_price("aws", region, "ebs-gp3")
        yield _service(label, price, num_nodes * disk, region, standby=standby)


def _service(name: str, price: ServicePrice, quantity: float, region: str, *, standby: bool = False) -> CostComponent:
    monthly = price.unit == "GiB-month"
    return from_fact(name, price.usd, quantity, monthly=monthly, standby=standby, note=_elsewhere(price.region, region))


def _elsewhere(priced: str, region: str) -> str:
    """Says so where the price is another region's."""
    return "" if priced == region else f" (price of {priced})"


def _node_price(
    name: str, template: Declared, machine_type: str, num_nodes: int, catalog: Catalog, region: str, standby: bool
) -> CostComponent:
    market = (template.inputs.get("instanceMarketOptions") or {}).get("marketType", "on-demand")
    label = f"{name}: {num_nodes} x {machine_type}, {market}"
    price = catalog.price(machine_type, region)
    if market == "capacity-block":
        return _unknown(label, num_nodes, "bought in advance; its price is not in the catalogue", standby)
    fact = None if price is None else price.spot_high if market == "spot" else price.on_demand
    if price is None or fact is None or fact.value is None:
        return _unknown(label, num_nodes, f"no {market} price in the catalogue", standby)
    seen = ", upper end seen" if market == "spot" else ""
    return from_fact(label, fact, num_nodes, standby=standby, note=f"{seen}{_elsewhere(price.region, region)}")


def _unknown(label: str, num_nodes: int, why: str, standby: bool) -> CostComponent:
    return CostComponent(label, "hours", num_nodes, None, None, why, "", "unknown", standby)


def _surroundings(resources: Sequence[Declared], catalog: Catalog, region: str) -> Iterable[CostComponent]:
    for resource in resources:
        inputs = resource.inputs
        match resource.type:
            case "aws:fsx/lustreFileSystem:LustreFileSystem":
                tier, size = int(inputs["perUnitStorageThroughput"]), inputs["storageCapacity"]
                price = catalog.service_price("aws", region, f"lustre-persistent-2-{tier}")
                yield _service(f"{resource.name}: {size:g} GiB at {tier} MB/s/TiB", price, size, region)
            case "aws:ec2/natGateway:NatGateway":
                price = catalog.service_price("aws", region, "nat-gateway")
                yield _service(f"{resource.name}: NAT gateway", price, 1, region)
    interfaces = [
        resource
        for resource in resources
        if resource.type == "aws:ec2/vpcEndpoint:VpcEndpoint" and resource.inputs["vpcEndpointType"] == "Interface"
    ]
    if interfaces:
        count = sum(len(resource.inputs["subnetIds"]) for resource in interfaces)
        yield _service("interface endpoints", catalog.service_price("aws", region, "interface-endpoint"), count, region)
