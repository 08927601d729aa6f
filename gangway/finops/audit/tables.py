"""The result of an audit as tables and JSON."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gangway.components.estimate.cost import HOURS_PER_MONTH, CostComponent
from gangway.finops.audit.classify_orphans import Judged, hourly_usd


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
    """The result. `asked`: the regions, project or subscription; `judged`: everything with the stack's tag; `orphans`:
    most expensive first; `notes`: what may be missing.
    """

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
