"""What an hour of a resource costs, as far as the catalogue knows: list prices, without discounts and without usage."""

from collections.abc import Sequence

from components.catalog import Catalog, MachinePrice, Provider, load_provider
from components.cost import CostComponent, elsewhere, from_fact, from_service, unknown_price
from components.findings import InputError
from stacks.audit.model import Billed, CloudResource

__all__ = ["hourly_usd", "price"]


def price(resource: CloudResource, provider: Provider, region: str) -> list[CostComponent]:
    """The bill of one resource; a price nobody knows is a component without one.

    Args:
        resource: of the cloud.
        provider: whose catalogue.
        region: of the resource, not its zone.
    """
    if resource.billed is None:
        return [unknown_price(resource.name, 1, "paid by use, or by what this audit does not know")]
    catalog = load_provider(provider)
    return [_line(resource, billed, provider, catalog, region) for billed in resource.billed]


def hourly_usd(components: Sequence[CostComponent]) -> float | None:
    """Their sum; None where one of them is not known."""
    known = [component.hourly for component in components if component.hourly is not None]
    return sum(known) if len(known) == len(components) else None


def _line(resource: CloudResource, billed: Billed, provider: Provider, catalog: Catalog, region: str) -> CostComponent:
    label = f"{resource.name}: {billed.what}"
    if billed.kind == "service":
        return _service(label, billed.what, billed.quantity, provider, catalog, region)
    found = _slice_price(billed.what, region) if billed.kind == "slice" else catalog.price(billed.what, region)
    if found is None:
        # Machines without accelerators stand among the services.
        return _service(label, f"instance-{billed.what}", billed.quantity, provider, catalog, region)
    fact = found.spot_high if billed.market == "spot" else found.on_demand
    note = f", {billed.market}{elsewhere(found.region, region)}"
    return from_fact(label, fact, billed.quantity, note=note)


def _service(
    label: str, service: str, quantity: float, provider: Provider, catalog: Catalog, region: str
) -> CostComponent:
    if service not in catalog.services_of(provider):
        return unknown_price(label, quantity, f"no price of {service} in the catalogue")
    return from_service(label, catalog.service_price(provider, region, service), quantity, region)


def _slice_price(accelerator_type: str, region: str) -> MachinePrice | None:
    from components.gcp.slices import plan_slice
    from components.gcp.tpu_machine import slice_price

    try:
        return slice_price(plan_slice(accelerator_type=accelerator_type), region)
    except InputError:
        return None  # a slice that this catalogue does not know
