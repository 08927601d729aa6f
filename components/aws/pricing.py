"""What the declared AWS resources cost: from resource inputs to cost components.

Works on the resource graph, so it prices what would be created and not what the stack file seems to say. Usage that
no declaration fixes (requests, data processed, egress) is not in it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from components.catalog import Catalog, ServicePrices
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
    services = catalog.services["aws"]
    note = "" if services.region == region else f" (price of {services.region})"
    return [*_nodes(resources, catalog, region, note), *_surroundings(resources, services, note)]


def _nodes(resources: Sequence[Declared], catalog: Catalog, region: str, note: str) -> Iterable[CostComponent]:
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
        yield from_fact(
            f"{group.name}: root volumes, {disk:g} GiB a node",
            catalog.services["aws"].ebs_gp3_usd_per_gib_month,
            num_nodes * disk,
            monthly=True,
            standby=standby,
            note=note,
        )


def _node_price(
    name: str, template: Declared, machine_type: str, num_nodes: int, catalog: Catalog, region: str, standby: bool
) -> CostComponent:
    market = (template.inputs.get("instanceMarketOptions") or {}).get("marketType", "on-demand")
    label = f"{name}: {num_nodes} x {machine_type}, {market}"
    price = catalog.price(machine_type, region)
    if price is None or market == "capacity-block":
        why = "no price in the catalogue" if price is None else "bought in advance; its price is not in the catalogue"
        return CostComponent(label, "hours", num_nodes, None, None, why, "", "unknown", standby)
    note = "" if price.region == region else f" (price of {price.region})"
    if market == "spot":
        return from_fact(label, price.spot_high, num_nodes, standby=standby, note=f", upper end seen{note}")
    return from_fact(label, price.on_demand, num_nodes, standby=standby, note=note)


def _surroundings(resources: Sequence[Declared], services: ServicePrices, note: str) -> Iterable[CostComponent]:
    for resource in resources:
        inputs = resource.inputs
        match resource.type:
            case "aws:fsx/lustreFileSystem:LustreFileSystem":
                tier, size = str(int(inputs["perUnitStorageThroughput"])), inputs["storageCapacity"]
                price = services.lustre_persistent_2_usd_per_gib_month[tier]
                label = f"{resource.name}: {size:g} GiB at {tier} MB/s/TiB"
                yield from_fact(label, price, size, monthly=True, note=note)
            case "aws:ec2/natGateway:NatGateway":
                yield from_fact(f"{resource.name}: NAT gateway", services.nat_gateway_usd_per_hour, 1, note=note)
    interfaces = [
        resource
        for resource in resources
        if resource.type == "aws:ec2/vpcEndpoint:VpcEndpoint" and resource.inputs["vpcEndpointType"] == "Interface"
    ]
    if interfaces:
        count = sum(len(resource.inputs["subnetIds"]) for resource in interfaces)
        yield from_fact("interface endpoints", services.interface_endpoint_usd_per_hour, count, note=note)
