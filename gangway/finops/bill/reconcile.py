"""Reconciles estimate, record and bill: one line per run, the rest of the bill, and their tables."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gangway.finops.bill.cost_allocation import CostAllocation, Span, Sums, Window, billed, effective
from gangway.finops.bill.deliveries import Delivery
from gangway.finops.bill.queue_jobs import JobLine, QueueJob, shares, shares_table
from gangway.finops.bill.reader import Bills
from gangway.runs.run_folders import Run
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import RunRecord

Cost = Literal["effective", "billed"]
_COSTS = {"effective": effective, "billed": billed}
_HOUR_SEC = 3600.0
_CLOUDS = ("aws", "azure", "gcp")
_ALL_HOURS = "all of max_hours"


@dataclass(frozen=True)
class RunLine:
    """One run, in USD. `billed`: its sums are 0 if the bill has nothing for the run, as `why_nothing` explains."""

    run_id: str
    stack: str
    provider: str
    estimated: Quantity
    recorded: Quantity
    billed: Sums
    why_nothing: str

    @property
    def comparable_usd(self) -> float:
        """Billed dollars comparable with a record: of machines if the bill says so, else all."""
        return self.billed.usd if self.billed.compute_usd is None else self.billed.compute_usd

    @property
    def percent(self) -> float | None:
        """Billed over recorded, in percent of the record; None if either is missing."""
        return None if self.why_nothing else _percent(self.comparable_usd, self.recorded.value)

    @property
    def percent_of_estimate(self) -> float | None:
        """Billed over estimated, in percent of the estimate; None if either is missing."""
        return None if self.why_nothing else _percent(self.billed.usd, self.estimated.value)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "run_id": self.run_id,
            "stack": self.stack,
            "provider": self.provider,
            "estimated": self.estimated.model_dump(mode="json"),
            "recorded": self.recorded.model_dump(mode="json"),
            "billed": None if self.why_nothing else _sums(self.billed),
            "billed_over_recorded_percent": self.percent,
            "billed_over_estimated_percent": self.percent_of_estimate,
            "why_nothing": self.why_nothing,
        }


@dataclass(frozen=True)
class Reconciliation:
    """`runs`, `jobs`, `unexplained` and `untagged` add up to `total`, which excludes `foreign`."""

    cost: Cost
    runs: tuple[RunLine, ...]
    jobs: tuple[JobLine, ...]
    unexplained: Mapping[tuple[str, str], Sums]
    untagged: Mapping[str, Sums]
    total: Sums
    foreign: Mapping[str, float]
    num_rows: int
    num_replaced: int
    deliveries: tuple[Delivery, ...]
    notes: tuple[str, ...]

    @property
    def missing(self) -> tuple[RunLine, ...]:
        """Cloud runs without a charge."""
        return tuple(line for line in self.runs if line.why_nothing and line.provider in _CLOUDS)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "currency": "USD",
            "cost": self.cost,
            "runs": [line.to_json() for line in self.runs],
            "jobs": [line.to_json() for line in self.jobs],
            "shares": [asdict(share) for share in shares(self.jobs)],
            "unexplained": [
                {"provider": provider, "stack": stack, **_sums(sums)}
                for (provider, stack), sums in self.unexplained.items()
            ],
            "untagged": [{"provider": provider, **_sums(sums)} for provider, sums in self.untagged.items()],
            "total": _sums(self.total),
            "foreign": dict(self.foreign),
            "num_rows": self.num_rows,
            "num_replaced": self.num_replaced,
            "deliveries": [delivery.to_json() for delivery in self.deliveries],
            "notes": list(self.notes),
        }


def reconcile(
    bills: Bills,
    runs: Sequence[Run],
    plans: Mapping[str, Mapping[str, Any]] | None = None,
    cost: Cost = "effective",
    rates: Mapping[str, float] | None = None,
    progress: Callable[[int], object] = lambda rows: None,
    jobs: Sequence[QueueJob] = (),
) -> Reconciliation:
    """`plans`: for runs without their own; `rates`: dollars per unit of other currencies. InputError: no bill."""
    windows = [*(_window(run.record) for run in runs), *(job.window for job in jobs)]

    def filled(known: Mapping[str, str]) -> CostAllocation:
        allocation = CostAllocation(windows, _COSTS[cost], rates, known)
        for charge in bills.charges(progress):
            allocation.add(charge)
        return allocation

    allocation = filled({})
    late = allocation.late
    if late:
        allocation = filled(late)
    lines = tuple(_line(run, (plans or {}).get(run.record.stack), allocation) for run in runs)
    return Reconciliation(
        cost=cost,
        runs=lines,
        jobs=tuple(JobLine(job, allocation.runs[job.window.run_id]) for job in jobs),
        unexplained=allocation.unexplained,
        untagged=allocation.untagged,
        total=allocation.total,
        foreign=allocation.foreign,
        num_rows=bills.num_rows,
        num_replaced=bills.num_replaced,
        deliveries=bills.deliveries.used,
        notes=(*bills.notes(), *_notes(allocation, late, rates or {}), *_unused_plans(runs, plans or {})),
    )


def _window(record: RunRecord) -> Window:
    spans = tuple(
        Span(datetime.fromisoformat(session.start), datetime.fromisoformat(session.end), session.num_nodes)
        for session in record.sessions
    )
    return Window(record.id, record.provider, record.stack, spans)


def _line(run: Run, other_plan: Mapping[str, Any] | None, allocation: CostAllocation) -> RunLine:
    record, sums = run.record, allocation.runs[run.record.id]
    return RunLine(
        run_id=record.id,
        stack=record.stack,
        provider=record.provider,
        estimated=_estimate(run.plan or other_plan, record),
        recorded=record.cost.total_usd,
        billed=sums,
        why_nothing="" if sums.num_charges else _why_nothing(record, allocation),
    )


def _estimate(plan: Mapping[str, Any] | None, record: RunRecord) -> Quantity:
    if plan is None or plan.get("stack") != record.stack:
        return Quantity.absent("USD", "no plan of this stack: add --plan")
    if plan.get("provider") != record.provider:
        return Quantity.absent("USD", f"the plan is for {plan.get('provider')}, the run was on {record.provider}")
    expected = _plan_cost(plan, "expected_run", "usd", "hours")
    if expected is not None:
        return expected
    return _plan_cost(plan, "cost", "run", "run_hours") or Quantity.absent("USD", "the plan has no cost of a run")


def _plan_cost(plan: Mapping[str, Any], key: str, usd_key: str, hours_key: str) -> Quantity | None:
    """A cost of a run in a plan; None if it has none. A band counts as its middle."""
    section = plan.get(key)
    section = section if isinstance(section, Mapping) else {}
    (usd, band), (hours, _) = _middle(section.get(usd_key)), _middle(section.get(hours_key))
    if usd is None:
        return None
    label = "the expected run" if key == "expected_run" else _ALL_HOURS
    return Quantity(
        value=usd,
        unit="USD",
        provenance="estimated",
        source=f"gangway plan: the whole stack on its first rung, {label}",
        note=", ".join(filter(None, ("" if hours is None else f"of {hours:g} h", band))),
    )


def _middle(value: Any) -> tuple[float | None, str]:
    """A number, or a band's middle and its ends."""
    if not isinstance(value, Mapping):
        return (value if _is_number(value) else None), ""
    low, mid, high = (value.get(end) for end in ("low", "mid", "high"))
    band = f"{low:,.2f} to {high:,.2f}" if _is_number(low) and _is_number(high) else ""
    return (mid if _is_number(mid) else None), band


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _why_nothing(record: RunRecord, allocation: CostAllocation) -> str:
    if record.provider not in _CLOUDS:
        return f"ran on {record.provider or 'an unknown provider'}: not billed by a cloud"
    first, last = allocation.total.first, allocation.total.last
    start, end = record.sessions[0].start, record.sessions[-1].end
    if currencies := sorted(allocation.foreign_runs.get(record.id, ())):
        rates = " ".join(f"--usd-per {currency or 'EUR'}=RATE" for currency in currencies)
        return f"its charges are in {', '.join(word or 'no currency' for word in currencies)}: add {rates}"
    if first is None or last is None:
        return "the bill has no charge in US dollars" if allocation.foreign else "the bill has no charge"
    if datetime.fromisoformat(end) <= first or datetime.fromisoformat(start) >= last:
        return f"the bill covers {first:%Y-%m-%d} to {last:%Y-%m-%d}, the run was on {start[:10]}"
    return f"no charge at its time has the tag of stack {record.stack!r}: is the tag activated for billing?"


def _notes(allocation: CostAllocation, late: Mapping[str, str], rates: Mapping[str, float]) -> Iterator[str]:
    if late:
        yield f"{len(late)} resources are tagged in some rows only; their other rows count for the same stack"
    for currency, value in sorted(allocation.foreign.items()):
        yield f"{value:,.2f} {currency or 'of no currency'} is in no total: add --usd-per {currency or 'EUR'}=RATE"
    for currency, rate in sorted(rates.items()):
        yield f"{currency} counts as {rate:g} USD (assumed: --usd-per)"
    if any(sums.longest_sec > _HOUR_SEC for sums in allocation.runs.values()):
        yield "charges of runs span more than an hour: idle time within them counts for the run"


def _unused_plans(runs: Sequence[Run], plans: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    used = {run.record.stack for run in runs if run.plan is None}
    for stack in plans:
        if stack not in used:
            yield f"the plan of stack {stack!r} is unused: no run of it, or each has its own plan"


def _percent(value: float, base: float | None) -> float | None:
    return (value - base) / base * 100 if base else None


def _sums(sums: Sums) -> dict[str, Any]:
    return {
        "usd": sums.usd,
        "compute_usd": sums.compute_usd,
        "num_charges": sums.num_charges,
        "by_service": dict(sums.by_service.most_common()),
        "by_category": dict(sums.by_category.most_common()),
        "first": None if sums.first is None else sums.first.isoformat(),
        "last": None if sums.last is None else sums.last.isoformat(),
    }


@contextmanager
def progress(console: Console) -> Iterator[Callable[[int], None]]:
    """Show the number of rows read on a terminal."""
    with console.status("reading the bill") as status:
        yield lambda rows: status.update(f"reading the bill: {rows:,} rows")


def show(result: Reconciliation, console: Console) -> None:
    """Print the reconciliation."""
    if result.runs:
        console.print(_runs(result))
    if result.jobs:
        console.print(shares_table(result.jobs))
    rest = _rest_table(result)
    if rest.row_count:
        console.print(rest)
    for line in result.runs:
        if not line.why_nothing and line.estimated.value is None:
            console.print(f"[dim]{escape(line.run_id)}: no estimate: {escape(line.estimated.source)}[/]")
        elif line.estimated.value is not None and line.estimated.source.endswith(_ALL_HOURS):
            console.print(f"[dim]{escape(line.run_id)}: its plan has no expected run: estimated for {_ALL_HOURS}[/]")
        if line.recorded.value is None:
            console.print(f"[dim]{escape(line.run_id)}: no dollars recorded: {escape(line.recorded.source)}[/]")
    for note in result.notes:
        console.print(f"[dim]{escape(note)}[/]")
    total, runs = result.total, sum(line.billed.usd for line in result.runs)
    of_jobs = f", {_usd(sum(line.billed.usd for line in result.jobs))} of jobs" if result.jobs else ""
    period = "" if total.first is None else f", {total.first:%Y-%m-%d} to {total.last:%Y-%m-%d}"
    console.print(
        f"{_usd(total.usd)} in {result.num_rows:,} rows{period} ({result.cost} cost): {_usd(runs)} of runs{of_jobs}, "
        f"{_usd(sum(sums.usd for sums in result.unexplained.values()))} unexplained, "
        f"{_usd(sum(sums.usd for sums in result.untagged.values()))} without a stack's tag"
    )
    for line in result.runs:
        if line.why_nothing:
            console.print(
                f"[yellow]{escape(line.run_id)}[/]: not in the bill: {escape(line.why_nothing)}", soft_wrap=True
            )


def _runs(result: Reconciliation) -> Table:
    table = Table(title="runs, USD", title_justify="left", padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("run", overflow="fold")
    for column in ("estimated", "recorded", "billed", "machines", "against\nrecorded", "against\nestimate"):
        table.add_column(column, justify="right")
    for line in result.runs:
        table.add_row(escape(f"{line.run_id}\n{line.stack}, {line.provider}"), *_cells(line))
    return table


def _cells(line: RunLine) -> tuple[str, ...]:
    figures = (_dollars(line.estimated), _dollars(line.recorded))
    if line.why_nothing:
        return (*figures, "-", "-", "-", "-")
    machines = line.billed.compute_usd
    return (
        *figures,
        _usd(line.billed.usd),
        "unknown" if machines is None else _usd(machines),
        _percent_text(line.percent),
        _percent_text(line.percent_of_estimate),
    )


def _rest_table(result: Reconciliation) -> Table:
    table = Table(title="the rest of the bill, USD", title_justify="left", padding=(0, 1, 0, 0), show_edge=False)
    for column in ("what", "USD", "charges"):
        table.add_column(column, justify="right" if column in ("USD", "charges") else "left")
    for (provider, stack), sums in sorted(result.unexplained.items()):
        _add(table, f"unexplained: {provider}, stack {stack}, no active run", sums)
    for provider, sums in sorted(result.untagged.items()):
        _add(table, f"{provider or 'no provider'}, without a stack's tag", sums)
    return table


def _add(table: Table, label: str, sums: Sums) -> None:
    services = sums.by_service.most_common(4)
    detail = ", ".join(f"{name or 'no service'} {_usd(usd)}" for name, usd in services)
    more = len(sums.by_service) - len(services)
    period = (
        ""
        if sums.first is None or sums.last is None
        else f"\n{sums.first:%Y-%m-%d %H:%M} to {sums.last:%Y-%m-%d %H:%M}"
    )
    text = f"{label}\n{detail}{f', {more} more' if more > 0 else ''}{period}"
    table.add_row(escape(text), _usd(sums.usd), f"{sums.num_charges:,}")


def _dollars(quantity: Quantity) -> str:
    return "-" if quantity.value is None else _usd(quantity.value)


def _usd(value: float) -> str:
    # Positive amounts below a cent do not show as 0.
    return f"{value:,.2f}" if abs(value) >= 0.005 or not value else f"{value:.2g}"


def _percent_text(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1f}%"
