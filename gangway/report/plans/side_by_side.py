"""Tables side by side: several stacks (`gangway plan A B C`), also across clouds; a preset on rentable machines."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gangway.components.core.findings import InputError, Severity
from gangway.components.estimate.cost import Bound, foreign_note, foreign_regions, marked_usd
from gangway.components.estimate.offers import find_offers, get_carriers
from gangway.components.estimate.statistics import Band
from gangway.report.plans.show import usd
from gangway.stacks.base.registry import sellers
from gangway.stacks.estimates.common_findings import span
from gangway.stacks.estimates.run_costs import most_bound
from gangway.stacks.estimates.throughput import FAST, SLOW, about, project
from gangway.stacks.loading.loader import find_stack_file, from_file
from gangway.stacks.plan.plan import Plan, make_plan
from gangway.trainer.config.segment_plan import stretches
from gangway.trainer.config.step_memory import estimate, fitting_batch_gpu, least_gib
from gangway.trainer.config.train_config import TrainConfig


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


# A preset's memory, hours and cost on rentable machines, before there is a stack file.

MACHINES = ("A100-80Gx8", "H100x8", "H200x8")
"""Machines to show presets for."""


@dataclass(frozen=True)
class OnMachine:
    """A preset's whole run on one machine. `images_per_second`, `hours`: projected, None without data or memory; `usd`:
    on demand, at the cheapest offer; `fitting`: the largest micro-batch that fits if the preset's does not.
    """

    accelerator: str
    needs_gib: float
    has_gib: float | None
    images_per_second: Band | None
    hours: Band | None
    usd: Band | None
    offer: str
    problem: str = ""
    fitting: int | None = None


def on_machine(config: TrainConfig, accelerator: str) -> OnMachine:
    """Evaluate the preset on one machine with this accelerator, such as H100x8."""
    carriers = get_carriers(accelerator, {one.name: one.catalog_here() for one in sellers()})
    priced = [offer for offer in find_offers(carriers) if offer.kind == "on-demand" and offer.price.value is not None]
    cheapest = min(priced, key=lambda offer: offer.price.value or 0.0, default=None)
    machine = carriers[0].machine if cheapest is None else cheapest.machine
    workers = machine.num_accelerators.value
    needs, has = estimate(config, workers).total, machine.accelerator_memory_gib.value
    problem = _problem(config, workers, has)
    band = None if problem else project(config, machine, 1).images_per_second
    hours = (
        None if band is None else Band(*(config.kimg * 1000 / rate / 3600 for rate in (band.high, band.mid, band.low)))
    )
    paid, offer = None, ""
    if cheapest is not None and cheapest.price.value is not None:
        price, offer = cheapest.price.value, cheapest.label
        paid = None if hours is None else hours.map(lambda each: each * price)
    fitting = None if has is None or needs <= has else fitting_batch_gpu(config, has, workers)
    return OnMachine(accelerator, needs, has, band, hours, paid, offer, problem, fitting)


def _problem(config: TrainConfig, workers: int, has_gib: float | None) -> str:
    smallest = min(each.config.batch_size for each in stretches(config))
    if smallest < workers * config.group:
        return f"a batch of {smallest} is too small for {workers} workers"
    required_gib = least_gib(config, workers)
    if has_gib is not None and required_gib > has_gib:
        return f"a step needs {about(required_gib)} GiB of {has_gib:g} GiB at least"
    return ""


def table(config: TrainConfig, found: Sequence[OnMachine]) -> str:
    """The results as text: a row per machine, with its cheapest offer below."""
    rows = [("ON ONE", "MEMORY OF EACH", "IMAGES/S", "TIME", "AT THE CHEAPEST LIST PRICE")]
    for each in found:
        room = "?" if each.has_gib is None else f"{each.has_gib:g}"
        memory = f"{each.needs_gib:.2g} of {room} GiB"
        if each.problem:
            rows.append((each.accelerator, memory, "-", "-", each.problem))
            continue
        price = "no price known" if each.usd is None else _band(each.usd, usd)
        took = _band(each.hours, lambda hours: span(hours * 3600))
        rows.append((each.accelerator, memory, _band(each.images_per_second, about), took, price))
        room_for = "" if each.fitting is None else f"with --batch-gpu {each.fitting}, for which there is room"
        offer = "" if each.usd is None else each.offer
        if below := "; ".join(filter(None, (offer, room_for))):
            rows.append(("", below, "", "", ""))
    widths = [max(len(row[column]) for row in rows if row[0]) for column in range(4)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True)) for row in rows]
    parts = (
        f"projected, not measured, of {config.kimg * 1000:,.0f} images in {_steps(config)};\n"
        f"from {SLOW.utilisation:.0%} to {FAST.utilisation:.0%} of the peak and {SLOW.launch_sec * 1e6:g} to "
        f"{FAST.launch_sec * 1e6:g} us to start an operation: nobody has published a speed of this preset on these;\n"
        "memory is estimated, at a step's peak, without libraries' work space; `gangway plan` says where each figure "
        "is from"
    )
    return "\n".join([line.rstrip() for line in lines] + [parts, ""])


def _steps(config: TrainConfig) -> str:
    sizes = [values.batch_size for values, _ in zip(config.planned, config.bounds, strict=False)]
    if set(sizes) == {config.batch_size}:
        return f"steps of {config.batch_size}"
    return f"steps of {', '.join(map(str, sizes))} by segments"


def _band(band: Band | None, text: Callable[[float], str]) -> str:
    return "unknown" if band is None else f"{text(band.mid)} ({text(band.low)} to {text(band.high)})"
