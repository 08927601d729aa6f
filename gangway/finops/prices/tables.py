"""Prices, and the results of a refresh, as tables and JSON. Computes only relative changes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gangway.components.catalog.validators import SERVICE_FIELD, Observed
from gangway.finops.prices.difference import FIELD_NAMES, Difference, Price
from gangway.finops.prices.refresh import Report

MOST_ROWS = 40
"""Changes listed one by one; the rest is counted."""


def show_prices(prices: Sequence[Price], title: str, console: Console) -> None:
    """Print the value and date of each price; the few long sources below, with their confidence."""
    names = [name for price in prices for name in (price.item, price.region)]
    table = _table(title, names, "price", "USD", "of", "from")
    sources: dict[str, int] = {}
    for price in prices:
        fact = price.fact
        about = ", ".join(part for part in (fact.source, fact.confidence, fact.url) if part)
        number = sources.setdefault(about, len(sources) + 1)
        is_node_hour = price.unit == "hour" and price.field != SERVICE_FIELD
        kind = FIELD_NAMES[price.field] + ("" if is_node_hour else f", per {price.unit}")
        origin = f"{price.origin} {number}"
        table.add_row(f"{price.item} {price.region}", kind, _usd(fact.value), fact.as_of_text or "undated", origin)
    console.print(table)
    for about, number in sources.items():
        console.print(f"{number} {escape(about)}", highlight=False, soft_wrap=True)


def _table(title: str, names: Sequence[str], *headings: str) -> Table:
    """Item and region share a column: at 80 columns both stay whole, to be copied."""
    table = Table(title=title, title_justify="left", padding=(0, 1, 0, 0))
    table.add_column("what, where", min_width=max(map(len, names), default=None))
    for heading in headings:
        number = heading in ("USD", "before", "now", "change")
        table.add_column(heading, justify="right" if number else "left", no_wrap=number or heading == "of")
    return table


def difference_table(differences: Sequence[Difference], title: str) -> Table:
    """Before, now, change, each with its date."""
    names = [name for each in differences for name in (each.item, each.region)]
    table = _table(title, names, "price", "before", "now", "change")
    for each in differences:
        table.add_row(
            f"{each.item} {each.region}",
            FIELD_NAMES[each.field],
            _usd(each.before),
            _usd(each.now),
            _change(each.before, each.now),
        )
    return table


def show_report(report: Report, console: Console, written: Path | None) -> None:
    """Print changes, refusals, gaps, failed regions, and where the overlay was written."""
    if report.changes:
        changes = [(change.observed, change.before) for change in report.changes]
        rows = [Difference(one.item, one.region, one.field, before, one.value) for one, before in changes]
        console.print(difference_table(rows[:MOST_ROWS], "changed"))
        if len(rows) > MOST_ROWS:
            console.print(f"{len(rows) - MOST_ROWS} more: gangway prices diff")
    for refusal in report.refused:
        each = refusal.observed
        line = f"{each.item} {each.region} {FIELD_NAMES[each.field]}: {each.value:g} refused: {refusal.reason}"
        console.print(f"[yellow]{escape(line)}[/]", highlight=False)
    for gap in report.gaps:
        line = f"{gap.region} {gap.what} unknown: {gap.reason}".strip()
        console.print(f"[yellow]{escape(line)}[/]", highlight=False)
    for region, reason in report.failed.items():
        console.print(f"[red]{escape(f'{region} not read, prices unchanged: {reason}')}[/]", highlight=False)
    counted = f"{len(report.changes)} changed, {report.confirmed} confirmed, {len(report.refused)} refused"
    # In one piece, to be copied.
    console.print(f"{counted}; {f'wrote {written}' if written else 'nothing written'}", highlight=False, soft_wrap=True)


def report_json(report: Report, written: Path | None) -> dict[str, Any]:
    """Plain JSON data."""
    return {
        "provider": report.provider,
        "read": report.how,
        "regions": list(report.regions),
        "failed": dict(report.failed),
        "changes": [{**_observed(change.observed), "before": change.before} for change in report.changes],
        "confirmed": report.confirmed,
        "refused": [{**_observed(refusal.observed), "reason": refusal.reason} for refusal in report.refused],
        "gaps": [{"region": gap.region, "what": gap.what, "reason": gap.reason} for gap in report.gaps],
        "written": None if written is None else str(written),
    }


def _observed(each: Observed) -> dict[str, Any]:
    return {
        "item": each.item,
        "region": each.region,
        "kind": each.field,
        "value": each.value,
        "unit": f"{each.currency}/{each.unit}",
        "source": each.source,
        "url": each.url,
        "as_of": each.as_of.isoformat(),
    }


def _usd(value: float | None) -> str:
    return "?" if value is None else f"{value:.4f}"


def _change(before: float | None, now: float | None) -> str:
    if before is None or now is None:
        return "new" if before is None else "gone"
    return f"{now / before - 1:+.1%}"
