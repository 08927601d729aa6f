"""A preset's memory, hours and cost on rentable machines, before there is a stack file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gangway.components.estimate.offers import find_offers, get_carriers
from gangway.components.estimate.statistics import Band
from gangway.report.plans.show import usd
from gangway.stacks.base.registry import sellers
from gangway.stacks.estimates.common_findings import span
from gangway.stacks.estimates.throughput import FAST, SLOW, about, project
from gangway.trainer.config.segment_plan import stretches
from gangway.trainer.config.step_memory import estimate, fitting_batch_gpu, least_gib
from gangway.trainer.config.train_config import TrainConfig

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
