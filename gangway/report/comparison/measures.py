"""The measures of a table, with unit, better direction, and their source in the record."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from gangway.report.comparison.groups import Member, workers
from gangway.trainer.records.quality import QualityRecord
from gangway.trainer.records.quantity import Quantity

_PARTS = 10
JOULES_PER_KWH = 3.6e6
_OLD = "not recorded by that version"


def late_loss(member: Member, name: str) -> Quantity:
    """Mean loss over the last tenth of the images, repeated work once; the record's last line without stats.jsonl."""
    known = _loss_points(member, name)
    if not known:
        return _record_loss(member, name)
    late = [one for one in known if _PARTS * one[0] > (_PARTS - 1) * member.record.images] or known[-1:]
    values = [value for _, value in late]
    if not all(math.isfinite(value) for value in values):
        return Quantity.absent("", f"{name} is no finite number in the last tenth of the images")
    first, last = (f"{images / 1000:g}" for images, _ in (late[0], late[-1]))
    window = f"at {last} kimg" if len(late) == 1 else f"from {first} to {last} kimg"
    note = f"mean over the last tenth of the images: {len(late)} line{'' if len(late) == 1 else 's'}, {window}"
    return Quantity.measured(math.fsum(values) / len(values), "", "stats.jsonl", note=note)


def _loss_points(member: Member, name: str) -> list[tuple[int, float]]:
    """Images and loss of the lines that have one, ascending, repeated work once."""
    found: list[tuple[int, float | None]] = []
    for line in member.ticks:
        while found and found[-1][0] >= line["images"]:
            found.pop()
        found.append((line["images"], line.get(name)))
    return [(images, value) for images, value in found if value is not None]


def _record_loss(member: Member, name: str) -> Quantity:
    summary = member.record.summaries.get(name)
    if summary is None:
        return Quantity.absent("", "not recorded by that version")
    last = summary.last.model_copy(update={"unit": ""})
    if last.value is None:
        return last
    return last.model_copy(update={"note": "the last line's alone: no stats.jsonl with it lies beside the record"})


Better = Literal["lower", "higher", ""]
HOLDS = (
    "Time is that of training, from the first step, without the gaps between sessions. Cost is that of the nodes "
    "in that time: without boot, waiting, file systems, a head node and network gateways. Where the suite tells what "
    "the whole stack cost while it stood, that has a column of its own."
)
"""What cost and time include: without it, spot and expensive file systems look better than they are."""


@dataclass(frozen=True)
class Measure:
    """A column. `signed`: values may be zero or less, so changes are differences, not per cent."""

    key: str
    label: str
    unit: str
    of: Callable[[Member], Quantity]
    better: Better = ""
    signed: bool = False


def _convert(figure: Quantity, factor: float, unit: str, source: str = "") -> Quantity:
    value = None if figure.value is None else figure.value * factor
    origin = f"{figure.source}{source}" if value is not None else figure.source
    return figure.model_copy(update={"value": value, "unit": unit, "source": origin})


def _epoch(member: Member, per: float, unit: str) -> Quantity:
    images = member.record.dataset.images
    return _convert(member.record.sec_per_kimg, images / 1000 / per, unit, f", x {images:,} images of the data set")


def num_gpus(member: Member) -> int:
    """GPUs of the first session: one per worker, unless workers run on CPUs or TPUs."""
    device = member.record.sessions[0].device.lower()
    return 0 if device.startswith(("cpu", "tpu", "xla")) else workers(member)


def _of_use(name: str, factor: float, unit: str) -> Callable[[Member], Quantity]:
    def figure(member: Member) -> Quantity:
        use = member.record.utilisation
        return Quantity.absent(unit, _OLD) if use is None else _convert(getattr(use, name), factor, unit)

    return figure


_ALL = (
    Measure("total_h", "Time", "h", lambda run: _convert(run.record.wall_sec, 1 / 3600, "h"), "lower"),
    Measure("min_per_epoch", "Epoch", "min", lambda run: _epoch(run, 60, "min"), "lower"),
    Measure("s_per_epoch", "Epoch", "s", lambda run: _epoch(run, 1, "s"), "lower"),
    Measure("images_per_sec", "Throughput", "images/s", lambda run: run.record.images_per_sec, "higher"),
    Measure("gpus", "GPUs", "", lambda run: Quantity.measured(num_gpus(run), "", "workers of the first session")),
    Measure("workers", "Workers", "", lambda run: Quantity.measured(workers(run), "", "of the first session")),
    Measure("loss_g", "G loss, last tenth", "", lambda run: late_loss(run, "loss_g"), signed=True),
    Measure("loss_d", "D loss, last tenth", "", lambda run: late_loss(run, "loss_d"), signed=True),
    Measure("usd", "Cost", "USD", lambda run: run.record.cost.total_usd, "lower"),
    Measure("stack_usd", "Cost of whole stack", "USD", lambda run: run.stack_usd, "lower"),
    Measure(
        "it_kwh",
        "Energy",
        "kWh",
        lambda run: _convert(run.record.energy.it_joules, 1 / JOULES_PER_KWH, "kWh"),
        "lower",
    ),
    Measure("it_wh", "Energy", "Wh", lambda run: _convert(run.record.energy.it_joules, 1 / 3600, "Wh"), "lower"),
    Measure("gco2e", "Carbon", "gCO2e", lambda run: run.record.carbon.gco2e, "lower"),
    Measure("gpu_percent", "GPU use", "%", _of_use("gpu_utilisation", 100, "%"), signed=True),
    Measure("cpu_percent", "CPU use", "%", _of_use("cpu_utilisation", 100, "%"), signed=True),
    Measure("memory_gib", "Memory in use", "GiB", _of_use("host_memory_gib", 1, "GiB"), "lower"),
    Measure("peak_memory_gib", "Peak memory of workers", "GiB", lambda run: run.record.peak_memory_gib, "lower"),
    Measure("mfu_percent", "MFU", "%", _of_use("mfu", 100, "%"), "higher", signed=True),
)
MEASURES = {measure.key: measure for measure in _ALL}
"""Measures that all records may have, by key."""


def energy_key(members: Sequence[Member]) -> str:
    """The energy measure for the runs' size: small ones in Wh."""
    known = [member.record.energy.it_joules.value or 0.0 for member in members]
    return "it_kwh" if max(known) >= JOULES_PER_KWH / 10 else "it_wh"


def quality_measures(members: Sequence[Member], always: Sequence[str] = ()) -> list[Measure]:
    """A measure for each quality metric; values computed in different ways all become absent."""
    by_name: dict[str, list[QualityRecord]] = {}
    for member in members:
        for quality in member.record.quality:
            by_name.setdefault(quality.name, []).append(quality)
    names = dict.fromkeys([*always, *by_name])
    return [_quality_measure(name, by_name.get(name, []), list(by_name)) for name in names]


def _quality_measure(name: str, records: Sequence[QualityRecord], there: Sequence[str]) -> Measure:
    # The latents' seed is the run's own.
    protocols = {record.protocol.model_copy(update={"seed": 0}).model_dump_json() for record in records}
    instead = f"; {', '.join(there)} is another measure" if there else ""
    better: Better = records[0].better if records else "higher" if name == "IS" else "lower"

    def figure(member: Member) -> Quantity:
        if len(protocols) > 1:
            return Quantity.absent("", "computed in different ways by these runs, so not to be compared")
        found = next((record for record in member.record.quality if record.name == name), None)
        if found is None:
            return Quantity.absent("", f"this run has no {name}{instead}")
        return found.trained.model_copy(update={"unit": ""})

    # KID is unbiased, so it may be negative for equal sets.
    return Measure(name, name, "", figure, better, signed=name.startswith("KID"))


def scaling(members: Sequence[Member]) -> Measure:
    """Images/s per worker relative to one worker alone, on the same (named) machine type and device."""
    alone: dict[tuple[str, str, str], list[Member]] = {}
    for member in members:
        if workers(member) == 1:
            alone.setdefault(_speed_key(member), []).append(member)

    def figure(member: Member) -> Quantity:
        known = member.record.scaling_efficiency
        if known.value is None and not member.record.machine_type:
            return Quantity.absent(
                "", "the record does not name the machine, so no other run is known to be of the same"
            )
        speed = member.record.images_per_sec.value
        single = [one.record.images_per_sec.value for one in alone.get(_speed_key(member), ())]
        speeds = [value for value in single if value]
        if known.value is not None or not speeds or speed is None or workers(member) == 1:
            itself = workers(member) == 1 and bool(speeds)
            reason = "others are compared with it" if itself else "no run on one worker of the same device beside it"
            return known if known.value is not None else Quantity.absent("", reason)
        value = speed / workers(member) / (sum(speeds) / len(speeds))
        return Quantity.measured(value, "", f"images/s of a worker, against {len(speeds)} run(s) on one such worker")

    return Measure("scaling_efficiency", "Scaling efficiency", "", figure, "higher")


def _speed_key(member: Member) -> tuple[str, str, str]:
    """What must be equal, so that speed differs only by the number of workers."""
    settings = member.record.config.model_copy(update={"seed": 0}).model_dump_json()
    return member.record.machine_type, member.record.sessions[0].device, settings
