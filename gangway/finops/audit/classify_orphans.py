"""Classifies tagged cloud resources by whether the stack still owns them, with prices per hour, as tables and JSON."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gangway.components.catalog.loader import Catalog
from gangway.components.catalog.prices import resolve_price
from gangway.components.catalog.schema import MachinePrice
from gangway.components.core.findings import InputError
from gangway.components.estimate.cost import HOURS_PER_MONTH, CostComponent, from_service, price_line, unknown_price
from gangway.stacks.base.registry import get_provider

Verdict: TypeAlias = Literal["in-state", "belongs", "kept", "gone", "orphan"]


@dataclass(frozen=True)
class Billed:
    """One line of a resource's bill, in the service's units."""

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
    """`known`: keys of the state; what belongs to it, is deleted, or retained on purpose is no orphan."""
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


@dataclass(frozen=True)
class Row:
    """A listed resource and its bill."""

    judged: Judged
    bill: tuple[CostComponent, ...]

    @property
    def hourly_usd(self) -> float | None:
        """None if part of it is unknown."""
        return hourly_usd(self.bill)


@dataclass(frozen=True)
class Audit:
    """`judged`: everything with the stack's tag; `orphans`: most expensive first; `notes`: what may be missing."""

    stack: str
    provider: str
    asked: str
    state: str
    judged: tuple[Judged, ...]
    orphans: tuple[Row, ...]
    kept: tuple[Row, ...]
    notes: tuple[str, ...]

    @property
    def counts(self) -> dict[str, int]:
        """By verdict."""
        return dict(Counter(each.verdict for each in self.judged))

    @property
    def known_usd(self) -> float:
        """Dollars per hour of the orphans with a known price."""
        return sum(line.hourly or 0.0 for row in self.orphans for line in row.bill)


def audit_json(audit: Audit) -> dict[str, Any]:
    """Plain JSON data."""
    return {
        "stack": audit.stack,
        "provider": audit.provider,
        "asked": audit.asked,
        "state": audit.state,
        "counts": audit.counts,
        "orphans": [_row_json(row) for row in audit.orphans],
        "kept": [_row_json(row) for row in audit.kept],
        "known_usd_per_hour": audit.known_usd,
        "unpriced": [row.judged.resource.id for row in audit.orphans if row.hourly_usd is None],
        "notes": list(audit.notes),
    }


def _row_json(row: Row) -> dict[str, Any]:
    resource = row.judged.resource
    return {
        "id": resource.id,
        "kind": resource.kind,
        "name": resource.name,
        "region": resource.region,
        "reason": row.judged.reason,
        "usd_per_hour": row.hourly_usd,
        "bill": [
            {
                "name": line.name,
                "quantity": line.quantity,
                "unit": line.unit,
                "usd_per_hour": line.hourly,
                "source": line.source,
                "as_of": line.as_of,
                "confidence": line.confidence,
            }
            for line in row.bill
        ],
    }


def show_audit(audit: Audit, console: Console) -> None:
    """Print retained resources, then orphans and their sum last, where readers look."""
    counts = audit.counts
    console.print(
        f"[bold]{escape(audit.stack)}[/bold] in {escape(audit.asked)}: {len(audit.judged)} resources have its tag: "
        f"{counts.get('in-state', 0)} in the state ({escape(audit.state)}), {counts.get('belongs', 0)} owned by "
        f"those, {counts.get('gone', 0)} already deleted"
    )
    if audit.kept:
        console.print(_table("retained on purpose", audit.kept))
    for note in audit.notes:
        console.print(f"[dim]note: {escape(note)}[/dim]")
    if not audit.orphans:
        console.print("no orphaned resources")
        return
    console.print(_table("orphaned: not in the state", audit.orphans))
    unpriced = sum(row.hourly_usd is None for row in audit.orphans)
    unpriced_note = f", and {unpriced} without a price in the catalogue" if unpriced else ""
    month = audit.known_usd * HOURS_PER_MONTH
    count = f"{len(audit.orphans)} orphan{'' if len(audit.orphans) == 1 else 's'}"
    console.print(f"[bold]{count}: ${audit.known_usd:,.2f} per hour, ${month:,.2f} per month[/bold]{unpriced_note}")
    console.print("nothing was changed: delete what no other stack needs with the provider's own tool, by these ids")


def _table(title: str, rows: Sequence[Row]) -> Table:
    table = Table(title=title, title_justify="left", padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("what", overflow="fold")
    table.add_column("region")
    table.add_column("USD/h", justify="right")
    for row in rows:
        resource = row.judged.resource
        cost = "?" if row.hourly_usd is None else f"{row.hourly_usd:,.3f}"
        sources = "; ".join(f"{line.source}{f', {line.dated}' if line.dated else ''}" for line in row.bill)
        name = f"{resource.kind} [bold]{escape(resource.name)}[/bold]"
        details = "\n".join(escape(text) for text in (resource.id, row.judged.reason, sources) if text)
        table.add_row(f"{name}\n[dim]{details}[/dim]", resource.region or "global", cost)
    return table
