"""The cost of a stack's whole ladder, by `gangway.components.estimate.spot`, and its assumptions."""

from collections.abc import Sequence
from dataclasses import replace

from gangway.components.catalog.reliability import failure_band, load_reliability
from gangway.components.catalog.schema import MachineType
from gangway.components.catalog.tables import least_taken
from gangway.components.estimate.spot import (
    NEVER,
    LadderEstimate,
    LadderJob,
    LadderRung,
    Span,
    estimate_ladder,
    rate_per_hour,
)
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.run_costs import RungCost, save_sec


def ladder_cost(config: StackConfig, machine: MachineType, rungs: Sequence[RungCost], paid: float) -> LadderEstimate:
    """The cost of a training on all rungs together, for at most max_hours. If the interruption rate of spot is unknown,
    only a lower and an upper bound. `paid`: dollars of a run that do not depend on its length.
    """
    least, most = failure_band(machine)
    job = LadderJob(
        failures_per_hour=Span(least, rungs[0].failures.value, most),
        save_sec=save_sec(config),
        restart_sec=config.estimate.restart_sec,
        max_hours=config.work.max_hours,
    )
    return estimate_ladder([_rung(rung) for rung in rungs], job).plus(paid)


def _rung(rung: RungCost) -> LadderRung:
    """Rungs other than spot are assumed to be always available."""
    assert rung.undisturbed_hours is not None, "only trainings have a ladder"
    plain = LadderRung(
        rung.hourly, rung.num_nodes, rung.undisturbed_hours, rung.spot.interval_sec, usd_high=rung.hourly_high
    )
    if not rung.in_reach:
        return replace(plain, usd_per_hour=None, there=NEVER, in_reach=False)
    if rung.taken is None:
        return plain
    market, share = load_reliability().spot, rung.taken.value
    there = Span(market.there_low.value, market.there.value, market.there_high.value)
    if share is None:
        return replace(plain, there=there, taken_per_hour=Span(0.0, None, market.most_taken_per_hour.value))
    counted, least = rate_per_hour(share), rate_per_hour(least_taken(rung.taken))
    most = counted if rung.taken.confidence == "stated" else max(counted, market.most_taken_per_hour.value)
    return replace(plain, there=there, taken_per_hour=Span(least, counted, most))


def assumptions(rungs: Sequence[RungCost]) -> str:
    """The assumptions behind the figure and its bounds."""
    table, parts = load_reliability(), []
    market = table.spot
    if any(rung.taken is not None and rung.in_reach for rung in rungs):
        there, low, high = (fact.value for fact in (market.there, market.there_low, market.there_high))
        parts.append(
            f"spot is available {there:.0%} of the time ({low:.0%} to {high:.0%}), by traces of {market.there.dated}, "
            "and nodes are interrupted at the catalogue's monthly rate (up to once in "
            f"{1 / market.most_taken_per_hour.value:.1f} h)"
        )
    rarest, most = (8 * 24_000 / fact.value for fact in (table.band.rarest, table.band.most_often))
    failing = f"eight accelerators fail {rarest:.2g} to {most:.2g} times in 1,000 days, as Meta's did"
    return "; ".join([*parts, "other rungs are always available", failing])
