"""Resources of the cloud that carry a stack's tag: whose each is, which of them nobody looks after, and what an hour
costs.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from components.catalog.loader import Catalog, Provider, load_provider
from components.catalog.resolve import resolve_price
from components.catalog.schema import MachinePrice
from components.core.findings import InputError
from components.estimate.cost import CostComponent, from_service, price_line, unknown_price

Verdict: TypeAlias = Literal["in-state", "belongs", "kept", "gone", "orphan"]


@dataclass(frozen=True)
class Billed:
    """One line of a resource's bill. `what`: machine type, TPU slice, or service of the catalogue; `quantity`: of the
    service's units; `kind`: machine and slice are looked up among the machines' prices; `market`: on-demand or spot, of
    machines.
    """

    what: str
    quantity: float = 1.0
    kind: Literal["machine", "slice", "service"] = "service"
    market: Literal["on-demand", "spot"] = "on-demand"


@dataclass(frozen=True)
class CloudResource:
    """A resource that carries the stack's tag.

    Attributes:
        id: as the provider writes it in full: ARN, asset name, resource id.
        keys: by which the state, or another resource's `owners`, may call it.
        kind: such as ec2:instance.
        name: for people.
        region: or zone; empty for what is global.
        owners: keys of what made it or holds it: a group of its instances, an instance of its disk.
        gone: why it does not count: it no longer exists, or is on its way out.
        kept: why it is expected to stay when a stack goes; empty for most.
        billed: what it is billed as; None where this audit does not know, empty where it costs nothing by itself.
    """

    id: str
    keys: frozenset[str]
    kind: str
    name: str
    region: str
    owners: frozenset[str] = frozenset()
    gone: str = ""
    kept: str = ""
    billed: tuple[Billed, ...] | None = None


@dataclass(frozen=True)
class Listing:
    """What a provider answered. `resources`: with the stack's tag; `asked`: where, in words: regions, a project, a
    subscription; `notes`: what could not be asked, or is known to be missing.
    """

    resources: tuple[CloudResource, ...]
    asked: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judged:
    """A resource and what it is to the stack, with the reason."""

    resource: CloudResource
    verdict: Verdict
    reason: str


def classify_orphans(resources: Sequence[CloudResource], known: Collection[str]) -> list[Judged]:
    """Tells resources apart. What is in the state is looked after by `pulumi`; what belongs to that (nodes of a group,
    disks of a node) by it. What is gone does not count. What a stack leaves behind on purpose is kept. All else is an
    orphan.
    """
    looked_after = _looked_after(resources, known)
    return [_of(resource, known, looked_after) for resource in resources]


def _of(resource: CloudResource, known: Collection[str], looked_after: Collection[str]) -> Judged:
    if not resource.keys.isdisjoint(known):
        return Judged(resource, "in-state", "in the state")
    if resource.gone:
        return Judged(resource, "gone", resource.gone)
    if owners := sorted(resource.owners & set(looked_after)):
        return Judged(resource, "belongs", f"belongs to {owners[0]}")
    if resource.kept:
        return Judged(resource, "kept", resource.kept)
    whose = f"; what it belonged to is not in the state: {min(resource.owners)}" if resource.owners else ""
    return Judged(resource, "orphan", f"not in the state{whose}")


def _looked_after(resources: Iterable[CloudResource], known: Collection[str]) -> frozenset[str]:
    """Keys of the state, of what belongs to it, of what belongs to that, and so on."""
    found, rest = set(known), list(resources)
    while joined := [each for each in rest if not (each.keys | each.owners).isdisjoint(found)]:
        found.update(*(each.keys for each in joined))
        rest = [each for each in rest if each not in joined]
    return frozenset(found)


def price(resource: CloudResource, provider: Provider, region: str) -> list[CostComponent]:
    """The bill of one resource; a price nobody knows is a component without one. `region`: of the resource, not its
    zone.
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
    rows = _slice_prices(billed.what) if billed.kind == "slice" else catalog.get_prices(billed.what)
    if not rows:
        # Machines without accelerators stand among the services.
        return _service(label, f"instance-{billed.what}", billed.quantity, provider, catalog, region)
    quote = resolve_price(rows, region, "spot" if billed.market == "spot" else "on-demand")
    return price_line(label, billed.quantity, quote, kind=billed.market, note=f", {billed.market}")


def _service(
    label: str, service: str, quantity: float, provider: Provider, catalog: Catalog, region: str
) -> CostComponent:
    if service not in catalog.get_services(provider):
        return unknown_price(label, quantity, f"no price of {service} in the catalogue")
    return from_service(label, catalog.service_price(provider, region, service), quantity, region)


def _slice_prices(accelerator_type: str) -> Sequence[MachinePrice]:
    from components.gcp.slices import plan_slice, slice_prices

    try:
        return slice_prices(plan_slice(accelerator_type=accelerator_type))
    except InputError:
        return []  # a slice that this catalogue does not know
