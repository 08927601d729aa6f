"""A reconciliation as a person reads it: runs, what no run explains, what bears no tag. No arithmetic."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from stacks.bill.ledger import Sums
from stacks.bill.reconcile import Reconciliation, RunLine
from trainer.record import Figure

__all__ = ["progress", "show"]

_MOST_SERVICES = 4


@contextmanager
def progress(console: Console) -> Iterator[Callable[[int], None]]:
    """Shows how many rows have been read, where somebody is looking."""
    with console.status("reading the bill") as status:
        yield lambda rows: status.update(f"reading the bill: {rows:,} rows")


def show(result: Reconciliation, console: Console) -> None:
    """Prints all of it."""
    console.print(_runs(result))
    rest = _rest(result)
    if rest.row_count:
        console.print(rest)
    for line in result.runs:
        if line.why_nothing:
            console.print(f"[yellow]{escape(line.run_id)}[/]: not in the bill: {escape(line.why_nothing)}")
        elif line.estimated.value is None:
            console.print(f"[dim]{escape(line.run_id)}: no estimate: {escape(line.estimated.source)}[/]")
        if line.recorded.value is None:
            console.print(f"[dim]{escape(line.run_id)}: no dollars recorded: {escape(line.recorded.source)}[/]")
    for note in result.notes:
        console.print(f"[dim]{escape(note)}[/]")
    total, runs = result.total, sum(line.billed.usd for line in result.runs)
    period = "" if total.first is None else f", {total.first:%Y-%m-%d} to {total.last:%Y-%m-%d}"
    console.print(
        f"{_usd(total.usd)} in {result.num_rows:,} rows{period} ({result.cost} cost): {_usd(runs)} of runs, "
        f"{_usd(sum(sums.usd for sums in result.unexplained.values()))} unexplained, "
        f"{_usd(sum(sums.usd for sums in result.untagged.values()))} without a stack's tag"
    )


def _runs(result: Reconciliation) -> Table:
    table = Table(title="runs, USD", title_justify="left")
    table.add_column("run", overflow="fold")
    for column in ("estimated", "recorded", "billed", "of it machines", "billed to recorded", "to estimated"):
        table.add_column(column, justify="right")
    for line in result.runs:
        table.add_row(escape(f"{line.run_id}\n{line.stack}, {line.provider}"), *_cells(line))
    return table


def _cells(line: RunLine) -> tuple[str, ...]:
    figures = (_figure(line.estimated), _figure(line.recorded))
    if line.why_nothing:
        return (*figures, "-", "-", "-", "-")
    machines = line.billed.compute_usd
    return (
        *figures,
        _usd(line.billed.usd),
        "not told" if machines is None else _usd(machines),
        _percent(line.percent),
        _percent(line.percent_of_estimate),
    )


def _rest(result: Reconciliation) -> Table:
    table = Table(title="the rest of the bill, USD", title_justify="left")
    for column in ("what", "USD", "charges", "from", "to"):
        table.add_column(column, justify="right" if column in ("USD", "charges") else "left")
    for (provider, stack), sums in sorted(result.unexplained.items()):
        _add(table, f"unexplained: {provider}, stack {stack}, no run under way", sums)
    for provider, sums in sorted(result.untagged.items()):
        _add(table, f"{provider or 'no provider'}, without a stack's tag", sums)
    return table


def _add(table: Table, what: str, sums: Sums) -> None:
    services = sums.by_service.most_common(_MOST_SERVICES)
    detail = ", ".join(f"{name or 'no service'} {_usd(usd)}" for name, usd in services)
    more = len(sums.by_service) - len(services)
    table.add_row(
        escape(f"{what}\n{detail}{f', {more} more' if more > 0 else ''}"),
        _usd(sums.usd),
        f"{sums.num_charges:,}",
        "" if sums.first is None else f"{sums.first:%Y-%m-%d %H:%M}",
        "" if sums.last is None else f"{sums.last:%Y-%m-%d %H:%M}",
    )


def _figure(figure: Figure) -> str:
    return "-" if figure.value is None else _usd(figure.value)


def _usd(value: float) -> str:
    # What is below a cent and above zero is not nothing.
    return f"{value:,.2f}" if abs(value) >= 0.005 or not value else f"{value:.2g}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1f}%"
