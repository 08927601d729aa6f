"""Classifies tagged cloud resources by whether the stack still owns them, and prices each per hour."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gangway.components.catalog.loader import Catalog
from gangway.components.catalog.resolve import resolve_price
from gangway.components.catalog.schema import MachinePrice
from gangway.components.core.findings import InputError
from gangway.components.estimate.cost import CostComponent, from_service, price_line, unknown_price
from gangway.stacks.base.registry import get_provider

Verdict: TypeAlias = Literal["in-state", "belongs", "kept", "gone", "orphan"]


@dataclass(frozen=True)
class Billed:
    """One line of a resource's bill. `what`: machine type, TPU slice, or service of the catalogue; `quantity`: in the
    service's units.
    """

    what: str
    quantity: float = 1.0
    kind: Literal["machine", "slice", "service"] = "service"
    market: Literal["on-demand", "spot"] = "on-demand"


@dataclass(frozen=True)
class CloudResource:
    """A resource that carries the stack's tag.

    Attributes:
        id: the provider's full form: ARN, asset name, resource id.
        keys: names for it in the state or in another resource's `owners`.
        region: or zone; empty for global resources.
        owners: keys of its creator or holder: the group of an instance, the instance of a disk.
        gone: why it does not count: deleted, or being deleted.
        kept: why it outlives its stack; empty for most.
        billed: None if this audit does not know, empty if it has no price.
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
    """A provider's answer. `asked`: the regions, project or subscription; `notes`: what may be missing."""

    resources: tuple[CloudResource, ...]
    asked: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judged:
    """A resource with its verdict."""

    resource: CloudResource
    verdict: Verdict
    reason: str


def classify_orphans(resources: Sequence[CloudResource], known: Collection[str]) -> list[Judged]:
    """Classify resources. `known`: the keys of the state. What belongs to the state (nodes of a group, disks of a node)
    is no orphan, nor what is deleted or retained on purpose.
    """
    owned = _owned_keys(resources, known)
    return [_judge(resource, known, owned) for resource in resources]


def _judge(resource: CloudResource, known: Collection[str], owned: Collection[str]) -> Judged:
    if not resource.keys.isdisjoint(known):
        return Judged(resource, "in-state", "in the state")
    if resource.gone:
        return Judged(resource, "gone", resource.gone)
    if owners := sorted(resource.owners & set(owned)):
        return Judged(resource, "belongs", f"belongs to {owners[0]}")
    if resource.kept:
        return Judged(resource, "kept", resource.kept)
    owner = f"; its owner is not in the state either: {min(resource.owners)}" if resource.owners else ""
    return Judged(resource, "orphan", f"not in the state{owner}")


def _owned_keys(resources: Iterable[CloudResource], known: Collection[str]) -> frozenset[str]:
    """Keys of the state and, transitively, of what belongs to it."""
    found, rest = set(known), list(resources)
    while owned := [each for each in rest if not (each.keys | each.owners).isdisjoint(found)]:
        found.update(*(each.keys for each in owned))
        rest = [each for each in rest if each not in owned]
    return frozenset(found)


def price(resource: CloudResource, provider: str, region: str) -> list[CostComponent]:
    """Price one resource; an unknown price is a component without one. `region`: not the zone."""
    if resource.billed is None:
        return [unknown_price(resource.name, 1, "usage-based, or unknown to this audit")]
    catalog = get_provider(provider).catalog_here()
    return [_line(resource, billed, provider, catalog, region) for billed in resource.billed]


def hourly_usd(components: Sequence[CostComponent]) -> float | None:
    """The sum; None if one is unknown."""
    known = [component.hourly for component in components if component.hourly is not None]
    return sum(known) if len(known) == len(components) else None


def _line(resource: CloudResource, billed: Billed, provider: str, catalog: Catalog, region: str) -> CostComponent:
    label = f"{resource.name}: {billed.what}"
    if billed.kind == "service":
        return _service(label, billed.what, billed.quantity, provider, catalog, region)
    rows = _slice_prices(billed.what) if billed.kind == "slice" else catalog.get_prices(billed.what)
    if not rows:
        # Machines without accelerators are services of the catalogue.
        return _service(label, f"instance-{billed.what}", billed.quantity, provider, catalog, region)
    quote = resolve_price(rows, region, "spot" if billed.market == "spot" else "on-demand")
    return price_line(label, billed.quantity, quote, kind=billed.market, note=f", {billed.market}")


def _service(label: str, service: str, quantity: float, provider: str, catalog: Catalog, region: str) -> CostComponent:
    if service not in catalog.get_services(provider):
        return unknown_price(label, quantity, f"no price of {service} in the catalogue")
    return from_service(label, catalog.service_price(provider, region, service), quantity, region)


def _slice_prices(accelerator_type: str) -> Sequence[MachinePrice]:
    from gangway.components.gcp.slices import plan_slice, slice_prices

    try:
        return slice_prices(plan_slice(accelerator_type=accelerator_type))
    except InputError:
        return []  # a slice that this catalogue does not know
