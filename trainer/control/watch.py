"""Turns statistics lines into intervals, while a run trains and from its log."""

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from gangway.trainer.config.values.metric_names import FD_ENL0, of_frames
from gangway.trainer.control.interval import Decision, Interval, Knobs
from gangway.trainer.records.stats_log import Line

GUARDS = (FD_ENL0, of_frames(FD_ENL0))
"""Values that need no download and that fall as a generator gets better: of pictures, and of clips. A run has one."""
# Of a session, that intervals are differences of: they only grow.
_SUMS = (
    *("metrics_sec", "telemetry_sec", "loader_stall_sec", "checkpoint_stall_sec", "allreduce_wait_sec"),
    "energy_joules",
)


class Watch:
    """Groups a run's lines until they last `interval_sec`, from a session's first line on, as earlier steps warm up."""

    def __init__(self, interval_sec: float) -> None:
        self._interval_sec = interval_sec
        self._lines: list[Line] = []
        self._guard: float | None = None

    def restart(self) -> None:
        """Starts another interval, for another session or other knobs."""
        self._lines = []

    def changed(self) -> None:
        """Starts another interval at the last line, as knobs changed."""
        self._lines = self._lines[-1:]

    def quality(self, record: Mapping[str, Any]) -> None:
        """Takes a metric's record."""
        value = record.get("trained", {}).get("value")
        if record.get("name") in GUARDS and isinstance(value, int | float):
            self._guard = float(value)

    def see(self, line: Line) -> Interval | None:
        """Takes a line; returns the interval that it ends, or None."""
        self._lines.append(line)
        if len(self._lines) == 1:
            return None
        is_later = line["wall_sec"] > self._lines[-2]["wall_sec"]
        if is_later and training_sec(self._lines[0], line) < self._interval_sec:
            return None
        found = interval(self._lines, self._guard)
        self._lines, self._guard = [line], None
        return found


def interval(lines: Sequence[Line], guard: float | None = None) -> Interval:
    """Returns the interval from the first line to the last, at least two."""
    first, last, new = lines[0], lines[-1], lines[1:]
    seconds = training_sec(first, last)
    per_sec = 1 / seconds if seconds > 0 else 0.0

    def share(name: str) -> float:
        grown: float = last[name] - first[name]
        return grown * per_sec

    def known(name: str) -> list[float]:
        return [line[name] for line in new if line.get(name) is not None]

    def mean(name: str) -> float | None:
        values = known(name)
        return math.fsum(values) / len(values) if values else None

    waited = _grown(first, last, "allreduce_wait_sec")
    return Interval(
        images=last["images"],
        seconds=seconds if per_sec else 0.0,  # Sums over a run stand, whatever one clock has shown.
        images_per_sec=(last["images"] - first["images"]) * per_sec,
        knobs=Knobs(**last["knobs"]),
        workers=last["world_size"],
        resolution=last.get("resolution", 0),
        phase_sec=last.get("phase_sec") or {},
        loader_share=share("loader_stall_sec"),
        allreduce_share=None if waited is None else waited * per_sec,
        checkpoint_share=share("checkpoint_stall_sec"),
        # Of a trainer that did not say it: torch has a figure of every GPU's memory, and of a CPU none.
        on_cpu=last.get("on_cpu", last.get("gpu_memory_share") is None),
        device_use=mean("gpu_utilisation"),
        device_memory_share=max(known("gpu_memory_share"), default=None),
        cpu_use=mean("cpu_utilisation") or 0.0,
        cpu_wait_share=mean("cpu_wait_share"),
        neighbour_cores=mean("neighbour_cores"),
        cores=last.get("cores", 1),
        host_memory_share=max(known("host_memory_share"), default=None),
        watts=_watts(first, last),
        noise_scale=last.get("noise_scale"),
        usd_per_hour=last.get("usd_per_hour"),
        g_per_kwh=last.get("g_per_kwh"),
        guard=guard,
        told=tuple(dict.fromkeys(_troubles(lines))),
    )


def get_history(
    lines: Iterable[Line],
    interval_sec: float,
    images: float = math.inf,
    failed: Collection[tuple[int, int]] = (),
) -> list[Interval]:
    """Returns the intervals of a log, up to `images`; decisions in `failed` (session, images) count as failed."""
    watch, history, session = Watch(interval_sec), list[Interval](), None
    for line in lines:
        if line.get("session") != session:
            session = line.get("session")
            watch.restart()
        match line.get("event"):
            case None if "knobs" in line and line["images"] <= images:
                found = watch.see(line)
                history += [] if found is None else [found]
            case "resume":
                history = [each for each in history if each.images <= line["images"]]
            case "quality" if line["images"] <= images:
                watch.quality(line["quality"])
            case "decision" if line["images"] <= images and history and line["outcome"] != "observed":
                is_failed = line["outcome"] == "failed" or (line["session"], line["images"]) in failed
                history[-1] = history[-1].ended_by(get_decision(line), failed=is_failed)
                watch.changed()
            case _:
                pass
    return history


def get_decision(line: Line) -> Decision:
    """Returns an event's decision."""
    return Decision(*(line[name] for name in Decision._fields))


def _watts(first: Line, last: Line) -> float | None:
    """Returns None where a device has neither meter nor model, as the sum would be incomplete."""
    joules, wall_sec = _grown(first, last, "energy_joules"), last["wall_sec"] - first["wall_sec"]
    absent = any(reading[0] is None for reading in last["energy"].values())
    return None if joules is None or absent or wall_sec <= 0 else joules / wall_sec


def training_sec(first: Line, last: Line) -> float:
    """Returns the time between two lines of a session without metrics, sample grids and statistics."""
    spent = [line["wall_sec"] - line["metrics_sec"] - line["telemetry_sec"] for line in (first, last)]
    return float(spent[1] - spent[0])


def _troubles(lines: Sequence[Line]) -> Iterable[str]:
    for before, line in itertools.pairwise(lines):
        if line["wall_sec"] <= before["wall_sec"]:
            yield f"the clock went from {before['wall_sec']:.1f} s to {line['wall_sec']:.1f} s"
        if line["images"] <= before["images"]:
            yield f"images went from {before['images']:,} to {line['images']:,}"
        for name in _SUMS:
            if (_grown(before, line, name) or 0.0) < 0:
                yield f"{name} went from {before[name]:g} to {line[name]:g}"
    figures = ((*line.items(), *(line.get("phase_sec") or {}).items()) for line in lines)
    for name, value in itertools.chain.from_iterable(figures):
        if not isinstance(value, int | float):
            continue
        if not math.isfinite(value):
            yield f"{name} is {value}"
        elif name.endswith(("_sec", "_utilisation", "_share")) and value < 0:
            yield f"{name} is {value:g}, below 0"
    seconds = training_sec(lines[0], lines[-1])
    if seconds <= 0:
        yield f"the steps have taken {seconds:g} s"


def _grown(first: Line, last: Line, name: str) -> float | None:
    before, after = first.get(name), last.get(name)
    return None if before is None or after is None else after - before
