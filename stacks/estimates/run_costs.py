"""What a run costs on each rung of the capacity ladder, and on all together. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from gangway.components.catalog.machine_facts import failure_band, failures_per_hour, load_reliability
from gangway.components.catalog.prices import PriceQuote
from gangway.components.catalog.schema import Fact, MachineType
from gangway.components.catalog.tables import least_taken
from gangway.components.core.capacity import Spot
from gangway.components.estimate.cost import (
    HOURS_PER_MONTH,
    Bound,
    CostComponent,
    CostEstimate,
    bound,
    foreign_regions,
)
from gangway.components.estimate.spot import (
    NEVER,
    SAVE_BYTES_PER_SEC,
    LadderEstimate,
    LadderJob,
    LadderRung,
    Span,
    SpotEstimate,
    estimate_ladder,
    estimate_spot,
    rate_per_hour,
)
from gangway.components.estimate.statistics import Band
from gangway.stacks.base.registry import get_provider
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.throughput import Throughput, about, throughput
from gangway.trainer.config.network_size import state_gib


@dataclass(frozen=True)
class Pace:
    """Speed of a job and distance of its checkpoints, at most the run or max_hours; `..._sec` at the band's ends."""

    checkpoint_kimg: float
    images_per_second: float
    interval_sec: float
    shortest_sec: float
    longest_sec: float
    source: str


@dataclass(frozen=True)
class RungCost:
    """Cost of one rung, if all nodes come from it. `in_reach`: not if its price cap is below the lowest spot price
    seen. `nodes_hourly`: US dollars for nodes and disks, `hourly`: for the whole stack; None if a price is unknown.
    `run_hours`: expected from the nodes' start to the run's end, at most max_hours; None if it never ends. `share`:
    expected of the images by max_hours, 0..1. `spot_if_trained`: after the nodes' start and ignoring max_hours; without
    interruptions if their rate is unknown; None, like `undisturbed_hours`, for a custom command. `taken`: share of
    nodes interrupted within 720 hours; None for capacity that is not reclaimed.
    """

    position: int
    kind: str
    num_nodes: int
    in_reach: bool
    nodes_hourly: float | None
    hourly: float | None
    hourly_high: float | None
    bound: Bound
    foreign_regions: tuple[str, ...]
    monthly: float | None
    run_hours: float | None
    run: float | None
    share: float | None
    undisturbed_hours: float | None
    spot_if_trained: SpotEstimate | None
    taken: Fact[float | None] | None
    failures: Fact[float]

    @property
    def spot(self) -> SpotEstimate:
        """The interruptions of a training."""
        assert self.spot_if_trained is not None, "only for trainings"
        return self.spot_if_trained

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        facts = ("spot_if_trained", "taken", "failures")
        own = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in facts}
        return {
            **own,
            "spot": self.spot_if_trained and self.spot.to_json(),
            "taken_per_month": None if self.taken is None else self.taken.model_dump(mode="json"),
            "failures_per_node_hour": self.failures.model_dump(mode="json"),
        }


def rung_lines(config: StackConfig, lines: Sequence[CostComponent], position: int) -> list[CostComponent]:
    """The bill's lines of one rung's nodes: they begin with the pool's name, except slices of a queued request."""
    pool = f"{config.stack}-{position}-{config.cluster.capacity[position].kind}:"
    own = [line for line in lines if line.name.startswith(pool)]
    return own or [line for line in lines if line.unit == "chip-hours"]


def rung_nodes(config: StackConfig, machine: MachineType, position: int) -> int:
    """Nodes of the job on one rung: all on the first, or if rungs never mix; else the minimum. A queue's: all."""
    nodes = config.cluster.nodes
    is_whole = position == 0 or config.job is None or get_provider(config.provider).has_isolated_rungs(machine)
    return nodes.max if is_whole else nodes.min


def run_nodes(config: StackConfig, machine: MachineType) -> int:
    """Nodes of the job on the first rung in reach."""
    return rung_nodes(config, machine, first_in_reach(config, machine) or 0)


class LowestSpot(NamedTuple):
    """The machine type of a rung with the lowest spot price seen."""

    machine_type: str
    quote: PriceQuote


def unmet_caps(config: StackConfig, machine: MachineType) -> dict[int, LowestSpot]:
    """Rungs that no machine comes to: their cap is below the lowest spot price seen. Unknown prices exclude nothing."""
    unmet, provider = {}, get_provider(config.provider)
    if not provider.caps_spot:
        return {}
    for position, rung in enumerate(config.cluster.capacity):
        if isinstance(rung, Spot) and rung.max_usd_per_hour is not None:
            names = dict.fromkeys((machine.name, *rung.machine_types))
            catalog = provider.catalog_here()
            quotes = [(name, catalog.price(name, config.region, "spot")) for name in names]
            known = [(name, found) for name, found in quotes if found and found.low is not None]
            seen = [LowestSpot(name, found) for name, found in known if not found.foreign_region]
            lowest = min(seen, key=lambda each: each.quote.low or 0.0, default=None)
            if lowest is not None and len(seen) == len(names) and rung.max_usd_per_hour < (lowest.quote.low or 0.0):
                unmet[position] = lowest
    return unmet


def first_in_reach(config: StackConfig, machine: MachineType) -> int | None:
    """The first rung that machines can come from; None if there is none, so that the job never starts."""
    unmet = unmet_caps(config, machine)
    return next((position for position in range(len(config.cluster.capacity)) if position not in unmet), None)


def bill_in_reach(config: StackConfig, machine: MachineType, lines: Sequence[CostComponent]) -> list[CostComponent]:
    """The bill without rungs out of reach, which cost nothing; the next rung is then the one in use."""
    unmet, first = unmet_caps(config, machine), first_in_reach(config, machine)
    if not unmet:
        return list(lines)
    in_use = [] if first is None else [id(line) for line in rung_lines(config, lines, first)]
    changed = {id(line): replace(line, standby=False) for line in lines if id(line) in in_use}
    for position, lowest in unmet.items():
        for line in rung_lines(config, lines, position):
            changed[id(line)] = _unused_line(line, lowest.quote)
    return [changed.get(id(line), line) for line in lines]


def _unused_line(line: CostComponent, lowest: PriceQuote) -> CostComponent:
    line = replace(line, quantity=0.0, hourly=0.0, standby=True, is_limit=False, price_high=None)
    if line.unit != "hours":
        return line
    fact = lowest.expected
    return replace(
        line,
        name=f"{line.name.removesuffix(', at most')}: none will come",
        price=lowest.low,
        source=f"{fact.source}, the lowest seen: max_usd_per_hour is below",
        as_of=fact.as_of_text,
        read_on=fact.seen_on.isoformat(),
        confidence=fact.confidence,
    )


def rung_in_use(config: StackConfig, cost: CostEstimate) -> int:
    """The rung of the bill: the first whose nodes are not on standby."""
    positions = range(len(config.cluster.capacity))
    return next((at for at in positions if any(not c.standby for c in rung_lines(config, cost.components, at))), 0)


def most_expensive_rung(config: StackConfig, cost: CostEstimate) -> tuple[int, float]:
    """The rung on which the stack costs most, with its US dollars per hour; the highest of known prices."""
    positions, in_use = range(len(config.cluster.capacity)), rung_in_use(config, cost)
    of_rungs = [rung_lines(config, cost.components, at) for at in positions]
    # Reserved nodes of later rungs are paid anyway, and in the totals.
    hourly = [sum(c.hourly_high or 0.0 for c in of_rungs[at] if c.standby or at == in_use) for at in positions]
    top = max(positions, key=lambda at: (hourly[at], at == in_use))
    return top, cost.hourly_high - hourly[in_use] + hourly[top]


def most_usd(config: StackConfig, cost: CostEstimate) -> float:
    """US dollars of all of max_hours on the most expensive rung; `most_bound` tells whether that is a bound."""
    return most_expensive_rung(config, cost)[1] * cost.run_hours + cost.upfront + cost.once


def most_bound(cost: CostEstimate) -> Bound:
    """Whether `most_usd` is a bound: any rung may be the most expensive."""
    return bound(cost.components, at_most=True)


def pace(config: StackConfig, speed: Throughput | None = None) -> Pace:
    """The distance of checkpoints in seconds. Without a known `speed`: at the slowest that ends the run in time."""
    job, measured = config.training, config.estimate.images_per_second
    every = job.effective_config().checkpoint_kimg
    if speed is not None and speed.images_per_second is not None:
        rate = speed.images_per_second
        band = f"projected: {about(rate.low)} to {about(rate.high)}"
        source = speed.source if speed.provenance == "measured" else band
    else:
        per_second = measured or job.kimg * 1000 / (job.max_hours * 3600)
        rate = Band(per_second, per_second, per_second)
        source = "gangway:estimate.images_per_second" if measured else "assumed: job.kimg in just job.max_hours"
    slowest, usual, fastest = (_interval_sec(config, each) for each in (rate.low, rate.mid, rate.high))
    return Pace(every, rate.mid, usual, fastest, slowest, source)


def _interval_sec(config: StackConfig, images_per_second: float) -> float:
    # The trainer also saves at the end, so checkpoints are never further apart than the run is long.
    job = config.training
    images = min(job.effective_config().checkpoint_kimg, job.kimg) * 1000
    return min(images / images_per_second, job.max_hours * 3600)


def save_sec(config: StackConfig) -> float:
    """How long training pauses for a checkpoint: an upper bound, since the trainer writes in the background."""
    own = config.estimate.checkpoint_sec
    return state_gib(config.training.effective_config()) * (1 << 30) / SAVE_BYTES_PER_SEC if own is None else own


def taken(config: StackConfig, machine: MachineType) -> Fact[float | None]:
    """The share of nodes interrupted within 720 hours: the stack file's, else the catalogue's."""
    percent = config.estimate.taken_percent_per_month
    spot_taken = get_provider(config.provider).spot_taken
    assert spot_taken is not None, "a provider without spot refuses such a rung"
    published = spot_taken(machine.name, config.region)
    if percent is None:
        return published
    return published.model_copy(
        update={
            "value": percent / 100,
            "source": "gangway:estimate.taken_percent_per_month",
            "url": "",
            "confidence": "stated",
        }
    )


def price_ladder(
    config: StackConfig, machine: MachineType, lines: Sequence[CostComponent], job: Pace | None
) -> tuple[RungCost, ...]:
    """Prices each rung at the speed of its nodes. `job`: the pace on `run_nodes`; None for a custom command."""
    positions, unmet = range(len(config.cluster.capacity)), unmet_caps(config, machine)
    of_rungs = {id(line) for position in positions for line in rung_lines(config, lines, position)}
    # Unknown prices of other lines are missing on every rung alike: findings report them for the whole bill.
    around = [line for line in lines if id(line) not in of_rungs]
    paid = sum(line.upfront + line.once for line in lines)
    counts = {rung_nodes(config, machine, at) for at in positions}
    rates = {} if job is None else {count: _rate(config, machine, count, job) for count in counts}
    return tuple(
        _rung(config, machine, None if at in unmet else rung_lines(config, lines, at), at, around, paid, rates)
        for at in positions
    )


def _rung(
    config: StackConfig,
    machine: MachineType,
    own: Sequence[CostComponent] | None,
    position: int,
    around: Sequence[CostComponent],
    paid: float,
    rates: Mapping[int, float],
) -> RungCost:
    """`own`: the lines of its nodes, None out of reach; `rates`: by number of nodes, empty for a custom command."""
    rung, unknown = config.cluster.capacity[position], own is None or any(line.hourly is None for line in own)
    num_nodes = rung_nodes(config, machine, position)
    nodes_hourly = None if own is None or unknown else sum(line.hourly or 0.0 for line in own)
    held = [*around, *(own or ())]
    hourly = None if nodes_hourly is None else sum(line.hourly or 0.0 for line in held)
    fact = taken(config, machine) if isinstance(rung, Spot) else None
    spot = share = None
    hours = None if own is None else config.work.max_hours
    if (rate := rates.get(num_nodes)) is not None:
        spot = stops(config, machine, position, num_nodes, rate, nodes_hourly or 0.0)
        if unknown:
            spot = replace(spot, usd=None)
        hours = None
        if spot.feasible and own is not None:
            whole = start_hours(config) + spot.hours
            hours, share = min(whole, config.work.max_hours), run_share(config, whole)
    return RungCost(
        position=position,
        kind=rung.kind,
        num_nodes=num_nodes,
        in_reach=own is not None,
        nodes_hourly=nodes_hourly,
        hourly=hourly,
        hourly_high=None if hourly is None else sum(line.hourly_high or 0.0 for line in held),
        bound=bound(held),
        foreign_regions=foreign_regions(held),
        monthly=None if hourly is None else hourly * HOURS_PER_MONTH + paid,
        run_hours=hours,
        run=None if hourly is None or hours is None else hourly * hours + paid,
        share=share,
        undisturbed_hours=None if rate is None else _undisturbed_hours(config, rate),
        spot_if_trained=spot,
        taken=fact,
        failures=failures_per_hour(machine),
    )


def _rate(config: StackConfig, machine: MachineType, num_nodes: int, job: Pace) -> float:
    if num_nodes == (own := run_nodes(config, machine)):
        return job.images_per_second
    here, there = (throughput(config, machine, count).images_per_second for count in (num_nodes, own))
    return job.images_per_second * (num_nodes / own if here is None or there is None else here.mid / there.mid)


def _undisturbed_hours(config: StackConfig, images_per_second: float) -> float:
    return config.training.kimg * 1000 / images_per_second / 3600


def start_hours(config: StackConfig) -> float:
    """From the request for nodes to the first step: boot, image, mounts, rendezvous."""
    return config.estimate.restart_sec / 3600


def run_share(config: StackConfig, hours: float) -> float:
    """The share of the images by max_hours, 0..1, of a run that takes `hours` with its start."""
    start = start_hours(config)
    return min(1.0, max(0.0, config.work.max_hours - start) / (hours - start))


def stops(
    config: StackConfig,
    machine: MachineType,
    position: int,
    num_nodes: int,
    images_per_second: float,
    nodes_hourly: float = 0.0,
) -> SpotEstimate:
    """The whole job on one rung, with checkpoints and interruptions, without the first start."""
    fact = taken(config, machine) if isinstance(config.cluster.capacity[position], Spot) else None
    return estimate_spot(
        num_nodes,
        nodes_hourly / num_nodes,
        _undisturbed_hours(config, images_per_second),
        0.0 if fact is None else fact.value or 0.0,
        failures_per_hour=failures_per_hour(machine).value,
        interval_sec=_interval_sec(config, images_per_second),
        save_sec=save_sec(config),
        restart_sec=config.estimate.restart_sec,
    )


def ladder_cost(config: StackConfig, machine: MachineType, rungs: Sequence[RungCost], paid: float) -> LadderEstimate:
    """A training on all rungs for at most max_hours. `paid`: dollars of a run that do not depend on its length."""
    least, most = failure_band(machine)
    job = LadderJob(
        failures_per_hour=Span(least, rungs[0].failures.value, most),
        save_sec=save_sec(config),
        restart_sec=config.estimate.restart_sec,
        max_hours=config.work.max_hours,
    )
    return estimate_ladder([_ladder_rung(rung) for rung in rungs], job).plus(paid)


def _ladder_rung(rung: RungCost) -> LadderRung:
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
