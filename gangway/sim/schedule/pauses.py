"""In which hours to train: a job that may pause waits for cheap or clean ones, as far as its deadline and its restarts
leave it worth that. Exact over schedules that train throughout a step of the forecast or not at all, but for the last
one, which may be left before it ends; pure.

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
"""Two weeks of hours: values without any order take some 20 s on one core, and the time grows with the third power."""
_ROUNDING: Final = 1e-9


@dataclass(frozen=True)
class Ahead:
    """What an hour is expected to take, in dollars or grams: a value for each step. `middle` is never below zero."""

    step_hours: float
    low: tuple[float, ...]
    middle: tuple[float, ...]
    high: tuple[float, ...]

    def cost(self, used: Sequence[float]) -> float:
        """Of so many hours in each step, as expected."""
        return math.fsum(hours * each for hours, each in zip(used, self.middle, strict=True))


@dataclass(frozen=True)
class Work:
    """What is to be done.

    Attributes:
        hours: of training that are left, above 0.
        restart_hours: that each start takes, paid like training.
        is_running: whether it trains already, so that going on at the first step is no start.
        most_pauses: once it trains; as many as pay where left out.
        deadline_hours: from the first step, within a step too; the last step's end where that is earlier.
    """

    hours: float
    restart_hours: float = 0.0
    is_running: bool = False
    most_pauses: int | None = None
    deadline_hours: float = math.inf

    def may_start(self, starts: int) -> bool:
        """Whether it may start once more after so many starts."""
        return self.most_pauses is None or starts < self.most_pauses + (not self.is_running)


class Saving(NamedTuple):
    """Against running through. `low` and `high`: the least and the most while every value stays in its interval."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True)
class Schedule:
    """Hours used of each step, from its beginning. `through`: the same of a job that never pauses."""

    ahead: Ahead
    used: tuple[float, ...]
    through: tuple[float, ...]

    @property
    def stints(self) -> tuple[tuple[int, float], ...]:
        """First step and length in hours of all that is done without a pause."""
        found: list[tuple[int, float]] = []
        for index, hours in enumerate(self.used):
            if hours and index and self.used[index - 1]:
                found[-1] = (found[-1][0], found[-1][1] + hours)
            elif hours:
                found.append((index, hours))
        return tuple(found)

    @property
    def cost(self) -> float:
        """As expected."""
        return self.ahead.cost(self.used)

    @property
    def through_cost(self) -> float:
        """As expected, of running through."""
        return self.ahead.cost(self.through)

    @property
    def saving(self) -> Saving:
        """What the pauses are worth; steps that both use cancel, however their values come."""
        fewer = [before - after for before, after in zip(self.through, self.used, strict=True)]

        def least(ends: Sequence[float], others: Sequence[float]) -> float:
            sides = zip(fewer, ends, others, strict=True)
            return math.fsum(hours * (end if hours > 0 else other) for hours, end, other in sides)

        low, high = least(self.ahead.low, self.ahead.high), least(self.ahead.high, self.ahead.low)
        return Saving(low, self.through_cost - self.cost, high)


class _Way(NamedTuple):
    """One way to where a state is. `last`: the step that was used last, and before it the rest, back to the first."""

    cost: float
    last: "tuple[int, _Way] | None"


_States = dict[tuple[bool, int, int], _Way]
"""By whether it trains, how many steps it has used, and how often it has started."""


def plan_hours(ahead: Ahead, work: Work) -> Schedule | None:
    """The schedule that is expected to take least; running through where none takes less. None: it is not done before
    its deadline.
    """
    steps, step = len(ahead.middle), ahead.step_hours
    until = min(work.deadline_hours, steps * step)
    through = _through(steps, step, work, until)
    if through is None:
        return None
    best, best_cost = through, ahead.cost(through) * (1 - _ROUNDING)
    states: _States = {(work.is_running, 0, 0): _Way(0.0, None)}
    for index, value in enumerate(ahead.middle):
        for way, left in _ways_to_end(states, step, work, until - index * step):
            cost = way.cost + left * value
            if cost < best_cost:
                best, best_cost = _hours(steps, step, way, index, left), cost
        states = _after(states, index, value, step, work, until)
    return Schedule(ahead, best, through)


def _through(steps: int, step: float, work: Work, until: float) -> tuple[float, ...] | None:
    left = work.hours + (0.0 if work.is_running else work.restart_hours)
    if left > until + _ROUNDING:
        return None
    return tuple(min(max(left - index * step, 0.0), step) for index in range(steps))


def _left(key: tuple[bool, int, int], step: float, work: Work) -> float:
    """Hours that the job still takes from a state on, without a further start."""
    _, used, starts = key
    return work.hours + starts * work.restart_hours - used * step


def _ways_to_end(states: _States, step: float, work: Work, until: float) -> Iterator[tuple[_Way, float]]:
    """From which the job ends in the next step, `until` its deadline, with the hours that it takes of it."""
    for key, way in states.items():
        left = _left(key, step, work) + (0.0 if key[0] else work.restart_hours)
        if left <= min(step, until) + _ROUNDING and (key[0] or work.may_start(key[2])):
            yield way, min(left, step)


def _after(states: _States, index: int, value: float, step: float, work: Work, until: float) -> _States:
    """Where every state may be after one more step, in which the job trains throughout or not at all."""
    found: _States = {}
    for (trains, used, starts), way in states.items():
        on, off = (True, used + 1, starts + (not trains)), (False, used, starts)
        for key, next_way in ((on, _Way(way.cost + value * step, (index, way))), (off, way)):
            left = _left(key, step, work) + (0.0 if key[0] else work.restart_hours)
            in_reach = left <= until - (index + 1) * step + _ROUNDING and (
                trains or not key[0] or work.may_start(starts)
            )
            if left > _ROUNDING and in_reach and (key not in found or next_way.cost < found[key].cost):
                found[key] = next_way
    return _undominated(found)


def _undominated(states: _States) -> _States:
    """Without those that have done less for no less: as many steps with more starts."""
    kept: _States = {}
    least: dict[tuple[bool, int], float] = {}
    for key in sorted(states):
        where, way = key[:2], states[key]
        if way.cost < least.get(where, math.inf):
            least[where] = way.cost
            kept[key] = way
    return kept


def _hours(steps: int, step: float, way: _Way, index: int, left: float) -> tuple[float, ...]:
    hours = [0.0] * steps
    hours[index] = left
    while way.last is not None:
        used, way = way.last
        hours[used] = step
    return tuple(hours)
