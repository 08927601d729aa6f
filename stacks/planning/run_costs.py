"""What a run costs: each rung of the capacity ladder (spot with its interruptions), and what is used up once (data
that passes a gateway or leaves a region, log lines). Pure.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Any

from components.catalog.reliability import failures_per_hour
from components.catalog.schema import Fact, MachineType
from components.core.capacity import Spot
from components.core.fields import Egress
from components.estimate.cost import HOURS_PER_MONTH, CostComponent, used_once
from components.estimate.spot import SpotEstimate, estimate_spot
from stacks.config.stack_config import StackConfig
from stacks.providers.registry import provider_of

_TIER = re.compile(r"egress-internet(?:-from-([0-9]+)tb)?")
"""Services of the catalogue: the way out, and from which volume in a month on another price holds."""
_GIB_PER_TIB = 1024
OF_SPOT = ("taken_percent_per_month", "checkpoint_sec")
"""Settings that only the estimate of spot reads."""
OF_BILLED = ("source_gib", "source_region", "nat_gib", "log_gib", "download_gib")
"""Settings of what a provider bills by the GiB."""


def usage_lines(config: StackConfig) -> list[CostComponent]:
    """The lines of what the stack file says."""
    return [_line(config, label, service, gib) for label, service, gib in _said(config)]


def unsaid_usage(config: StackConfig) -> tuple[str, ...]:
    """What would cost something and is not in the estimate, with the settings that would put it there."""
    own = config.estimate
    if config.site is not None:
        return ()
    elsewhere = own.source_region != config.region
    unsaid = {
        "the data set's way, where its bucket is in another region (source_region, source_gib)": _source(config)
        and (own.source_region is None or (elsewhere and own.source_gib is None)),
        "data through the NAT gateway (nat_gib)": _nat(config) and own.nat_gib is None,
        "log lines (log_gib)": own.log_gib is None,
        "results that leave the cloud (download_gib)": own.download_gib is None,
    }
    return tuple(what for what, is_unsaid in unsaid.items() if is_unsaid)


def idle_settings(config: StackConfig) -> dict[str, str]:
    """Settings of gangway:estimate that change no figure of this stack -> why."""
    own = config.estimate
    spot = any(isinstance(rung, Spot) for rung in config.cluster.capacity)
    reasons = {
        "source_gib": "" if _source(config) else "there is no storage.source",
        "source_region": "" if _source(config) else "there is no storage.source",
        "nat_gib": "" if _nat(config) else "there is no NAT gateway",
        **dict.fromkeys(OF_SPOT, "" if spot else "no rung is spot"),
    }
    if config.site is not None:
        reasons |= dict.fromkeys(OF_BILLED, f"no list has what a GiB costs with provider: {config.provider}")
    return {name: why for name, why in reasons.items() if why and name in own.model_fields_set}


def _source(config: StackConfig) -> bool:
    return config.storage is not None and config.storage.source is not None


def _nat(config: StackConfig) -> bool:
    return config.network.egress is Egress.NAT


def _said(config: StackConfig) -> Iterable[tuple[str, str, float]]:
    """Label, service of the catalogue, GiB."""
    own = config.estimate
    if config.site is not None:
        return
    if _source(config) and own.source_gib is not None and own.source_region not in (None, config.region):
        yield f"data set from {own.source_region}, once", "transfer-between-regions", own.source_gib
    if _nat(config) and own.nat_gib is not None:
        yield "data through the NAT gateway, a run", "nat-data", own.nat_gib
    if own.log_gib is not None:
        yield "log lines, a run", "log-ingestion", own.log_gib
    if own.download_gib is not None:
        yield from _egress(config, own.download_gib)


def _egress(config: StackConfig, gib: float) -> Iterable[tuple[str, str, float]]:
    """Each tier of the way out with its own price, as if nothing else left the cloud in that month."""
    services = provider_of(config.provider).catalog_here().services_of(config.provider)
    tiers = sorted((int(match[1] or 0), match[0]) for name in services if (match := _TIER.fullmatch(name)))
    ends = (*(start for start, _ in tiers[1:]), inf)
    for (start, service), end in zip(tiers, ends, strict=True):
        part = min(gib, end * _GIB_PER_TIB) - start * _GIB_PER_TIB
        if part > 0:
            beyond = f", beyond {start} TiB" if start else ""
            yield f"results that leave the cloud, a run{beyond}", service, part


def _line(config: StackConfig, label: str, service: str, gib: float) -> CostComponent:
    price = provider_of(config.provider).catalog_here().service_price(config.provider, config.region, service)
    return used_once(label, price, gib, config.region)


@dataclass(frozen=True)
class Pace:
    """How fast a job goes, and so how far its checkpoints are apart. `checkpoint_kimg`: thousands of images from one
    checkpoint to the next; `images_per_second`: of the whole job; `interval_sec`: from one checkpoint to the next, at
    most the run; `source`: where the images per second are from.
    """

    checkpoint_kimg: float
    images_per_second: float
    interval_sec: float
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
        nodes_hourly: US dollars an hour of its nodes and their disks; None where a price is not known.
        hourly: of the whole stack on this rung; None likewise.
        monthly: of 730 such hours, purchases and usage included.
        run_hours: what the run is expected to take; None where it is not expected to end.
        run: US dollars of such a run; None where a price or an end is missing.
        spot: the interruptions, of nodes that are taken or fail; where nobody knows how often spot is taken, of
            failures alone.
        taken: share of nodes taken within 720 hours; None on capacity that is not taken back.
        failures: how often one node fails in an hour.
    """

    position: int
    kind: str
    nodes_hourly: float | None
    hourly: float | None
    monthly: float | None
    run_hours: float | None
    run: float | None
    spot: SpotEstimate
    taken: Fact[float | None] | None
    failures: Fact[float]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        facts = ("spot", "taken", "failures")
        own = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in facts}
        return {
            **own,
            "spot": self.spot.to_json(),
            "taken_per_month": None if self.taken is None else self.taken.model_dump(mode="json"),
            "failures_per_node_hour": self.failures.model_dump(mode="json"),
        }


def rung_lines(config: StackConfig, lines: Sequence[CostComponent], position: int) -> list[CostComponent]:
    """The bill's lines of one rung's nodes: they begin with the pool's name, but for the slices of a queued request."""
    pool = f"{config.stack}-{position}-{config.cluster.capacity[position].kind}:"
    own = [line for line in lines if line.name.startswith(pool)]
    return own or [line for line in lines if line.unit == "chip-hours"]


def pace(config: StackConfig) -> Pace:
    """How far checkpoints are apart in seconds, which the trainer counts in images."""
    job, measured = config.job, config.estimate.images_per_second
    per_second = measured or job.kimg * 1000 / (job.max_hours * 3600)
    every = job.effective_config().checkpoint_kimg
    source = "gangway:estimate.images_per_second" if measured else "assumed: job.kimg in just job.max_hours"
    # The trainer also saves at the end: no two checkpoints are further apart than the run is long.
    interval_sec = min(every * 1000 / per_second, job.max_hours * 3600)
    return Pace(every, per_second, interval_sec, source)


def taken(config: StackConfig, machine: MachineType) -> Fact[float | None]:
    """The share of the nodes taken within 720 hours: the stack file's, else the catalogue's."""
    percent = config.estimate.taken_percent_per_month
    spot_taken = provider_of(config.provider).spot_taken
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


def price_ladder(config: StackConfig, machine: MachineType, lines: Sequence[CostComponent]) -> tuple[RungCost, ...]:
    """Each rung of the ladder, first choice first."""
    positions = range(len(config.cluster.capacity))
    of_rungs = {id(line) for position in positions for line in rung_lines(config, lines, position)}
    # What nobody has priced is missing on every rung alike: it is said of the whole bill, not of a rung.
    around = sum(line.hourly or 0.0 for line in lines if id(line) not in of_rungs)
    paid = sum(line.upfront + line.once for line in lines)
    return tuple(_rung(config, machine, rung_lines(config, lines, at), at, around, paid) for at in positions)


def _rung(
    config: StackConfig,
    machine: MachineType,
    own: Sequence[CostComponent],
    position: int,
    around: float,
    paid: float,
) -> RungCost:
    rung, unknown = config.cluster.capacity[position], any(line.hourly is None for line in own)
    nodes_hourly = None if unknown else sum(line.hourly or 0.0 for line in own)
    hourly = None if nodes_hourly is None else around + nodes_hourly
    fact = taken(config, machine) if isinstance(rung, Spot) else None
    failures = failures_per_hour(machine)
    spot = _stops(config, fact, failures.value, nodes_hourly or 0.0)
    if unknown:
        spot = replace(spot, usd=None)
    hours = spot.hours if spot.feasible else None
    return RungCost(
        position=position,
        kind=rung.kind,
        nodes_hourly=nodes_hourly,
        hourly=hourly,
        monthly=None if hourly is None else hourly * HOURS_PER_MONTH + paid,
        run_hours=hours,
        run=None if hourly is None or hours is None else hourly * hours + paid,
        spot=spot,
        taken=fact,
        failures=failures,
    )


def _stops(config: StackConfig, taken: Fact[float | None] | None, failures: float, nodes_hourly: float) -> SpotEstimate:
    """The run with what stops it. The pace holds the checkpoints that a run has anyway; only for spot they count as so
    much of a loss as the stack file, or a cautious assumption, says.
    """
    num_nodes = config.cluster.nodes.max
    return estimate_spot(
        num_nodes,
        nodes_hourly / num_nodes,
        config.job.max_hours,
        0.0 if taken is None else taken.value or 0.0,
        failures_per_hour=failures,
        interval_sec=pace(config).interval_sec,
        save_sec=0.0 if taken is None or taken.value is None else config.estimate.checkpoint_sec,
        restart_sec=config.estimate.restart_sec,
    )
