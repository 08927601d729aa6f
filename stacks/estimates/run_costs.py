"""What a run costs: each rung of the capacity ladder (spot with its interruptions), and what is paid by use, as far as
the stack file says how much: data that pass a gateway or leave a region, log lines, what is kept. Pure.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Any, NamedTuple

from components.catalog.billing import load_billing
from components.catalog.reliability import failures_per_hour
from components.catalog.resolve import PriceQuote
from components.catalog.schema import Fact, MachineType, ServicePrice
from components.catalog.transfer import transfer_price
from components.core.capacity import Spot
from components.core.fields import Egress
from components.estimate.cost import (
    HOURS_PER_MONTH,
    Bound,
    CostComponent,
    CostEstimate,
    Declared,
    bound,
    foreign_regions,
    from_service,
    of_resources,
    used_once,
)
from components.estimate.spot import SAVE_BYTES_PER_SEC, SpotEstimate, estimate_spot
from stacks.base.registry import get_provider
from stacks.config.stack_config import StackConfig
from stacks.estimates.throughput import Band, Throughput, about, throughput
from trainer.config.network_size import state_gib

_TIER = re.compile(r"egress-internet(?:-from-([0-9]+)tb)?")
"""Services of the catalogue: the way out, and from which volume in a month on another price holds."""
_GIB_PER_TIB = 1024
OF_SPOT = ("taken_percent_per_month",)
"""Settings that only the estimate of spot reads."""
OF_TRAINING = ("images_per_second", "checkpoint_sec", "restart_sec")
"""Settings of a training's speed and its stops."""
BILLED_SETTINGS = (
    *("source_gib", "source_region", "nat_gib", "log_gib", "download_gib", "run_bucket_gib", "image_gib"),
    *("flow_log_gib", "key_operations"),
)
"""Settings of what a provider bills by use."""
_FLOW_LOGS = {"flow-log-collection": "flow logs, a run", "flow-log-storage": "flow logs kept for a month, a run's"}
_OPERATIONS = 10_000
"""Of a key, that its price is for."""


def usage_lines(config: StackConfig, resources: Sequence[Declared] = ()) -> list[CostComponent]:
    """The lines of what the stack file says is used; `resources` are the stack's."""
    if config.site is not None:
        return []
    lines = [*_data_set(config)]
    for setting, label, service, amount in _said(config):
        line = used_once(label, _price(config, service), amount, config.region)
        lines += of_resources([line], *_paid_by(setting, resources))
    for setting, label, service, gib in _kept(config, resources):
        line = from_service(label, _price(config, service), gib, config.region)
        lines += of_resources([line], *_paid_by(setting, resources))
    return lines


def _paid_by(setting: str, resources: Sequence[Declared]) -> list[Declared]:
    """The resources whose bill a setting is for."""
    table = load_billing()
    return [one for one in resources if (row := table.by_use_of(one.type)) is not None and setting in row.settings]


def missing_usage(config: StackConfig) -> tuple[str, ...]:
    """What would cost something and is not in the estimate, with the settings that would put it there."""
    own = config.estimate
    if config.site is not None:
        return ()
    elsewhere, idle = own.source_region != config.region, _no_use(config)
    unsaid = {
        "the data set's way, where its bucket is in another region (source_region, source_gib)": _source(config)
        and (own.source_region is None or (elsewhere and own.source_gib is None)),
        "data through the NAT gateway (nat_gib)": not idle["nat_gib"] and own.nat_gib is None,
        "log lines (log_gib)": own.log_gib is None,
        "results that leave the cloud (download_gib)": own.download_gib is None,
        "what the run bucket holds (run_bucket_gib)": own.run_bucket_gib is None,
        "images in the registry (image_gib)": not idle["image_gib"] and own.image_gib is None,
        "flow logs (flow_log_gib)": not idle["flow_log_gib"] and own.flow_log_gib is None,
        "operations on the stack's key (key_operations)": not idle["key_operations"] and own.key_operations is None,
        "requests, messages and calls": True,
    }
    return tuple(what for what, is_unsaid in unsaid.items() if is_unsaid)


def idle_settings(config: StackConfig) -> dict[str, str]:
    """Settings of gangway:estimate that change no figure of this stack -> why."""
    own = config.estimate
    spot = any(isinstance(rung, Spot) for rung in config.cluster.capacity)
    reasons = dict.fromkeys(OF_SPOT, "" if spot else "no rung is spot")
    if config.own_command is not None:
        reasons |= dict.fromkeys((*OF_SPOT, *OF_TRAINING), "nothing is forecast of a command of your own")
    elif config.job is None:
        reasons |= dict.fromkeys((*OF_SPOT, *OF_TRAINING), "nothing is forecast of the jobs of a queue")
    if config.site is not None:
        reasons |= dict.fromkeys(BILLED_SETTINGS, f"no list has what use costs with provider: {config.provider}")
    else:
        reasons |= _no_use(config)
    return {name: why for name, why in reasons.items() if why and name in own.model_fields_set}


def _no_use(config: StackConfig) -> dict[str, str]:
    """Of each setting of what a provider may bill, why it is not billed in this stack; empty where it is."""
    services = _services(config)
    source = "" if _source(config) else "there is no storage.source"
    flow_logs = "" if config.network.flow_logs else "there are no flow logs"
    built = "" if config.ready_image is None else "the stack has no registry: its image is there already"
    return {
        "source_gib": source,
        "source_region": source,
        "nat_gib": "" if config.network.egress is Egress.NAT else "there is no NAT gateway",
        "image_gib": built if "image-storage" in services else "the registry's price has the images in it",
        "flow_log_gib": flow_logs if "flow-log-collection" in services else "flow logs are log lines there (log_gib)",
        "key_operations": "" if config.encryption == "customer-key" else "there is no key of the stack's own",
    }


def _source(config: StackConfig) -> bool:
    return config.storage is not None and config.storage.source is not None


def _services(config: StackConfig) -> frozenset[str]:
    return get_provider(config.provider).catalog_here().get_services(config.provider)


def _price(config: StackConfig, service: str) -> ServicePrice:
    return get_provider(config.provider).catalog_here().service_price(config.provider, config.region, service)


def _data_set(config: StackConfig) -> Iterable[CostComponent]:
    """Its way from another region, at the price of that pair of regions."""
    own = config.estimate
    if not _source(config) or own.source_gib is None or own.source_region in (None, config.region):
        return
    usd = transfer_price(config.provider, own.source_region, config.region)
    price = ServicePrice(provider=config.provider, region=config.region, service="transfer", unit="GiB", usd=usd)
    yield used_once(f"data set from {own.source_region}, once", price, own.source_gib, config.region)


def _said(config: StackConfig) -> Iterable[tuple[str, str, str, float]]:
    """Setting, label, service of the catalogue, and how much of it a run uses up."""
    own, idle = config.estimate, _no_use(config)
    if not idle["nat_gib"] and own.nat_gib is not None:
        yield "nat_gib", "data through the NAT gateway, a run", "nat-data", own.nat_gib
    if own.log_gib is not None:
        yield "log_gib", "log lines, a run", "log-ingestion", own.log_gib
    if not idle["flow_log_gib"] and own.flow_log_gib is not None:
        for service, label in _FLOW_LOGS.items():
            yield "flow_log_gib", label, service, own.flow_log_gib
    if not idle["key_operations"] and own.key_operations is not None:
        amount = own.key_operations / _OPERATIONS
        yield "key_operations", "operations on the stack's key, a run", "key-operations", amount
    if own.download_gib is not None:
        yield from _egress(config, own.download_gib)


def _kept(config: StackConfig, resources: Sequence[Declared]) -> Iterable[tuple[str, str, str, float]]:
    """Setting, label, service of the catalogue, GiB at any time."""
    own, bucket_service = config.estimate, get_provider(config.provider).bucket_service
    if own.run_bucket_gib is not None and bucket_service is not None:
        yield "run_bucket_gib", f"run bucket: {own.run_bucket_gib:g} GiB", bucket_service(resources), own.run_bucket_gib
    if own.image_gib is not None and not _no_use(config)["image_gib"]:
        yield "image_gib", f"image registry: {own.image_gib:g} GiB", "image-storage", own.image_gib


def _egress(config: StackConfig, gib: float) -> Iterable[tuple[str, str, str, float]]:
    """Each tier of the way out with its own price, as if nothing else left the cloud in that month."""
    tiers = sorted((int(match[1] or 0), match[0]) for name in _services(config) if (match := _TIER.fullmatch(name)))
    ends = (*(start for start, _ in tiers[1:]), inf)
    for (start, service), end in zip(tiers, ends, strict=True):
        part = min(gib, end * _GIB_PER_TIB) - start * _GIB_PER_TIB
        if part > 0:
            beyond = f", beyond {start} TiB" if start else ""
            yield "download_gib", f"results that leave the cloud, a run{beyond}", service, part


@dataclass(frozen=True)
class Pace:
    """How fast a job goes, and so how far its checkpoints are apart. `checkpoint_kimg`: thousands of images from one
    checkpoint to the next; `images_per_second`: of the whole job; `interval_sec`: from one checkpoint to the next, at
    most the run, or max_hours; `shortest_sec` and `longest_sec`: the ends of its band; `source`: where the images per
    second are from.
    """

    checkpoint_kimg: float
    images_per_second: float
    interval_sec: float
    shortest_sec: float
    longest_sec: float
    source: str

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)


@dataclass(frozen=True)
class RungCost:
    """One rung, with the nodes that would come from it alone.

    Attributes:
        position: in the ladder.
        kind: of capacity.
        num_nodes: of the job on this rung; speed, failures, dollars and energy are of so many.
        in_reach: whether machines can come: not where its price cap is below all that spot was seen at.
        nodes_hourly: US dollars an hour of its nodes and their disks; None where a price is not known, or out of reach.
        hourly: of the whole stack on this rung; None likewise.
        hourly_high: the same at the highest prices.
        bound: what these are.
        foreign_regions: whose prices they hold beside the stack's own region's.
        monthly: of 730 such hours, purchases and usage included.
        run_hours: expected from the start of the nodes to the end of the run, max_hours at most; None where it would
            never end.
        run: US dollars of such a run; None where a price or an end is missing.
        share: of the images, expected by max_hours, 0..1; None likewise.
        undisturbed_hours: of training alone, without checkpoints and interruptions; None of a custom command.
        spot_if_trained: training with its checkpoints and interruptions, of nodes that are taken or fail, after the
            nodes' start and regardless of max_hours; where the rate at which spot is taken is not known, of failures
            alone. None of a custom command, which is assumed to run for all of max_hours.
        taken: share of nodes taken within 720 hours; None on capacity that is not taken back.
        failures: how often one node fails in an hour.
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
    def sums(self) -> tuple[float | None, float | None, float | None]:
        """US dollars of an hour, a month and a run."""
        return self.hourly, self.monthly, self.run

    @property
    def spot(self) -> SpotEstimate:
        """The interruptions of a training."""
        assert self.spot_if_trained is not None, "asked of a training alone"
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
    """The bill's lines of one rung's nodes: they begin with the pool's name, but for the slices of a queued request."""
    pool = f"{config.stack}-{position}-{config.cluster.capacity[position].kind}:"
    own = [line for line in lines if line.name.startswith(pool)]
    return own or [line for line in lines if line.unit == "chip-hours"]


def rung_nodes(config: StackConfig, machine: MachineType, position: int) -> int:
    """Nodes that the job has on one rung: all on the first, and on each where rungs never share a job; below the first,
    those that the job needs to go on. A queue's rungs all grow to the most.
    """
    nodes = config.cluster.nodes
    is_whole = position == 0 or config.job is None or get_provider(config.provider).has_isolated_rungs(machine)
    return nodes.max if is_whole else nodes.min


def run_nodes(config: StackConfig, machine: MachineType) -> int:
    """Nodes of the job on the first rung in reach."""
    return rung_nodes(config, machine, first_in_reach(config, machine) or 0)


class LowestSpot(NamedTuple):
    """The machine type of a rung whose spot price was seen lowest."""

    machine_type: str
    quote: PriceQuote


def unmet_caps(config: StackConfig, machine: MachineType) -> dict[int, LowestSpot]:
    """The rungs that no machine comes to, since spot has never been as cheap there as their cap, with the lowest price
    seen. Bill, ladder, expected run, budget and findings all leave them out by this. What is not known in this region
    keeps nothing away.
    """
    unmet, provider = {}, get_provider(config.provider)
    if not provider.caps_spot:
        return {}
    for position, rung in enumerate(config.cluster.capacity):
        if isinstance(rung, Spot) and rung.max_usd_per_hour is not None:
            names = dict.fromkeys((machine.name, *rung.machine_types))
            catalog = provider.catalog_here()
            quotes = [(name, catalog.price(name, config.region, "spot")) for name in names]
            seen = [LowestSpot(name, found) for name, found in quotes if found is not None and _is_seen(found)]
            lowest = min(seen, key=lambda each: each.quote.low or 0.0, default=None)
            if lowest is not None and len(seen) == len(names) and rung.max_usd_per_hour < (lowest.quote.low or 0.0):
                unmet[position] = lowest
    return unmet


def _is_seen(spot: PriceQuote) -> bool:
    """Whether the lowest price of spot in this very region is known."""
    return spot.low is not None and not spot.foreign_region


def first_in_reach(config: StackConfig, machine: MachineType) -> int | None:
    """The first rung that machines can come to; None where there is none, and the job never starts."""
    unmet = unmet_caps(config, machine)
    return next((position for position in range(len(config.cluster.capacity)) if position not in unmet), None)


def bill_in_reach(config: StackConfig, machine: MachineType, lines: Sequence[CostComponent]) -> list[CostComponent]:
    """The bill without what no machine comes to: nothing of it is paid, and the next rung is the one in use."""
    unmet, first = unmet_caps(config, machine), first_in_reach(config, machine)
    if not unmet:
        return list(lines)
    in_use = [] if first is None else [id(line) for line in rung_lines(config, lines, first)]
    changed = {id(line): replace(line, standby=False) for line in lines if id(line) in in_use}
    for position, lowest in unmet.items():
        for line in rung_lines(config, lines, position):
            changed[id(line)] = _unpaid(line, lowest.quote)
    return [changed.get(id(line), line) for line in lines]


def _unpaid(line: CostComponent, lowest: PriceQuote) -> CostComponent:
    """A line of a rung that no machine comes to. Its nodes bear the lowest price seen, and not the cap."""
    line = replace(line, quantity=0.0, hourly=0.0, standby=True, is_limit=False, price_high=None)
    if line.unit != "hours":
        return line
    fact = lowest.expected
    return replace(
        line,
        name=f"{line.name.removesuffix(', at most')}: none comes",
        price=lowest.low,
        source=f"{fact.source}, the lowest seen: max_usd_per_hour is below",
        as_of=fact.as_of_text,
        read_on=fact.seen_on.isoformat(),
        confidence=fact.confidence,
    )


def rung_in_use(config: StackConfig, cost: CostEstimate) -> int:
    """The rung that the bill is of: the first whose nodes do not stand by."""
    positions = range(len(config.cluster.capacity))
    return next((at for at in positions if any(not c.standby for c in rung_lines(config, cost.components, at))), 0)


def most_expensive_rung(config: StackConfig, cost: CostEstimate) -> tuple[int, float]:
    """The rung on which the stack costs most, and US dollars an hour of it there; of known prices, at their highest."""
    positions, in_use = range(len(config.cluster.capacity)), rung_in_use(config, cost)
    of_rungs = [rung_lines(config, cost.components, at) for at in positions]
    # What is reserved further down is paid for anyway, and in the totals.
    hourly = [sum(c.hourly_high or 0.0 for c in of_rungs[at] if c.standby or at == in_use) for at in positions]
    dearest = max(positions, key=lambda at: (hourly[at], at == in_use))
    return dearest, cost.hourly_high - hourly[in_use] + hourly[dearest]


def most_usd(config: StackConfig, cost: CostEstimate) -> float:
    """US dollars of a run at most: all of max_hours on the dearest rung; of known prices. `most_bound` says whether it
    is a bound.
    """
    return most_expensive_rung(config, cost)[1] * cost.run_hours + cost.upfront + cost.once


def most_bound(cost: CostEstimate) -> Bound:
    """What `most_usd` is: any rung may be the dearest."""
    return bound(cost.components, at_most=True)


def pace(config: StackConfig, speed: Throughput | None = None) -> Pace:
    """How far checkpoints are apart in seconds, which the trainer counts in images. `speed`: None, as where nobody can
    tell it, takes the slowest that still ends the run in time: a job may be no faster.
    """
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
    """The trainer also saves at the end: no two checkpoints are further apart than the run is long."""
    job = config.training
    images = min(job.effective_config().checkpoint_kimg, job.kimg) * 1000
    return min(images / images_per_second, job.max_hours * 3600)


def save_sec(config: StackConfig) -> float:
    """How long training stands still for a checkpoint: as the stack file says, else as long as writing one took where
    it was measured. The trainer writes beside the training, so this is an upper end.
    """
    own = config.estimate.checkpoint_sec
    return state_gib(config.training.effective_config()) * (1 << 30) / SAVE_BYTES_PER_SEC if own is None else own


def taken(config: StackConfig, machine: MachineType) -> Fact[float | None]:
    """The share of the nodes taken within 720 hours: the stack file's, else the catalogue's."""
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
    """Each rung of the ladder, first choice first, at the speed of its own nodes. `job`: the pace on `run_nodes`; None
    for a custom command.
    """
    positions, unmet = range(len(config.cluster.capacity)), unmet_caps(config, machine)
    of_rungs = {id(line) for position in positions for line in rung_lines(config, lines, position)}
    # What nobody has priced is missing on every rung alike: it is said of the whole bill, not of a rung.
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
    """`own`: the lines of its nodes; None where none comes. `rates`: images a second by number of nodes; empty for a
    custom command.
    """
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
        hours, share = _within_limit(config, spot) if spot.feasible and own is not None else (None, None)
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
    """Images a second on so many nodes: the job's pace, scaled as the projection scales, else in proportion."""
    if num_nodes == (own := run_nodes(config, machine)):
        return job.images_per_second
    here, there = (throughput(config, machine, count).images_per_second for count in (num_nodes, own))
    return job.images_per_second * (num_nodes / own if here is None or there is None else here.mid / there.mid)


def _undisturbed_hours(config: StackConfig, images_per_second: float) -> float:
    return config.training.kimg * 1000 / images_per_second / 3600


def start_hours(config: StackConfig) -> float:
    """From the request for nodes to the first step: they boot, pull the image, mount and join."""
    return config.estimate.restart_sec / 3600


def _within_limit(config: StackConfig, training: SpotEstimate) -> tuple[float, float]:
    """Hours of a run with its start, max_hours at most, and the share of the images that it makes by then."""
    start, most = start_hours(config), config.work.max_hours
    return min(start + training.hours, most), min(1.0, max(0.0, most - start) / training.hours)


def stops(
    config: StackConfig,
    machine: MachineType,
    position: int,
    num_nodes: int,
    images_per_second: float,
    nodes_hourly: float = 0.0,
) -> SpotEstimate:
    """All images of the job at this speed on so many nodes of one rung, with its checkpoints and interruptions; without
    the first start. `nodes_hourly`: US dollars of all these nodes.
    """
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
