"""The cost of the OpenStack resources: nodes at `gangway:site.usd_per_node_hour`, everything else listed as unknown."""

from collections.abc import Iterable, Sequence

from gangway.components.catalog.schema import MachinePrice
from gangway.components.core.tags import ROLE_TAG
from gangway.components.estimate.cost import CostComponent, Declared, from_fact, of_resources, unknown_price

INSTANCE = "openstack:compute/instance:Instance"
SHARE = "openstack:sharedfilesystem/share:Share"
CONTAINER = "openstack:objectstorage/container:Container"
_WHY = "OpenStack has no price list; what CloudKitty rates is its administrator's to say"


def price_resources(resources: Sequence[Declared], price: MachinePrice) -> list[CostComponent]:
    """The bill of `resources`, nodes first."""
    return [
        *_nodes(resources, price),
        *(line for each in resources for line in of_resources(_price_resource(each), each)),
    ]


def _nodes(resources: Sequence[Declared], price: MachinePrice) -> Iterable[CostComponent]:
    pools: dict[str, list[Declared]] = {}
    for resource in _instances(resources, "worker"):
        pools.setdefault(resource.name.rpartition("-")[0], []).append(resource)
    for pool, nodes in pools.items():
        yield from of_resources(_pool(pool, nodes, price), *nodes)


def _pool(pool: str, nodes: Sequence[Declared], price: MachinePrice) -> Iterable[CostComponent]:
    label = f"{pool}: {len(nodes)} x {price.machine_type}"
    if price.on_demand.value is None:
        yield unknown_price(label, len(nodes), price.on_demand.source)
    else:
        yield from_fact(label, price.on_demand, len(nodes))
    yield from _volumes(pool, nodes)


def _price_resource(resource: Declared) -> Iterable[CostComponent]:
    if resource in _instances([resource], "head"):
        yield unknown_price(f"{resource.name}: {resource.inputs['flavorName']}", 1, _WHY)
        yield from _volumes(resource.name, [resource])
    elif resource.type == SHARE:
        size = resource.inputs["size"]
        name = f"{resource.name}: {size:g} GiB, {resource.inputs['shareProto']}"
        yield unknown_price(name, size, _WHY, unit="GiB-month")
    # The other container, which may be destroyed, holds a kilobyte.
    elif resource.type == CONTAINER and not resource.inputs["forceDestroy"]:
        yield unknown_price(f"{resource.name}: objects kept", 1, _WHY, unit="month")


def _instances(resources: Sequence[Declared], role: str) -> list[Declared]:
    return [r for r in resources if r.type == INSTANCE and r.inputs["metadata"][ROLE_TAG] == role]


def _volumes(label: str, instances: Sequence[Declared]) -> Iterable[CostComponent]:
    sizes = [disk["volumeSize"] for one in instances for disk in one.inputs.get("blockDevices", ())]
    if sizes:
        yield unknown_price(f"{label}: boot volumes, {sizes[0]:g} GiB each", sum(sizes), _WHY, unit="GiB-month")
