"""Plans the hours of a pausable job: it waits for cheap or clean hours if deadline and restarts allow. Exact
over schedules that train for whole steps of the forecast, except the last; pure.

    >>> hours = Ahead(1.0, low=(8, 1, 1, 8), middle=(9, 2, 2, 9), high=(10, 3, 3, 10))
    >>> plan_hours(hours, Work(hours=2)).stints
    ((1, 2.0),)
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

__all__ = ["MOST_STEPS", "Ahead", "Saving", "Schedule", "Work", "plan_hours"]

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
    """The work. `hours`: remaining training, above 0; `restart_hours`: per start, paid like training; `is_running`: a
    running job may continue at the first step without a start; `most_pauses`: once it trains, unlimited by default;
    `deadline_hours`: from the first step, possibly within a step, at most the last step's end.
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
    """Remaining hours from a state, without another start."""
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
