"""`gangway forecast hours`: from a forecast file to the best hours to train, as lines and JSON."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from components.core.findings import InputError
from gangway.sim.forecast.series import Series, format_time, read_series, said_length
from gangway.sim.schedule.pauses import MOST_STEPS, Ahead, Schedule, Work
from trainer.core.regular_files import read_text_file

__all__ = ["Asked", "Known", "answer_json", "answer_lines", "read_known"]

_ENDS: Final = ("low", "high")
_BESIDE: Final = frozenset({"time", "baseline", *_ENDS})
_UNITS: Final = {"usd_per_hour": ("USD", "nodes"), "g_per_kwh": ("gCO2e", "kW")}
"""What a series sums up to over hours, and what can be multiple."""
_WRITTEN: Final = "as `gangway forecast --out` writes it: time,NAME,low,high"


@dataclass(frozen=True)
class Known:
    """A forecast from its file: middles and interval ends."""

    middle: Series
    low: Series
    high: Series

    @property
    def unit(self) -> str:
        """Of the sum over hours."""
        return _UNITS.get(self.middle.name, (f"{self.middle.name} x h", ""))[0]

    def ahead(self, times: float) -> Ahead:
        """The forecast scaled by `times`."""
        low, middle, high = (
            tuple(value * times for value in each.values) for each in (self.low, self.middle, self.high)
        )
        return Ahead(self.middle.step / timedelta(hours=1), low, middle, high)

    def until(self, steps: int) -> "Known":
        """The first `steps` steps."""
        return Known(self.middle.until(steps), self.low.until(steps), self.high.until(steps))


@dataclass(frozen=True)
class Asked:
    """A question and its answer. `times`: nodes for a price, kW for an intensity."""

    known: Known
    work: Work
    times: float
    found: Schedule

    def stints(self) -> Iterator[tuple[datetime, datetime, float]]:
        """Start, end and hours of each."""
        for first, hours in self.found.stints:
            begins = self.known.middle.find_time(first)
            yield begins, begins + timedelta(hours=hours), hours


def read_known(path: Path, column: str | None) -> Known:
    """Read a forecast file. InputError: no intervals, a negative value, or too long."""
    head = _head(path)
    if lacking := [end for end in _ENDS if end not in head]:
        raise InputError(
            str(path), f"no column {lacking[0]!r}: what saves surely is told by intervals", value=",".join(head),
            allowed=_WRITTEN, fix="gangway forecast HISTORY --out forecast.csv",
        )  # fmt: skip
    name = column or next((each for each in head if each not in _BESIDE), None)
    middle, low, high = (read_series(path, each) for each in (name, *_ENDS))
    if len(middle.values) > MOST_STEPS:
        raise InputError(
            str(path), "too many steps", value=len(middle.values), allowed=f"{MOST_STEPS} at most",
            fix="forecast in longer steps, or less far ahead",
        )  # fmt: skip
    for index, values in enumerate(zip(low.values, middle.values, high.values, strict=True)):
        place = f"{path}: {format_time(middle.find_time(index))}"
        if values[1] < 0:
            raise InputError(
                place, f"{middle.name} below zero", value=values[1], allowed="0 or more", fix="write 0 there"
            )
        if not values[0] <= values[1] <= values[2]:
            raise InputError(
                place, "out of its interval", value=values[1], allowed=f"{values[0]:g} to {values[2]:g}",
                fix="write low <= value <= high",
            )  # fmt: skip
    return Known(middle, low, high)


def _head(path: Path) -> list[str]:
    """The column names; `read_series` reports unreadable files better."""
    try:
        first = next((line for line in read_text_file(path).split("\n") if not line.startswith("#")), "")
    except (OSError, UnicodeDecodeError):
        read_series(path)
        raise
    return [cell.strip() for cell in next(csv.reader([first]), [])]


def answer_json(asked: Asked) -> dict[str, Any]:
    """The answer as JSON data."""
    known, found, saving = asked.known, asked.found, asked.found.saving
    return {
        "series": known.middle.name,
        "note": known.middle.note,
        "unit": known.unit,
        "times": asked.times,
        "from": format_time(known.middle.start),
        "deadline": format_time(_deadline(asked)),
        "hours_needed": asked.work.hours,
        "restart_sec": asked.work.restart_hours * 3600,
        "running": asked.work.is_running,
        "most_pauses": asked.work.most_pauses,
        "stints": [
            {"from": format_time(begins), "until": format_time(ends), "hours": hours}
            for begins, ends, hours in asked.stints()
        ],
        "expected": found.cost,
        "running_through": found.through_cost,
        "saving": {"low": saving.low, "middle": saving.middle, "high": saving.high},
        "verdict": _verdict(found),
    }


def answer_lines(asked: Asked) -> list[str]:
    """The answer as text."""
    known, found = asked.known, asked.found
    unit, several = _UNITS.get(known.middle.name, (known.unit, ""))
    of = f", {asked.times:g} {several}" if several else ""
    work = f"{asked.work.hours:g} h of training, {asked.work.restart_hours * 60:g} min a start"
    lines = [
        *known.middle.note.splitlines(),
        f"{known.middle.name}: {len(known.middle.values)} steps of {said_length(known.middle.step)} from "
        f"{format_time(known.middle.start)}, done by {format_time(_deadline(asked))}; {work}{of}",
    ]
    for begins, ends, hours in asked.stints():
        lines.append(f"train {format_time(begins)} to {format_time(_minute(ends))}, {hours:.4g} h")
    saving = found.saving
    share = f" ({saving.middle / found.through_cost:.0%})" if found.through_cost else ""
    lines += [
        f"expected: {_sum(found.cost)} {unit}; running through: {_sum(found.through_cost)} {unit}",
        f"saving: {_sum(saving.middle)} {unit}{share}; while all values stay in their intervals {_sum(saving.low)} to "
        f"{_sum(saving.high)}",
        _SAID[_verdict(found)],
    ]
    return lines


_SAID: Final = {
    "run through": "no step to wait for: run through",
    "pays": "waiting pays, also at the bad end of the intervals",
    "expected to pay": "waiting is expected to pay, and may not: the bad end of the intervals is dearer",
}


def _verdict(found: Schedule) -> str:
    if found.used == found.through:
        return "run through"
    return "pays" if found.saving.low > 0 else "expected to pay"


def _deadline(asked: Asked) -> datetime:
    return asked.known.middle.start + timedelta(hours=asked.work.deadline_hours)


def _sum(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.4g}"


def _minute(moment: datetime) -> datetime:
    whole = moment.replace(second=0, microsecond=0)
    return whole if whole == moment else whole + timedelta(minutes=1)
