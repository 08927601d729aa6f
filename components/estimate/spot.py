"""The cost of a job whose nodes are interrupted or fail, on one kind of capacity and on a ladder of several.

Each node is lost independently at a constant rate (an input, not a forecast), and the whole job stops. A checkpoint
every `interval_sec` takes `save_sec`; an interruption loses half an interval on average, and `restart_sec`. The best
interval is Young's (CACM 17(9), 1974) with Daly's correction for the restart (FGCS 22(3), 2006).

A ladder uses spot while it is available, the next rung otherwise. Each rung's nodes are available with a probability
independent of the past; the last one is assumed to be always available. Progress on a rung follows the same formula,
with the first start spread over the job; the ladder takes the mean. Moving back up is planned, after a checkpoint, and
counts as free.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any, NamedTuple

HOURS_PER_BUCKET = 720
"""A month as in AWS's Spot Instance Advisor, whose buckets are shares of instances interrupted within one."""
SAVE_SEC = 10.0
"""Assumed upper limit of a checkpoint: a DCGAN's of 90 MB takes 0.1 to 0.3 s, and networks grow."""
SAVE_BYTES_PER_SEC = 0.9e9
"""Measured on that checkpoint."""
RESTART_SEC = 600.0
"""From a node's loss until training continues, assumed: a new node boots, pulls its image, mounts and joins."""


def rate_per_hour(fraction_per_month: float) -> float:
    """Interruptions of a node per hour from a monthly share. `fraction_per_month`: 0 (never) up to but not including 1.

    >>> round(rate_per_hour(0.10) * 720, 4)
    0.1054
    """
    assert 0 <= fraction_per_month < 1, "a share of nodes, checked where it enters"
    return -math.log1p(-fraction_per_month) / HOURS_PER_BUCKET


def mtbf_sec(num_nodes: int, fraction_per_month: float, failures_per_hour: float = 0.0) -> float:
    """Mean seconds between a job's interruptions; may be infinite. `failures_per_hour`: of one node."""
    rate = (rate_per_hour(fraction_per_month) + failures_per_hour) * num_nodes
    return math.inf if rate == 0 else 3600 / rate


def best_interval_sec(save_sec: float, mtbf_sec: float, restart_sec: float) -> float:
    """Seconds of training between checkpoints that lose least.

    >>> round(best_interval_sec(save_sec=10, mtbf_sec=6000, restart_sec=600))
    363
    """
    return math.sqrt(2 * save_sec * (mtbf_sec + restart_sec))


def _lost_share(mtbf_sec: float, interval_sec: float, restart_sec: float) -> float:
    return 0.0 if math.isinf(mtbf_sec) else (interval_sec / 2 + restart_sec) / mtbf_sec


def net_share(mtbf_sec: float, interval_sec: float, save_sec: float, restart_sec: float) -> float:
    """The share of the time that makes progress, minus what interruptions undo; at or below zero the job never ends.

    >>> round(net_share(6000, 600, 6, 600), 3)
    0.842
    """
    saving = 0.0 if math.isinf(interval_sec) else save_sec / interval_sec
    return (1 - _lost_share(mtbf_sec, interval_sec, restart_sec)) / (1 + saving)


@dataclass(frozen=True)
class SpotEstimate:
    """A job on capacity that fails. `goodput`: share of paid time that makes progress; `usd`: None if it never ends."""

    mtbf_hours: float
    interval_sec: float
    best_interval_sec: float
    goodput: float
    hours: float
    interruptions: float
    lost_hours: float
    usd: float | None
    feasible: bool

    def to_json(self) -> dict[str, Any]:
        """The estimate as plain JSON data, with null for infinity."""
        return _finite(asdict(self))


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(value, float) and math.isinf(value) else value for name, value in values.items()}


def estimate_spot(
    num_nodes: int,
    usd_per_node_hour: float,
    hours: float,
    fraction_per_month: float,
    *,
    failures_per_hour: float = 0.0,
    interval_sec: float | None = None,
    save_sec: float = SAVE_SEC,
    restart_sec: float = RESTART_SEC,
) -> SpotEstimate:
    """Estimate `hours` of undisturbed training. `fraction_per_month`: share of nodes interrupted within 720 hours, in
    [0, 1); `interval_sec`: between checkpoints, the best one by default. Infeasible if more is lost than done between
    interruptions.
    """
    between = mtbf_sec(num_nodes, fraction_per_month, failures_per_hour)
    # Without interruptions the best interval is infinite: nothing is saved or lost.
    best = best_interval_sec(save_sec, between, restart_sec)
    interval = best if interval_sec is None else interval_sec
    net, lost = net_share(between, interval, save_sec, restart_sec), _lost_share(between, interval, restart_sec)
    if net <= 0:
        return SpotEstimate(between / 3600, interval, best, 0.0, math.inf, math.inf, math.inf, None, False)
    expected = hours / net
    return SpotEstimate(
        mtbf_hours=between / 3600,
        interval_sec=interval,
        best_interval_sec=best,
        goodput=net,
        hours=expected,
        interruptions=0.0 if math.isinf(between) else expected * 3600 / between,
        lost_hours=expected * lost,
        usd=num_nodes * usd_per_node_hour * expected,
        feasible=True,
    )


class Span(NamedTuple):
    """An assumed figure and its range. `value`: None if unknown."""

    low: float
    value: float | None
    high: float


NEVER, ALWAYS = Span(0.0, 0.0, 0.0), Span(1.0, 1.0, 1.0)


@dataclass(frozen=True)
class LadderRung:
    """One rung. `usd_per_hour`: of the whole stack, None if unknown; `hours`: undisturbed, all on this rung."""

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
    """A job on a ladder. `hours`: infinite if it is not expected to end, None if the rate of losses is unknown."""

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
        dollars = ("usd", "usd_low", "usd_high")
        return replace(self, **{name: value + usd for name in dollars if (value := getattr(self, name)) is not None})

    def to_json(self) -> dict[str, Any]:
        """The estimate as plain JSON data, with null for infinity."""
        return _finite(asdict(self))


def get_shares(there: Sequence[float]) -> tuple[float, ...]:
    """Each rung's share of the time by its availability; the last takes the rest.

    >>> get_shares([0.64, 1.0])
    (0.64, 0.36)
    """
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
    if not (left := [rung for rung in rungs if rung.in_reach]):
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
