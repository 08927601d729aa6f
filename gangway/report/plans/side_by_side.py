"""Several stacks side by side (`gangway plan A B C`), also across clouds: one column per stack."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gangway.components.core.findings import InputError, Severity
from gangway.components.estimate.cost import Bound, foreign_note, foreign_regions, marked_usd
from gangway.stacks.estimates.common_findings import span
from gangway.stacks.estimates.run_costs import most_bound
from gangway.stacks.loading.loader import find_stack_file, from_file
from gangway.stacks.plan.plan import Plan, make_plan


@dataclass(frozen=True)
class StackSummary:
    """The figures of one plan. Dollars exclude the `unpriced` parts. None: unknown or not applicable."""

    stack: str
    provider: str
    region: str
    machine: str
    nodes_min: int
    nodes_max: int
    capacity: tuple[str, ...]
    usd_per_hour: float
    expected_usd: float | None
    most_usd: float | None
    expected_hours: float | None
    most_hours: float | None
    kwh: float | None
    gco2e: float | None
    sci_g_per_kimg: float | None
    errors: int
    warnings: int
    notes: int
    unpriced: tuple[str, ...]
    foreign_regions: tuple[str, ...]
    bound: Bound
    most_bound: Bound

    @classmethod
    def from_plan(cls, plan: Plan) -> Self:
        """Summarise a plan."""
        config, run, counts = plan.config, plan.expected, Counter(finding.severity for finding in plan.findings)
        is_run = config.job is not None and plan.rung is not None
        return cls(
            stack=config.stack,
            provider=config.provider,
            region=config.region,
            machine=config.cluster.machine_type or config.cluster.accelerator or "",
            nodes_min=config.cluster.nodes.min,
            nodes_max=config.cluster.nodes.max,
            capacity=tuple(rung.kind for rung in plan.rungs),
            usd_per_hour=plan.cost.hourly,
            expected_usd=run.usd.mid if is_run and run.usd else None,
            most_usd=plan.most_usd if is_run else None,
            expected_hours=run.hours.mid if is_run and run.hours else None,
            most_hours=plan.cost.run_hours if is_run else None,
            kwh=plan.energy.kwh,
            gco2e=plan.carbon.gco2e,
            sci_g_per_kimg=plan.sci.g_per_kimg,
            errors=counts[Severity.ERROR],
            warnings=counts[Severity.WARNING],
            notes=counts[Severity.INFO],
            unpriced=tuple(plan.cost.unknown),
            foreign_regions=foreign_regions(plan.cost.components),
            bound=plan.cost.bound,
            most_bound=most_bound(plan.cost),
        )


def side_by_side(summaries: Sequence[StackSummary]) -> Table:
    """A table with a row per figure and a column per stack."""
    table = Table(title="side by side (estimated)", title_justify="left")
    table.add_column("", no_wrap=True)
    for one in summaries:
        table.add_column(escape(one.stack), justify="right", overflow="fold")
    columns = [_cells(one) for one in summaries]
    for row in columns[0]:
        table.add_row(row, *(escape(column[row]) for column in columns))
    foreign = dict.fromkeys(region for one in summaries for region in one.foreign_regions)
    if foreign:
        table.caption = f"* {foreign_note(foreign)}: no bound"
    return table


def _cells(one: StackSummary) -> dict[str, str]:
    nodes = f"{one.nodes_min}" if one.nodes_min == one.nodes_max else f"{one.nodes_min} to {one.nodes_max}"
    return {
        "provider": one.provider,
        "region": one.region,
        "machine": one.machine,
        "nodes": nodes,
        "capacity": ", then ".join(one.capacity),
        "an hour": _usd(one.usd_per_hour, one.bound, one),
        "a run, expected": _usd(one.expected_usd, one.bound, one),
        "a run, all of max_hours": _usd(one.most_usd, one.most_bound, one),
        "time, expected": "-" if one.expected_hours is None else span(one.expected_hours * 3600),
        "time, at most": "-" if one.most_hours is None else f"{one.most_hours:,.5g} h",
        "energy, expected": "-" if one.kwh is None else f"{one.kwh:,.1f} kWh",
        "emissions, expected": "-" if one.gco2e is None else f"{one.gco2e / 1000:,.2f} kg CO2e",
        "SCI (1,000 images), expected": "-" if one.sci_g_per_kimg is None else f"{one.sci_g_per_kimg:.3g} g",
        "errors": str(one.errors),
        "warnings": str(one.warnings),
        "notes": str(one.notes),
    }


def _usd(amount: float | None, bound: Bound, one: StackSummary) -> str:
    if amount is None:
        return "-"
    return marked_usd(amount, bound, is_foreign=bool(one.foreign_regions), is_partial=bool(one.unpriced))


def print_side_by_side(stacks: Sequence[str], folder: Path, *, as_json: bool) -> bool:
    """Plan and compare the stacks; return whether one has errors. ExceptionGroup of InputError: some fail to plan."""
    summaries, mistakes = list[StackSummary](), list[InputError]()
    for name in stacks:
        try:
            path = find_stack_file(name, folder)
            summaries.append(StackSummary.from_plan(_plan(path)))
        except* InputError as refused:
            mistakes += [one for one in refused.exceptions if isinstance(one, InputError)]
    if as_json and summaries:
        print(json.dumps({"stacks": [asdict(one) for one in summaries]}, indent=2))
    elif summaries:
        Console().print(side_by_side(summaries))
    if mistakes:
        raise ExceptionGroup("stacks that cannot be planned", mistakes)
    return any(one.errors for one in summaries)


def _plan(path: Path) -> Plan:
    config = from_file(path)
    try:
        return make_plan(config)
    except InputError as mistake:
        raise mistake.within(str(path)) from None
