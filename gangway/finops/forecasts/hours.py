"""`gangway when`: from a forecast file to the best hours to train in, as text and JSON."""

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from gangway.components.core.findings import InputError
from gangway.sim.forecast.series import Series, format_time, read_series, said_length
from gangway.trainer.core.regular_files import read_text_file

MOST_STEPS: Final = 336
"""Two weeks of hours: unordered values take some 20 s on one core, and time is cubic."""
_ROUNDING: Final = 1e-9


@dataclass(frozen=True)
class Ahead:
    """Forecast dollars or grams of an hour, a value per step. `middle` is never negative."""

    step_hours: float
    low: tuple[float, ...]
    middle: tuple[float, ...]
    high: tuple[float, ...]

    def cost(self, used: Sequence[float]) -> float:
        """The expected cost of so many hours in each step."""
        return math.fsum(hours * each for hours, each in zip(used, self.middle, strict=True))


@dataclass(frozen=True)
class Work:
    """`restart_hours`: per start, paid like training; `is_running`: needs no first start; `deadline_hours`: from the
    first step.
    """

    hours: float
    restart_hours: float = 0.0
    is_running: bool = False
    most_pauses: int | None = None
    deadline_hours: float = math.inf

    def may_start(self, starts: int) -> bool:
        """Whether it may start again after so many starts."""
        return self.most_pauses is None or starts < self.most_pauses + (not self.is_running)


class Saving(NamedTuple):
    """Compared with running through. `low` and `high`: bounds while every value stays in its interval."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True)
class Schedule:
    """Hours used of each step, from its start. `through`: the same for a job that never pauses."""

    ahead: Ahead
    used: tuple[float, ...]
    through: tuple[float, ...]

    @property
    def stints(self) -> tuple[tuple[int, float], ...]:
        """First step and hours of each period without a pause."""
        found: list[tuple[int, float]] = []
        for index, hours in enumerate(self.used):
            if hours and index and self.used[index - 1]:
                found[-1] = (found[-1][0], found[-1][1] + hours)
            elif hours:
                found.append((index, hours))
        return tuple(found)

    @property
    def cost(self) -> float:
        """Expected."""
        return self.ahead.cost(self.used)

    @property
    def through_cost(self) -> float:
        """Expected, of running through."""
        return self.ahead.cost(self.through)

    @property
    def saving(self) -> Saving:
        """What the pauses are worth; steps in both schedules cancel."""
        fewer = [before - after for before, after in zip(self.through, self.used, strict=True)]

        def least(ends: Sequence[float], others: Sequence[float]) -> float:
            sides = zip(fewer, ends, others, strict=True)
            return math.fsum(hours * (end if hours > 0 else other) for hours, end, other in sides)

        low, high = least(self.ahead.low, self.ahead.high), least(self.ahead.high, self.ahead.low)
        return Saving(low, self.through_cost - self.cost, high)


class _Path(NamedTuple):
    """A path to a state. `last`: the last used step, linked to the earlier ones."""

    cost: float
    last: "tuple[int, _Path] | None"


_States = dict[tuple[bool, int, int], _Path]
"""By whether it trains, used steps, and starts."""


def plan_hours(ahead: Ahead, work: Work) -> Schedule | None:
    """The cheapest expected schedule; running through if none is cheaper. None: the deadline is missed."""
    steps, step = len(ahead.middle), ahead.step_hours
    until = min(work.deadline_hours, steps * step)
    through = _uninterrupted_hours(steps, step, work, until)
    if through is None:
        return None
    best, best_cost = through, ahead.cost(through) * (1 - _ROUNDING)
    states: _States = {(work.is_running, 0, 0): _Path(0.0, None)}
    for index, value in enumerate(ahead.middle):
        for path, last_hours in _final_paths(states, step, work, until - index * step):
            cost = path.cost + last_hours * value
            if cost < best_cost:
                best, best_cost = _hours(steps, step, path, index, last_hours), cost
        states = _next_states(states, index, value, step, work, until)
    return Schedule(ahead, best, through)


def _uninterrupted_hours(steps: int, step: float, work: Work, until: float) -> tuple[float, ...] | None:
    remaining = work.hours + (0.0 if work.is_running else work.restart_hours)
    if remaining > until + _ROUNDING:
        return None
    return tuple(min(max(remaining - index * step, 0.0), step) for index in range(steps))


def _remaining_hours(key: tuple[bool, int, int], step: float, work: Work) -> float:
    _, used, starts = key
    return work.hours + starts * work.restart_hours - used * step


def _final_paths(states: _States, step: float, work: Work, until: float) -> Iterator[tuple[_Path, float]]:
    for key, path in states.items():
        remaining = _remaining_hours(key, step, work) + (0.0 if key[0] else work.restart_hours)
        if remaining <= min(step, until) + _ROUNDING and (key[0] or work.may_start(key[2])):
            yield path, min(remaining, step)


def _next_states(states: _States, index: int, value: float, step: float, work: Work, until: float) -> _States:
    found: _States = {}
    for (trains, used, starts), path in states.items():
        on, off = (True, used + 1, starts + (not trains)), (False, used, starts)
        for key, next_way in ((on, _Path(path.cost + value * step, (index, path))), (off, path)):
            remaining = _remaining_hours(key, step, work) + (0.0 if key[0] else work.restart_hours)
            in_reach = remaining <= until - (index + 1) * step + _ROUNDING and (
                trains or not key[0] or work.may_start(starts)
            )
            if remaining > _ROUNDING and in_reach and (key not in found or next_way.cost < found[key].cost):
                found[key] = next_way
    return _drop_dominated(found)


def _drop_dominated(states: _States) -> _States:
    """Drops states with less work for no less cost: equal steps, more starts."""
    undominated: _States = {}
    cheapest: dict[tuple[bool, int], float] = {}
    for key in sorted(states):
        progress, path = key[:2], states[key]
        if path.cost < cheapest.get(progress, math.inf):
            cheapest[progress] = path.cost
            undominated[key] = path
    return undominated


def _hours(steps: int, step: float, path: _Path, index: int, last_hours: float) -> tuple[float, ...]:
    hours = [0.0] * steps
    hours[index] = last_hours
    while path.last is not None:
        used, path = path.last
        hours[used] = step
    return tuple(hours)


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
