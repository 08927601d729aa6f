"""The text of `gangway status`: a block per stack, job and run, with what is unknown, and why."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gangway.live.model import Fact, Overview, Reading, Row, RungNodes
from gangway.render.rendering import duration, number

_LABELS = {
    "state": "state",
    "images": "images",
    "images_wanted": "images wanted",
    "images_per_sec": "rate",
    "sec_left": "time left",
    "usd": "cost so far",
    "usd_estimate": "estimate",
    "budget_usd": "budget",
    "idle_devices": "idle devices",
    "checkpoint": "checkpoint",
    "notice": "interruption",
    "breaker": "breaker",
}


def render(overview: Overview, *, sources: bool) -> RenderableType:
    """`sources`: in each block also where its figures come from."""
    blocks = [_block(row, overview.at, sources=sources) for row in overview.rows]
    notes = [Text(f"note: {note}", style="dim") for note in overview.notes]
    return Group(*(blocks or [Text("nothing runs here that could be read")]), *notes)


def _block(row: Row, now: datetime, *, sources: bool) -> RenderableType:
    where = Text(f"  {row.kind}, {row.where}", style="dim")
    if row.problem:
        return Group(Text(row.name, style="bold red") + where, Text(f"  cannot be read: {row.problem}"))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in _lines(row, now):
        grid.add_row(f"  {label}", Text(text))
    for reason, labels in _unknown(row).items():
        grid.add_row("  unknown", Text(f"{', '.join(labels)}: {reason}", style="dim"))
    for label, source in _sources(row) if sources else ():
        grid.add_row("  source", Text(f"{label}: {source}", style="dim"))
    return Group(Text(row.name, style="bold") + where, grid)


def _lines(row: Row, now: datetime) -> Iterator[tuple[str, str]]:
    if row.state.text is not None:
        yield "state", _fact(row.state, now)
    if row.nodes:
        yield "nodes", "\n".join(map(_rung, row.nodes))
    if row.images.value is not None:
        wanted = "" if row.images_wanted.value is None else f" of {row.images_wanted.value:,.0f}"
        yield "images", f"{row.images.value:,.0f}{wanted}"
    if row.images_per_sec.value is not None:
        yield "rate", f"{_span(row.images_per_sec, number)} images/s"
    if row.sec_left.value is not None:
        yield "time left", _span(row.sec_left, duration)
    if costs := [text for text in _costs(row) if text]:
        yield "USD", ", ".join(costs)
    for name in ("checkpoint", "notice"):
        fact: Fact = getattr(row, name)
        if fact.text is not None:
            yield _LABELS[name], _fact(fact, now)
    if row.breaker.text is not None:
        yield "breaker", _fact(row.breaker, now)
    if row.idle_devices.value is not None:
        note = f": {row.idle_devices.note}" if row.idle_devices.note else ""
        yield "idle", f"{row.idle_devices.value:.0f} devices{note}"


def _costs(row: Row) -> Iterator[str]:
    for name, form in (("usd", "{} so far"), ("usd_estimate", "estimate {}"), ("budget_usd", "budget {} a month")):
        reading: Reading = getattr(row, name)
        if reading.value is not None:
            yield form.format(_span(reading, "{:,.2f}".format))


def _rung(rung: RungNodes) -> str:
    states = ", ".join(f"{count} {state}" for state, count in rung.by_state.items()) or "none"
    wanted = "" if rung.wanted is None else f" (target {rung.wanted})"
    return f"{rung.name}: {states}{wanted}"


def _fact(fact: Fact, now: datetime) -> str:
    if fact.at is None:
        return str(fact.text)
    sec = (now - fact.at.astimezone(UTC)).total_seconds()
    return f"{fact.text}, {duration(sec)} ago" if sec >= 0 else f"{fact.text}, {fact.at:%Y-%m-%d %H:%M} UTC"


def _span(reading: Reading, text: Callable[[float], str]) -> str:
    assert reading.value is not None, "unknown figures have no line"
    if reading.low is None or reading.high is None:
        return text(reading.value)
    return f"{text(reading.value)} ({text(reading.low)} to {text(reading.high)})"


def _unknown(row: Row) -> dict[str, list[str]]:
    """By reason."""
    reasons: dict[str, list[str]] = {} if row.nodes else {row.nodes_source: ["nodes"]}
    for name, label in _LABELS.items():
        found: Reading | Fact = getattr(row, name)
        if (found.value if isinstance(found, Reading) else found.text) is None:
            reasons.setdefault(found.source, []).append(label)
    return reasons


def _sources(row: Row) -> Iterator[tuple[str, str]]:
    if row.nodes:
        yield "nodes", row.nodes_source
    for name, label in _LABELS.items():
        found: Reading | Fact = getattr(row, name)
        if isinstance(found, Fact) and found.text is not None:
            yield label, found.source
        elif isinstance(found, Reading) and found.value is not None:
            yield label, f"{found.source} ({found.note})" if found.note else found.source
