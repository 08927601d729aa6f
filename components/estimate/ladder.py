"""The combined cost of a capacity ladder: spot while it is available, the next rung otherwise.

Each rung's nodes are available with a probability independent of the past, and the job uses the first available rung;
the last one is assumed to be always available. `get_shares` gives each rung's share of the time. Progress on a rung
follows Young's and Daly's formula (`gangway.components.estimate.spot`), with the first start spread over the job; the
ladder takes the mean. Moving back up is planned, after a checkpoint, and counts as free.

>>> get_shares([0.64, 1.0])
(0.64, 0.36)
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any, NamedTuple

from gangway.components.estimate.spot import estimate_spot, mtbf_sec, net_share

__all__ = ["LadderEstimate", "LadderJob", "LadderRung", "Span", "estimate_ladder", "get_shares"]


class Span(NamedTuple):
    """An assumed figure and its range. `value`: None if unknown."""

    low: float
    value: float | None
    high: float


_DOLLARS = ("usd", "usd_low", "usd_high")
NEVER = Span(0.0, 0.0, 0.0)
ALWAYS = Span(1.0, 1.0, 1.0)


@dataclass(frozen=True)
class LadderRung:
    """One rung.

    Attributes:
        usd_per_hour: of the whole stack on this rung; None if a price is unknown.
        hours: of undisturbed training, all on this rung.
        interval_sec: between checkpoints; the best one if None.
        taken_per_hour: interruptions of one node per hour.
        in_reach: False if no nodes can come.
        usd_high: US dollars an hour at the highest prices, if different.
    """

    usd_per_hour: float | None
    num_nodes: int
    hours: float
    interval_sec: float | None = None
    there: Span = ALWAYS
    taken_per_hour: Span = NEVER
    in_reach: bool = True
    usd_high: float | None = None

    def usd(self, end: int) -> float | None:
        """US dollars an hour at that end of a span; the low end is the expected price."""
        return self.usd_per_hour if end < 2 or self.usd_high is None else self.usd_high


@dataclass(frozen=True)
class LadderJob:
    """What all rungs share: failures per node-hour, seconds of a checkpoint and of a start, time limit in hours."""

    failures_per_hour: Span
    save_sec: float
    restart_sec: float
    max_hours: float = math.inf


@dataclass(frozen=True)
class LadderEstimate:
    """A job on a ladder. `low` and `high` are the extremes over all ends of the assumptions.

    Attributes:
        shares: of the time, by rung.
        hours: expected, from the first start to the last step; infinite if the job is not expected to end, None if the
            interruption rate is unknown.
        interruptions: expected in that time; likewise.
        usd: expected; likewise, and None if a price is unknown.
    """

    shares: tuple[float, ...]
    hours: float | None
    hours_low: float
    hours_high: float
    interruptions: float | None
    usd: float | None
    usd_low: float | None
    usd_high: float | None

    def plus(self, usd: float) -> "LadderEstimate":
        """The estimate with a fixed cost added."""
        more = {name: value + usd for name in _DOLLARS if (value := getattr(self, name)) is not None}
        return replace(self, **more)

    def to_json(self) -> dict[str, Any]:
        """The estimate as plain JSON data, with null for infinity."""
        return {
            name: None if isinstance(value, float) and math.isinf(value) else value
            for name, value in asdict(self).items()
        }


def get_shares(there: Sequence[float]) -> tuple[float, ...]:
    """Each rung's share of the time by its availability; the last takes the rest."""
    shares: list[float] = []
    for chance in there[:-1]:
        shares.append((1 - sum(shares)) * chance)
    return (*shares, 1 - sum(shares))


def estimate_ladder(rungs: Sequence[LadderRung], job: LadderJob) -> LadderEstimate:
    """Estimate the job on all rungs together (at least one); unreachable ones have no share."""
    if not all(rung.in_reach for rung in rungs):
        return _estimate_reachable(rungs, job)
    corners = [_estimate_corner(rungs, job, ends) for ends in product((0, 2), (0, 2), (0, 2), (1, 2))]
    known = all(rung.taken_per_hour.value is not None for rung in rungs)
    expected = _estimate_corner(rungs, job, (1, 1, 1, 1)) if known else None
    hours = [corner.hours for corner in corners]
    dollars = [corner.usd for corner in corners if corner.usd is not None]
    return LadderEstimate(
        shares=get_shares([rung.there.value or 0.0 for rung in rungs]),
        hours=None if expected is None else expected.hours,
        hours_low=min(hours),
        hours_high=max(hours),
        interruptions=None if expected is None else expected.interruptions,
        usd=None if expected is None else expected.usd,
        usd_low=min(dollars, default=None),
        usd_high=max(dollars, default=None),
    )


def _estimate_reachable(rungs: Sequence[LadderRung], job: LadderJob) -> LadderEstimate:
    """The estimate over the reachable rungs; if there are none, the job never starts."""
    left = [rung for rung in rungs if rung.in_reach]
    if not left:
        return LadderEstimate((0.0,) * len(rungs), math.inf, math.inf, math.inf, None, None, None, None)
    found = estimate_ladder(left, job)
    shares = iter(found.shares)
    return replace(found, shares=tuple(next(shares) if rung.in_reach else 0.0 for rung in rungs))


class _Corner(NamedTuple):
    """The job at one end of each span. `usd`: None if a price is unknown."""

    hours: float
    interruptions: float
    usd: float | None


def _estimate_corner(rungs: Sequence[LadderRung], job: LadderJob, ends: tuple[int, int, int, int]) -> _Corner:
    """Hours and dollars with availability, interruptions, failures and prices each at that end of their spans."""
    there, taken, failures, paid = ends
    shares = get_shares([rung.there[there] or 0.0 for rung in rungs])
    per_hour = lost_per_hour = 0.0
    for share, rung in zip(shares, rungs, strict=True):
        lost = (rung.taken_per_hour[taken] or 0.0) + (job.failures_per_hour[failures] or 0.0)
        per_hour += share * _done_per_hour(rung, job, lost)
        lost_per_hour += share * lost * rung.num_nodes
    whole = 1 / per_hour if per_hour > 0 else math.inf
    hours = min(whole, job.max_hours)
    interruptions = hours * lost_per_hour if lost_per_hour > 0 else 0.0
    # A rung without a share of the time needs no price.
    prices = [(share, rung.usd(paid)) for share, rung in zip(shares, rungs, strict=True) if share > 0]
    if any(price is None for _, price in prices):
        return _Corner(hours, interruptions, None)
    mean_usd = sum(share * (price or 0.0) for share, price in prices)
    return _Corner(hours, interruptions, math.inf if math.isinf(hours) else hours * mean_usd)


def _done_per_hour(rung: LadderRung, job: LadderJob, lost_per_hour: float) -> float:
    """Progress per hour as a share of the job, start included; may be negative. `lost_per_hour`: of one node."""
    found = estimate_spot(
        rung.num_nodes, 0.0, rung.hours, 0.0,
        failures_per_hour=lost_per_hour, interval_sec=rung.interval_sec, save_sec=job.save_sec,
        restart_sec=job.restart_sec,
    )  # fmt: skip
    if found.feasible:
        return 1 / (job.restart_sec / 3600 + found.hours)
    between = mtbf_sec(rung.num_nodes, 0.0, lost_per_hour)
    return net_share(between, found.interval_sec, job.save_sec, job.restart_sec) / rung.hours
