"""Scenario files: a cluster, how its jobs train, the jobs; and the simulation inputs built from them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from gangway.components.catalog.machine_facts import load_philly, load_reliability
from gangway.components.core.fields import Amount, PositiveNumber, PositiveWhole
from gangway.components.core.findings import InputError
from gangway.components.estimate.energy import board_share
from gangway.components.estimate.offers import Carrier, Offer, find_offers
from gangway.components.estimate.scaling import Links, Network, get_links
from gangway.components.estimate.spot import RESTART_SEC, SAVE_SEC, rate_per_hour
from gangway.sim.schedule.cluster import Cluster, Hourly, Power, Rung
from gangway.sim.schedule.jobs import Ask, ControllerConfig, Curve, Job, controlled_job, drawn, generate, submitted_job
from gangway.stacks.base.registry import get_provider, sellers
from gangway.stacks.config.section import Section

MOST_JOBS = 100_000
_ONE_NODE = Links(1, 1e9, 1e9, 0.0, 0.0)
"""Without a machine there is no network: all-reduces take no time."""
Kind = Literal["reserved", "spot", "on-demand"]


def _series(value: Any) -> Any:
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else value


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Series = Annotated[tuple[Amount, ...], Field(min_length=1, max_length=20_000), BeforeValidator(_series)]
_Gpus = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,4}(-[1-9][0-9]{0,4})?$", examples=["2-8"]), BeforeValidator(_text)]


def _seller(name: str) -> str:
    known = [provider.name for provider in sellers()]
    if name not in known:
        raise InputError.not_among("provider", "no such provider", name, known)
    return name


class MachineConfig(Section):
    """A machine type of the catalogue, whose values are the defaults.

    Attributes:
        provider: cloud provider.
        machine_type: machine type of the provider.
        region: region of the provider.
    """

    provider: Annotated[str, AfterValidator(_seller)] = Field(examples=["aws"])
    machine_type: str = Field(examples=["p5.48xlarge"])
    region: str = Field(examples=["us-east-1"])


class RungConfig(Section):
    """Nodes of one kind of capacity.

    Attributes:
        kind: kind of capacity; reserved nodes are always paid, others while a job uses them.
        nodes: number of nodes.
        usd_per_gpu_hour: one price, or a repeating hourly list; the catalogue's if omitted.
        gone_per_hour: losses of one node, interrupted or failed, per hour; the catalogue's if omitted.
        back_hours: mean time until a lost node is back; the catalogue's if omitted.
        notice_sec: warning before a node is lost.
    """

    kind: Kind
    nodes: PositiveWhole = Field(le=4096)
    usd_per_gpu_hour: Series | None = None
    gone_per_hour: Amount | None = None
    back_hours: Amount | None = None
    notice_sec: Amount = 0.0


class PowerConfig(Section):
    """Power of one GPU with its share of the machine.

    Attributes:
        busy_watts: with a job.
        idle_watts: without a job.
        pue: power usage effectiveness of the building.
        gco2e_per_kwh: carbon intensity of the grid, gCO2e per kWh: one value, or a repeating hourly list.
    """

    busy_watts: PositiveNumber
    idle_watts: Amount
    pue: Annotated[PositiveNumber, Field(ge=1, le=10)] = 1.0
    gco2e_per_kwh: Series


class ClusterConfig(Section):
    """The cluster.

    Attributes:
        machine: machine type of the nodes; if omitted, network time is zero and prices and power must be given.
        gpus_per_node: GPUs per node; the machine's if omitted, else 1.
        capacity: the nodes, in the order of use.
        power: power of a GPU; the catalogue's if omitted.
        idle_share: idle over busy power, if the catalogue gives the power.
        start_sec: time to start or restart a job.
        save_sec: time to save a checkpoint.
        interval_sec: time between checkpoints; the optimum if omitted.
    """

    machine: MachineConfig | None = None
    gpus_per_node: PositiveWhole | None = None
    capacity: tuple[RungConfig, ...] = Field(min_length=1, max_length=10)
    power: PowerConfig | None = None
    idle_share: Annotated[Amount, Field(le=1)] = 0.3
    start_sec: Amount = RESTART_SEC
    save_sec: Amount = SAVE_SEC
    interval_sec: PositiveNumber | None = None


class TrainingConfig(Section):
    """How fast jobs train, unless a job says otherwise.

    Attributes:
        images_per_sec: throughput of one GPU.
        batch_size: global batch as submitted.
        batch_max: largest batch for policies that change it; batch_size if omitted.
        noise_batch: gradient noise scale in images, above which images are worth less; no larger batch if omitted.
        gradient_mb: gradients averaged by all workers per step, MB.
        serial_share: share of a step's compute that more workers do not shorten.
    """

    images_per_sec: PositiveNumber = 1000.0
    batch_size: PositiveWhole = 64
    batch_max: PositiveWhole | None = None
    noise_batch: PositiveNumber | None = None
    gradient_mb: Amount = 0.0
    serial_share: Annotated[Amount, Field(le=1)] = 0.0


class JobConfig(Section):
    """A job, or a line of a CSV file. It needs either `hours` or `kimg`.

    Attributes:
        name: unique name of the job.
        submit_hours: submission, from the start of the trace.
        gpus: number of GPUs, or fewest and most, as 2-8.
        hours: requested training without interruptions on its fewest GPUs.
        kimg: requested length.
        ends_at: share of the requested training after which the job really ends.
        group: user or kind of the job, for policies that learn across jobs.
        deadline_hours: deadline, from the start of the trace; none if omitted.
        images_per_sec: throughput of one GPU; `training`'s if omitted.
        batch_size: global batch; `training`'s if omitted.
        batch_max: largest batch; `training`'s if omitted.
        noise_batch: gradient noise scale in images; `training`'s if omitted.
    """

    name: str = Field(min_length=1, max_length=100)
    submit_hours: Amount
    gpus: _Gpus
    hours: PositiveNumber | None = None
    kimg: PositiveNumber | None = None
    ends_at: Annotated[PositiveNumber, Field(le=1)] = 1.0
    group: str = ""
    deadline_hours: PositiveNumber | None = None
    images_per_sec: PositiveNumber | None = None
    batch_size: PositiveWhole | None = None
    batch_max: PositiveWhole | None = None
    noise_batch: PositiveNumber | None = None

    @property
    def bounds(self) -> tuple[int, int]:
        """Fewest and most GPUs."""
        fewest, _, most = self.gpus.partition("-")
        return int(fewest), int(most or fewest)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        fewest, most = self.bounds
        if fewest > most:
            raise ValueError(f"gpus with the fewest first; write gpus: {most}-{fewest}")
        if (self.hours is None) == (self.kimg is None):
            raise ValueError("hours or kimg, one of both; write hours: 10")
        if self.deadline_hours is not None and self.deadline_hours <= self.submit_hours:
            raise ValueError(
                f"a deadline after the submission, both from the trace's beginning; "
                f"write deadline_hours: {self.submit_hours + (self.hours or 1):g}"
            )
        return self


class TraceConfig(Section):
    """Jobs from a CSV file. `notes`: source and assumptions."""

    jobs: tuple[JobConfig, ...] = Field(min_length=1, max_length=MOST_JOBS)
    notes: tuple[str, ...] = ()


class GenerateConfig(Section):
    """Jobs drawn from published statistics.

    Attributes:
        like: the statistics: Microsoft's Philly cluster.
        jobs: number of jobs.
        load: work of all jobs over what the cluster can do while they arrive.
        elastic: most over fewest GPUs of a job; 1 for a fixed number.
    """

    like: Literal["philly"] = "philly"
    jobs: PositiveWhole = Field(default=200, le=MOST_JOBS)
    load: Annotated[PositiveNumber, Field(le=10)] = 1.0
    elastic: Annotated[PositiveWhole, Field(le=64)] = 1


class ScenarioConfig(Section):
    """A scenario for `gangway simulate`. It needs one of `jobs`, `trace` and `generate`.

    Attributes:
        title: title of the result.
        assumptions: sentences printed with the result.
        cluster: the cluster.
        training: how fast jobs train, unless a job says otherwise.
        controller: jobs with poor settings, with and without a controller; none if omitted.
        jobs: the jobs.
        trace: CSV file with the jobs, next to this file.
        generate: jobs drawn from published statistics.
    """

    title: str = ""
    assumptions: tuple[str, ...] = ()
    cluster: ClusterConfig
    training: TrainingConfig = TrainingConfig()
    controller: ControllerConfig | None = None
    jobs: tuple[JobConfig, ...] = Field(default=(), max_length=MOST_JOBS)
    trace: str | None = Field(default=None, examples=["jobs.csv"])
    generate: GenerateConfig | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if sum((bool(self.jobs), self.trace is not None, self.generate is not None)) != 1:
            raise ValueError("one of jobs, trace and generate; write generate: {like: philly, jobs: 200}")
        return self

    @model_validator(mode="after")
    def _noise_of_a_batch(self) -> Self:
        controller = self.controller
        if controller is not None and controller.off_batch_share and self.training.noise_batch is None:
            raise ValueError("training.noise_batch beside controller.off_batch_share; write noise_batch: 2000")
        return self


Jobs = Callable[[int], Sequence[Job]]
"""By seed."""


@dataclass(frozen=True)
class Scenario:
    """A simulation's inputs. `jobs`: by seed; `controlled`: the same jobs with controllers, if configured."""

    title: str
    cluster: Cluster
    jobs: Jobs
    notes: tuple[str, ...]
    controlled: Jobs | None = None


def build(config: ScenarioConfig, trace: TraceConfig | None = None) -> Scenario:
    """Build a scenario with the catalogue's values. InputError: unknown machine or region, duplicate name, too wide."""
    offers, network, notes = _from_catalogue(config.cluster.machine)
    cluster, more = _cluster(config.cluster, offers)
    notes += [*more, *config.assumptions]
    if config.generate is not None:
        return _generated(config, config.generate, cluster, network, notes)
    written = config.jobs if trace is None else trace.jobs
    notes = [*(() if trace is None else trace.notes), *notes]
    _check(written, cluster)
    jobs = [_job(one, config.training, network) for one in written]
    curves = [_curve(config.training, one) for one in written]
    return _with_controller(Scenario(config.title, cluster, lambda _: jobs, tuple(notes)), config, network, curves)


def _with_controller(
    scenario: Scenario, config: ScenarioConfig, network: Network, curves: Sequence[Curve]
) -> Scenario:  # fmt: skip
    controller = config.controller
    if controller is None:
        return scenario

    def fixed(seed: int) -> Sequence[Job]:
        return [submitted_job(run, network) for run in drawn(scenario.jobs(seed), curves, controller, seed)]

    def controlled(seed: int) -> Sequence[Job]:
        runs = drawn(scenario.jobs(seed), curves, controller, seed)
        return [controlled_job(run, network, controller) for run in runs]

    return replace(scenario, jobs=fixed, controlled=controlled, notes=(*scenario.notes, controller.in_words()))


def _generated(
    config: ScenarioConfig, made: GenerateConfig, cluster: Cluster, network: Network, notes: Sequence[str]
) -> Scenario:
    statistics, curve = load_philly(), _curve(config.training)

    def jobs(seed: int) -> Sequence[Job]:
        return generate(
            statistics,
            curve,
            network,
            number=made.jobs,
            num_gpus=cluster.num_gpus,
            load=made.load,
            elastic=made.elastic,
            seed=seed,
        )

    origin = (
        f"simulated: {made.jobs} jobs drawn by seed, Poisson arrivals, work for {made.load:g} of the GPUs meanwhile"
    )
    scenario = Scenario(config.title, cluster, jobs, (origin, *statistics.sources, *notes))
    return _with_controller(scenario, config, network, [curve] * made.jobs)


def _curve(training: TrainingConfig, job: JobConfig | None = None) -> Curve:
    own = {} if job is None else job.model_dump(exclude_none=True)
    values: Mapping[str, Any] = {**training.model_dump(), **own}
    batch = values["batch_size"]
    return Curve(
        values["images_per_sec"],
        batch,
        max(batch, values["batch_max"] or batch),
        values["noise_batch"],
        training.gradient_mb * 1e6,
        training.serial_share,
    )


def _job(one: JobConfig, training: TrainingConfig, network: Network) -> Job:
    curve, (fewest, _) = _curve(training, one), one.bounds
    images = (one.hours or 0) * 3600 * curve.speed(fewest, network) if one.kimg is None else one.kimg * 1000
    ask = Ask.on(
        network,
        curve,
        name=one.name,
        submit_sec=one.submit_hours * 3600,
        gpus=one.bounds,
        images=images,
        group=one.group,
        deadline_sec=None if one.deadline_hours is None else one.deadline_hours * 3600,
    )
    return Job(ask, images * one.ends_at)


def _check(jobs: Sequence[JobConfig], cluster: Cluster) -> None:
    seen: set[str] = set()
    for index, one in enumerate(jobs):
        if one.name in seen:
            allowed = "each name once"
            raise InputError(f"jobs[{index}].name", "stands there twice", value=one.name, allowed=allowed,
                             fix=f"write name: {one.name}-{index}")  # fmt: skip
        seen.add(one.name)
        if one.bounds[0] > cluster.num_gpus:
            raise InputError(
                f"jobs[{index}].gpus",
                "needs more GPUs than the cluster has, and would wait for ever",
                value=one.gpus,
                allowed=f"at most {cluster.num_gpus}",
                fix=f"write gpus: {cluster.num_gpus}, or add nodes to cluster.capacity",
            )


def _from_catalogue(machine: MachineConfig | None) -> tuple[dict[str, Offer], Network, list[str]]:
    if machine is None:
        return {}, _ONE_NODE, ["assumed: all-reduces take no time; no machine is named"]
    catalog = get_provider(machine.provider).catalog_here()
    place = "cluster.machine"
    found = catalog.machine(machine.machine_type, f"{place}.machine_type")
    carrier = Carrier(found, catalog.get_prices(found.name), catalog.regions, catalog.interruptions)
    offers = [offer for offer in find_offers([carrier]) if offer.place is not None]
    in_region = {offer.kind: offer for offer in offers if offer.region == machine.region}
    if not in_region:
        regions = dict.fromkeys(offer.region for offer in offers)
        raise InputError.not_among(
            f"{place}.region", f"no offer of {found.name} is known there", machine.region, regions
        )
    links = get_links(found)
    by_kind: dict[str, Offer] = {str(kind): offer for kind, offer in in_region.items()}
    if (committed := in_region.get("reserved-1y")) is not None:
        by_kind["reserved"] = committed
    return by_kind, links, list(links.sources)


def _cluster(config: ClusterConfig, offers: Mapping[str, Offer]) -> tuple[Cluster, list[str]]:
    notes: list[str] = []
    some = next(iter(offers.values()), None)
    gpus = config.gpus_per_node or (1 if some is None else some.machine.num_accelerators.value)
    if some is not None:
        notes += _part_of_machine(some.machine.name, gpus, some.machine.num_accelerators.value)
    rungs = tuple(_rung(one, offers.get(one.kind), gpus, notes) for one in config.capacity)
    power = _power(config, some, notes)
    return Cluster(rungs, gpus, power, config.start_sec, config.save_sec, config.interval_sec), notes


def _part_of_machine(name: str, gpus: int, whole: int) -> list[str]:
    """A note if jobs use fewer GPUs of a node than it has. InputError: it has fewer."""
    if gpus > whole:
        place = "cluster.gpus_per_node"
        raise InputError(place, f"{name} has fewer", value=gpus, allowed=f"at most {whole}",
                         fix=f"write gpus_per_node: {whole}, or leave it out")  # fmt: skip
    if gpus == whole:
        return []
    return [
        f"jobs use {gpus} of the {whole} GPUs of each {name}: a listed price is the whole machine's and charged to "
        "these alone; what the others draw is left out"
    ]


def _rung(one: RungConfig, offer: Offer | None, gpus: int, notes: list[str]) -> Rung:
    usd, gone, back, priced_in = one.usd_per_gpu_hour, one.gone_per_hour, one.back_hours, ""
    if usd is None and offer is not None and offer.quote is not None and offer.quote.usd is not None:
        usd, priced_in = (offer.quote.usd / gpus,), offer.quote.foreign_region
        notes.append(f"{one.kind}: ${usd[0]:.2f} a GPU-hour, {offer.quote.source} ({offer.price.confidence})")
    if gone is None and offer is not None:
        fails = 0.0 if offer.failures is None else offer.failures.value
        gone = fails + rate_per_hour(0.0 if offer.rate is None else offer.rate.value or 0.0)
        notes.append(f"{one.kind}: a node goes {gone:.2g} times an hour, taken or failed, by the catalogue")
    if gone and back is None:
        repair = load_reliability().repair.hours
        back = repair.value
        notes.append(f"{one.kind}: a node that is gone is back after {back:g} h on average ({repair.confidence})")
    series = None if usd is None else Hourly(usd)
    return Rung(
        one.kind, one.nodes, series, one.kind == "reserved", gone or 0.0, back or 0.0, one.notice_sec, priced_in
    )


def _power(config: ClusterConfig, offer: Offer | None, notes: list[str]) -> Power | None:
    if config.power is not None:
        power = config.power
        return Power(power.busy_watts, power.idle_watts, power.pue, Hourly(power.gco2e_per_kwh))
    if offer is None or offer.place is None or offer.machine.accelerator_watts.value is None:
        return None
    machine, place = offer.machine, offer.place
    intensity = place.intensity_g_per_kwh.value
    if intensity is None:
        return None
    board = (machine.accelerator_watts.value or 0.0) * board_share(machine).value
    busy = board + machine.host_watts.value / machine.num_accelerators.value
    notes.append(f"power: {busy:.0f} W a busy GPU with its share of the machine (estimated)")
    notes.append(f"power: idle GPUs draw {config.idle_share:g} of that (assumed)")
    notes.append(f"grid: {intensity:g} gCO2e/kWh, {place.intensity_g_per_kwh.source}")
    return Power(busy, busy * config.idle_share, place.pue.value, Hourly((intensity,)))
