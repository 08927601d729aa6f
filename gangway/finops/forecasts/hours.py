"""`gangway when`: from a forecast file to the best hours to train in, as text and JSON."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from gangway.components.core.findings import InputError
from gangway.sim.forecast.series import Series, format_time, read_series, said_length
from gangway.sim.schedule.pauses import MOST_STEPS, Ahead, Schedule, Work
from gangway.trainer.core.regular_files import read_text_file

_ENDS: Final = ("low", "high")
_OTHER_COLUMNS: Final = frozenset({"time", "baseline", *_ENDS})
_UNITS: Final = {"usd_per_hour": ("USD", "nodes"), "g_per_kwh": ("gCO2e", "kW")}
"""The unit of a series summed over hours, and what `--times` counts."""
_FORMAT: Final = "output of `gangway forecast --out`: time,NAME,low,high"


@dataclass(frozen=True)
class ForecastSeries:
    """A forecast from its file: middles and interval ends."""

    middle: Series
    low: Series
    high: Series

    @property
    def unit(self) -> str:
        """The unit of the sum over hours."""
        return _UNITS.get(self.middle.name, (f"{self.middle.name} x h", ""))[0]

    def ahead(self, times: float) -> Ahead:
        """The forecast scaled by `times`."""
        low, middle, high = (
            tuple(value * times for value in each.values) for each in (self.low, self.middle, self.high)
        )
        return Ahead(self.middle.step / timedelta(hours=1), low, middle, high)

    def until(self, steps: int) -> "ForecastSeries":
        """The first `steps` steps."""
        return ForecastSeries(self.middle.until(steps), self.low.until(steps), self.high.until(steps))


@dataclass(frozen=True)
class Answer:
    """A schedule and what it was computed from. `times`: nodes for a price, kW for an intensity."""

    forecast: ForecastSeries
    work: Work
    times: float
    schedule: Schedule

    def stints(self) -> Iterator[tuple[datetime, datetime, float]]:
        """Start, end and hours of each."""
        for first, hours in self.schedule.stints:
            begins = self.forecast.middle.find_time(first)
            yield begins, begins + timedelta(hours=hours), hours


def read_forecast(path: Path, column: str | None) -> ForecastSeries:
    """Read a forecast file. InputError: no intervals, a negative value, or too long."""
    head = _head(path)
    if missing := [end for end in _ENDS if end not in head]:
        raise InputError(
            str(path), f"no column {missing[0]!r}: savings are computed from intervals", value=",".join(head),
            allowed=_FORMAT, fix="gangway forecast HISTORY --out forecast.csv",
        )  # fmt: skip
    name = column or next((each for each in head if each not in _OTHER_COLUMNS), None)
    middle, low, high = (read_series(path, each) for each in (name, *_ENDS))
    if len(middle.values) > MOST_STEPS:
        raise InputError(
            str(path), "too many steps", value=len(middle.values), allowed=f"at most {MOST_STEPS}",
            fix="use longer steps or a shorter horizon",
        )  # fmt: skip
    for index, values in enumerate(zip(low.values, middle.values, high.values, strict=True)):
        place = f"{path}: {format_time(middle.find_time(index))}"
        if values[1] < 0:
            raise InputError(
                place, f"negative {middle.name}", value=values[1], allowed="0 or more", fix="write 0 there"
            )
        if not values[0] <= values[1] <= values[2]:
            raise InputError(
                place, "outside its interval", value=values[1], allowed=f"{values[0]:g} to {values[2]:g}",
                fix="write low <= value <= high",
            )  # fmt: skip
    return ForecastSeries(middle, low, high)


def _head(path: Path) -> list[str]:
    """The column names; `read_series` reports unreadable files better."""
    try:
        first = next((line for line in read_text_file(path).split("\n") if not line.startswith("#")), "")
    except (OSError, UnicodeDecodeError):
        read_series(path)
        raise
    return [cell.strip() for cell in next(csv.reader([first]), [])]


def answer_json(answer: Answer) -> dict[str, Any]:
    """The answer as JSON data."""
    forecast, schedule, saving = answer.forecast, answer.schedule, answer.schedule.saving
    return {
        "series": forecast.middle.name,
        "note": forecast.middle.note,
        "unit": forecast.unit,
        "times": answer.times,
        "from": format_time(forecast.middle.start),
        "deadline": format_time(_deadline(answer)),
        "hours_needed": answer.work.hours,
        "restart_sec": answer.work.restart_hours * 3600,
        "running": answer.work.is_running,
        "most_pauses": answer.work.most_pauses,
        "stints": [
            {"from": format_time(begins), "until": format_time(ends), "hours": hours}
            for begins, ends, hours in answer.stints()
        ],
        "expected": schedule.cost,
        "running_through": schedule.through_cost,
        "saving": {"low": saving.low, "middle": saving.middle, "high": saving.high},
        "verdict": _verdict(schedule),
    }


def answer_lines(answer: Answer) -> list[str]:
    """The answer as text."""
    forecast, schedule, saving = answer.forecast, answer.schedule, answer.schedule.saving
    unit, several = _UNITS.get(forecast.middle.name, (forecast.unit, ""))
    of = f", {answer.times:g} {several}" if several else ""
    work = f"{answer.work.hours:g} h of training, {answer.work.restart_hours * 60:g} min a start"
    lines = [
        *forecast.middle.note.splitlines(),
        f"{forecast.middle.name}: {len(forecast.middle.values)} steps of {said_length(forecast.middle.step)} from "
        f"{format_time(forecast.middle.start)}, done by {format_time(_deadline(answer))}; {work}{of}",
    ]
    for begins, ends, hours in answer.stints():
        lines.append(f"train {format_time(begins)} to {format_time(_minute(ends))}, {hours:.4g} h")
    share = f" ({saving.middle / schedule.through_cost:.0%})" if schedule.through_cost else ""
    lines += [
        f"expected: {_sum(schedule.cost)} {unit}; running through: {_sum(schedule.through_cost)} {unit}",
        f"saving: {_sum(saving.middle)} {unit}{share}; {_sum(saving.low)} to {_sum(saving.high)} "
        "if all values stay in their intervals",
        _VERDICT_TEXTS[_verdict(schedule)],
    ]
    return lines


_VERDICT_TEXTS: Final = {
    "run through": "nothing to gain from waiting: run through",
    "pays": "waiting pays even at the bad end of the intervals",
    "expected to pay": "waiting is expected to pay, but costs more at the bad end of the intervals",
}


def _verdict(schedule: Schedule) -> str:
    if schedule.used == schedule.through:
        return "run through"
    return "pays" if schedule.saving.low > 0 else "expected to pay"


def _deadline(answer: Answer) -> datetime:
    return answer.forecast.middle.start + timedelta(hours=answer.work.deadline_hours)


def _sum(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.4g}"


def _minute(moment: datetime) -> datetime:
    whole = moment.replace(second=0, microsecond=0)
    return whole if whole == moment else whole + timedelta(minutes=1)
