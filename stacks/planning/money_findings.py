"""What a plan says of its own figures: spot that cannot finish, checkpoints too near or too far, old prices. Pure.

Needs a priced plan, so the engine does not say it; whether the budget carries the bill is `stacks.planning.checks`.
"""

from collections.abc import Iterable, Sequence
from datetime import date
from math import floor, log10

from components.catalog.validators import STALE_DAYS
from components.cost import CostComponent
from components.findings import Finding, Severity
from components.spot import SpotEstimate
from stacks.planning.ladder_costs import Pace, RungCost
from stacks.planning.usage import idle_settings, unsaid_usage
from stacks.settings.config import StackConfig

__all__ = ["STALE_DAYS", "money_findings", "span", "stale_prices"]

FAR_FROM_BEST = 1.05
"""A run that takes longer by this factor than with the best interval is worth a word."""
ENOUGH = 0.01
"""Share of the time that checkpoints may take before saving less often is worth anything."""
_TOLD = 3
"""Lines that one finding names one by one."""


def money_findings(
    config: StackConfig, rungs: Sequence[RungCost], job: Pace, lines: Sequence[CostComponent], today: date
) -> tuple[Finding, ...]:
    """All findings about the estimate.

    Args:
        config: the stack.
        rungs: its ladder, priced.
        job: how far its checkpoints are apart.
        lines: the whole bill.
        today: against which prices are old.
    """
    return (
        *(finding for rung in rungs for finding in _spot(config, rung, job)),
        *stale_prices(lines, today),
        *_unsaid(config),
        *_ignored(config),
    )


def _spot(config: StackConfig, rung: RungCost, job: Pace) -> Iterable[Finding]:
    path = f"gangway:cluster.capacity[{rung.position}]"
    if rung.taken is None:
        return
    if rung.spot is None:
        yield Finding(
            Severity.INFO,
            "capacity.spot-rate-unknown",
            path,
            f"how often such nodes are taken is not known, so their run is priced without interruptions: "
            f"{rung.taken.source}",
            "write what you have seen: gangway:estimate: {taken_percent_per_month: ...}",
        )
    elif not rung.spot.feasible:
        yield _infeasible(config, rung.spot, job, path)
    else:
        yield from _interval(config, rung.spot, job)


def _infeasible(config: StackConfig, spot: SpotEstimate, job: Pace, path: str) -> Finding:
    restart_sec, mtbf_sec = config.estimate.restart_sec, spot.mtbf_hours * 3600
    lost_sec = spot.interval_sec / 2 + restart_sec
    elsewhere = "take fewer nodes, or put another kind of capacity in its place"
    best_sec = spot.best_interval_sec
    every = _rounded(best_sec * job.images_per_second / 1000)
    mends = best_sec / 2 + restart_sec < mtbf_sec
    return Finding(
        Severity.ERROR,
        "capacity.spot-infeasible",
        path,
        f"on spot this job is not expected to end: its {config.cluster.nodes.max} nodes lose one every "
        f"{spot.mtbf_hours:.2f} h, and each costs {lost_sec / 3600:.2f} h (half an interval of checkpoints, and the "
        "restart)",
        f"set gangway:job.checkpoint_kimg: {every:g}, or {elsewhere}" if mends else elsewhere,
    )


def _interval(config: StackConfig, spot: SpotEstimate, job: Pace) -> Iterable[Finding]:
    """Whether another interval would end the run clearly sooner."""
    save_sec, restart_sec = config.estimate.checkpoint_sec, config.estimate.restart_sec
    run_sec = config.job.max_hours * 3600
    best_sec = min(spot.best_interval_sec, run_sec)
    mtbf_sec = spot.mtbf_hours * 3600

    def longer(interval_sec: float) -> float:
        return (1 + save_sec / interval_sec) / (1 - (interval_sec / 2 + restart_sec) / mtbf_sec)

    ratio = longer(spot.interval_sec) / longer(best_sec)
    if ratio <= FAR_FROM_BEST:
        return
    often = spot.interval_sec < best_sec
    # Near the optimum little is won: what is enough is better advice than hours without a checkpoint.
    advised_sec = min(best_sec, save_sec / ENOUGH) if often else best_sec
    yield Finding(
        Severity.WARNING,
        "checkpoint.interval",
        "gangway:job.checkpoint_kimg",
        f"a checkpoint every {job.checkpoint_kimg:g} kimg, {span(spot.interval_sec)} at "
        f"{job.images_per_second:,.0f} images/s ({job.source}), is too {'often' if often else 'seldom'} for spot: the "
        f"run takes {ratio - 1:.0%} longer than with one every {span(best_sec)}, which is best (Young and Daly; a "
        f"checkpoint is taken to cost {save_sec:g} s: gangway:estimate.checkpoint_sec)",
        f"set checkpoint_kimg: {_rounded(advised_sec * job.images_per_second / 1000):g}, one every {span(advised_sec)}",
    )


def stale_prices(lines: Sequence[CostComponent], today: date) -> Iterable[Finding]:
    """Prices that were read too long ago."""
    old = [line for line in lines if line.as_of and (today - date.fromisoformat(line.as_of)).days > STALE_DAYS]
    if not old:
        return
    oldest = min(old, key=lambda line: line.as_of)
    named = "; ".join(line.name for line in old[:_TOLD])
    more = f" and {len(old) - _TOLD} more" if len(old) > _TOLD else ""
    yield Finding(
        Severity.WARNING,
        "prices.stale",
        "gangway:region",
        f"prices older than {STALE_DAYS} days, the oldest of {oldest.as_of}: {named}{more}",
        "run `gangway prices refresh`",
    )


def _unsaid(config: StackConfig) -> Iterable[Finding]:
    if unsaid := unsaid_usage(config):
        yield Finding(
            Severity.INFO,
            "cost.usage-unsaid",
            "gangway:estimate",
            f"not in the estimate, since no declaration fixes how much: {'; '.join(unsaid)}",
            "write under gangway:estimate what an earlier run has shown",
        )


def _ignored(config: StackConfig) -> Iterable[Finding]:
    for name, why in idle_settings(config).items():
        yield Finding(
            Severity.WARNING,
            "estimate.ignored",
            f"gangway:estimate.{name}",
            f"of no effect: {why}",
            f"remove {name}",
        )


def span(seconds: float) -> str:
    """A length of time as people say it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _rounded(value: float) -> float:
    """To two digits, down: nobody writes 1327.4 for 1300.

    >>> _rounded(1327.4), _rounded(0.0672)
    (1300.0, 0.067)
    """
    step = 10.0 ** (floor(log10(value)) - 1)
    return float(f"{floor(value / step) * step:.6g}")
