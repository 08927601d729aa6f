"""Figures of a run from its statistics lines (`stats.jsonl`, or the same lines in a cloud's log): progress, pace, time
left, cost, idle GPUs, the last checkpoint and interruption.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median, quantiles
from typing import Any

from gangway.components.core.safe_text import all_visible
from gangway.finops.forecasts.run import FEWEST_WINDOWS, get_windows, remaining
from gangway.live.model import Fact, Reading, iso
from gangway.runs.run_folders import is_stats_line

Line = Mapping[str, Any]
_RECENT = 40
"""Intervals between lines from which the pace is taken."""
_LEVEL = 0.9
_IDLE_UTILISATION = 0.05
_IDLE_SHARE = 0.5
"""A GPU below this share of the highest power does no work: an idle H100 draws a sixth of a busy one."""


def parse_lines(texts: Iterable[str | bytes]) -> list[Line]:
    """The statistics lines among these texts, in order of time; whatever else a job prints is skipped."""
    found = []
    for text in texts:
        try:
            line = all_visible(json.loads(text))
        except (ValueError, RecursionError):
            continue
        if is_stats_line(line) and _is_time(line.get("time")) and isinstance(line["session"], int):
            found.append(line)
    return sorted(found, key=lambda line: float(line["time"]))


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 10**11


def moment(line: Line) -> datetime:
    """When a line was written."""
    return datetime.fromtimestamp(line["time"], UTC)


def statistics(lines: Sequence[Line]) -> list[Line]:
    """The lines that are not events."""
    return [line for line in lines if "event" not in line]


def pace(lines: Sequence[Line], source: str) -> Reading:
    """The median images/s of the last intervals, with the range of nine tenths of them."""
    windows = get_windows(statistics(lines))[-_RECENT:]
    if not windows:
        return Reading.absent("images/s", f"{source}: no two statistics lines of one session yet")
    rates = [images / seconds for seconds, images in windows]
    low, high, which = min(rates), max(rates), "the lowest and highest"
    if len(rates) >= FEWEST_WINDOWS:
        cuts = quantiles(rates, n=20, method="inclusive")
        low, high, which = cuts[0], cuts[-1], "5 to 95 % of them"
    return Reading(
        value=median(rates),
        unit="images/s",
        provenance="measured",
        source=source,
        as_of=iso(moment(lines[-1])),
        low=low,
        high=high,
        note=f"median of the last {len(rates)} intervals between lines; interval: {which}",
    )


def time_left(lines: Sequence[Line], images: float | None, wanted: float | None, source: str) -> Reading:
    """Without interruptions, with a 90 % interval by resampling the intervals between lines."""
    if images is None or wanted is None:
        return Reading.absent("s", "the number of images, done or wanted, is unknown")
    if images >= wanted:
        return Reading.measured(0.0, "s", source, "all images are done")
    windows = get_windows(statistics(lines))
    if len(windows) < FEWEST_WINDOWS:
        return Reading.absent("s", f"{source}: {len(windows)} intervals between lines, of at least {FEWEST_WINDOWS}")
    ahead = remaining(windows, wanted - images, _LEVEL)
    return Reading(
        value=ahead.middle_sec,
        unit="s",
        provenance="estimated",
        source=source,
        as_of=iso(moment(lines[-1])),
        low=ahead.low_sec,
        high=ahead.high_sec,
        note="90 % interval: bootstrap of the intervals between lines, widened by their autocorrelation; "
        "without interruptions",
    )


def cost(lines: Sequence[Line], source: str) -> Reading:
    """Hours between lines of one session, times the price that they carry."""
    ticks = statistics(lines)
    pairs = [(one, other) for one, other in pairwise(ticks) if one["session"] == other["session"]]
    if not pairs:
        return Reading.absent("USD", f"{source}: no two statistics lines of one session yet")
    usd = 0.0
    for earlier, later in pairs:
        price = later.get("usd_per_hour")
        if not isinstance(price, int | float):
            return Reading.absent("USD", f"{source}: its lines carry no price of the nodes")
        usd += max(0.0, later["time"] - earlier["time"]) / 3600 * price
    return Reading(
        value=usd,
        unit="USD",
        provenance="estimated",
        source=f"{source}: hours while it trained x the price that its lines carry",
        as_of=iso(moment(ticks[-1])),
    )


def idle_devices(lines: Sequence[Line], source: str) -> Reading:
    """GPUs that draw less than half of the highest power among them, or all if none computes."""
    ticks = statistics(lines)
    if not ticks or ticks[-1].get("on_cpu") is True:
        return Reading.absent("devices", f"{source}: {'it runs on CPUs' if ticks else 'no statistics line yet'}")
    last, as_of = ticks[-1], iso(moment(ticks[-1]))
    busy, workers = last.get("gpu_utilisation"), last.get("world_size")
    if isinstance(busy, int | float) and busy < _IDLE_UTILISATION and isinstance(workers, int):
        return Reading(
            value=workers, unit="devices", provenance="measured", source=source, as_of=as_of,
            note=f"their mean utilisation is {busy:.0%}",
        )  # fmt: skip
    watts = _gpu_watts(ticks)
    if len(watts) > 1:
        idle = sorted(name for name, each in watts.items() if each < _IDLE_SHARE * max(watts.values()))
        return Reading(
            value=len(idle), unit="devices", provenance="measured", source=f"{source}: energy counters", as_of=as_of,
            note=f"less than half of the highest power: {', '.join(idle)}" if idle else "",
        )  # fmt: skip
    if isinstance(busy, int | float):
        return Reading(
            value=0, unit="devices", provenance="measured", source=f"{source}: mean utilisation", as_of=as_of,
            note=f"their mean utilisation is {busy:.0%}",
        )  # fmt: skip
    return Reading.absent("devices", f"{source}: its lines have neither utilisation nor energy of a GPU")


def _gpu_watts(ticks: Sequence[Line]) -> dict[str, float]:
    """By GPU between the last two lines of a session; without those whose counter was not read, or began again."""
    if len(ticks) < 2 or ticks[-1]["session"] != ticks[-2]["session"] or ticks[-1]["time"] <= ticks[-2]["time"]:
        return {}
    before, after = (tick.get("energy") or {} for tick in ticks[-2:])
    elapsed = ticks[-1]["time"] - ticks[-2]["time"]
    found = {}
    for name, (joules, provenance, _) in after.items():
        earlier = before.get(name, [None])[0]
        if "/gpu" in name and provenance == "measured" and None not in (joules, earlier) and joules >= earlier:
            found[name] = (joules - earlier) / elapsed
    return found


def last_event(lines: Sequence[Line], event: str, source: str) -> Fact:
    """The last event of this kind."""
    found = next((line for line in reversed(lines) if line.get("event") == event), None)
    if found is None:
        return Fact(text=None, source=f"{source}: no {event} yet")
    cause = f"{found['cause']}, " if isinstance(found.get("cause"), str) else ""
    return Fact(text=f"{cause}at {found['images']:,} images", source=source, at=moment(found))
