"""Expected hours and cost of a run, with findings on max_hours, budget, speeds and waiting. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import ceil, floor, inf

from gangway.components.catalog.schema import MachineType
from gangway.components.core.findings import Finding, InputError
from gangway.components.estimate.cost import Bound, CostEstimate, foreign_mark
from gangway.components.estimate.statistics import Band
from gangway.stacks.config.sections import MOST_HOURS
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.run_costs import (
    first_in_reach,
    most_bound,
    most_expensive_rung,
    most_usd,
    run_nodes,
    run_share,
    rung_in_use,
    start_hours,
    stops,
)
from gangway.stacks.estimates.throughput import (
    Course,
    Throughput,
    about,
    find_course,
    find_network,
    get_model,
    get_train_config,
    rates,
    throughput,
)
from gangway.stacks.estimates.trainer_findings import WorkerMemory, node_of, round_down, worker_memory
from gangway.trainer.config.refusals import refusals
from gangway.trainer.config.train_config import TrainConfig

_MOSTLY = 0.5
_ALMOST_ALL = 0.995  # share of images that counts as all of them
_FAR_FACTOR = 10  # max_hours gets a finding if it exceeds the slowest run by this factor
_SAME_SPEED = 0.9  # share of the speed that counts as equally fast; the projection is no more precise
_MIN_STEPS = 5_000  # some tens of epochs of the smallest data sets, for a proposed batch; a rule of thumb


@dataclass(frozen=True)
class ExpectedRun:
    """A run on the first rung in reach. `hours`: at most max_hours; `usd`: of known prices; `share`: of the images."""

    throughput: Throughput
    hours: Band | None = None
    usd: Band | None = None
    share: Band | None = None
    memory: WorkerMemory | None = None


def expected_run(config: StackConfig, machine: MachineType, speed: Throughput, cost: CostEstimate) -> ExpectedRun:
    """Hours and dollars by the bill of the first rung in reach; the upper end at its highest prices."""
    most, rate = config.work.max_hours, speed.images_per_second
    memory = worker_memory(config, machine) if config.trains else None
    if rate is None or first_in_reach(config, machine) is None:
        return ExpectedRun(speed, memory=memory)
    whole = _total_hours(config, machine, rate)
    hours = whole.map(lambda each: min(each, most))
    paid = cost.upfront + cost.once
    usd = Band(cost.hourly * hours.low + paid, cost.hourly * hours.mid + paid, cost.hourly_high * hours.high + paid)
    return ExpectedRun(
        speed,
        hours,
        usd,
        Band(*(run_share(config, each) for each in (whole.high, whole.mid, whole.low))),
        memory,
    )


def _total_hours(config: StackConfig, machine: MachineType, rate: Band) -> Band:
    position, num_nodes = first_in_reach(config, machine) or 0, run_nodes(config, machine)
    each_end = (stops(config, machine, position, num_nodes, each).hours for each in (rate.high, rate.mid, rate.low))
    return Band(*(start_hours(config) + hours for hours in each_end))


def run_throughput(config: StackConfig, machine: MachineType) -> Throughput:
    """Images a second on the nodes of the first rung in reach."""
    return throughput(config, machine, run_nodes(config, machine))


@dataclass(frozen=True)
class _Training:
    config: StackConfig
    machine: MachineType

    @cached_property
    def speed(self) -> Throughput:
        return run_throughput(self.config, self.machine)

    @cached_property
    def trained(self) -> TrainConfig:
        return get_train_config(self.config, self.machine)

    @cached_property
    def workers(self) -> int:
        return run_nodes(self.config, self.machine) * self.machine.num_accelerators.value

    @cached_property
    def course(self) -> Course | None:
        return find_course(self.trained, self.machine, self.workers)

    @property
    def accelerators(self) -> str:
        return f"{self.workers} x {get_model(self.machine)}"

    def hours(self, rate: Band) -> Band:
        return _total_hours(self.config, self.machine, rate)


def run_findings(config: StackConfig, machine: MachineType, cost: CostEstimate | None) -> Iterable[Finding]:
    """Findings about the run. `cost`: None if nothing is priced."""
    if config.job is None:
        yield from _queue(config)
        return
    run = _Training(config, machine)
    if config.own_command is not None:
        yield Finding.info(
            "run.own-command",
            "gangway:job.command",
            f"the run is priced for all of max_hours, {config.work.max_hours:g} h: speed, time and energy of a custom "
            "command are not forecast; its record shows them afterwards",
            "choose max_hours close to the command's longest runtime",
        )
    else:
        yield from _measured(run) if run.speed.provenance == "measured" else _projected(run)
        yield from _high_limit(run)
        yield from list(_mostly_waiting(run)) or _extra_accelerators(run)
    if cost is not None:
        yield from _budget(config, expected_run(config, machine, run.speed, cost), cost)


def _queue(config: StackConfig) -> Iterable[Finding]:
    nodes = config.cluster.nodes
    whole = f"all {nodes.max} nodes" if nodes.max > 1 else "its node"
    yield Finding.info(
        "cluster.standing",
        "gangway:engine",
        f"a cluster with a queue, priced for a month with {whole} up; {nodes.min or 'none'} of them are up without "
        "jobs; the jobs themselves are not forecast",
        "submit a job: gangway job submit FILE",
    )


def _measured(run: _Training) -> Iterable[Finding]:
    job, rate = run.config.training, run.speed.images_per_second
    assert rate is not None, "a measured speed has a value"
    if run.course is not None and rate.mid > (at_peak := run.workers / run.course.least_sec):
        yield Finding.error(
            "estimate.beyond-peak",
            "gangway:estimate.images_per_second",
            f"{rate.mid:,.0f} images/s are more than {run.accelerators} could compute at their peak, "
            f"{at_peak:,.0f} ({run.course.peaks_in_words}; without penalties)",
            "leave it out, or write the images a second of the whole job from its stats.jsonl",
        )
        return
    hours = run.hours(rate).mid
    if _ALMOST_ALL * hours > job.max_hours and hours < inf:
        yield Finding.warning(
            "run.longer-than-max-hours",
            "gangway:job.max_hours",
            f"{job.kimg:g} kimg take {hours:,.1f} h at the {rate.mid:,.0f} images/s of gangway:estimate, but "
            f"max_hours ends the run after {job.max_hours:g} h, with {run_share(run.config, hours):.0%} of the images",
            _shorten(run.config, hours),
        )


def _projected(run: _Training) -> Iterable[Finding]:
    """Compares max_hours with the least work at the peak, then with the band: an error if its fast end is too slow."""
    job, rate, course = run.config.training, run.speed.images_per_second, run.course
    if course is not None and (hours := job.kimg * 1000 * course.least_sec / run.workers / 3600) > job.max_hours:
        usual = hours if rate is None else run.hours(rate).mid
        yield Finding.error(
            "run.cannot-finish",
            "gangway:job.kimg",
            f"{job.kimg:g} kimg take at least {hours:,.1f} h, even at the peak of {run.accelerators} "
            f"({course.peaks_in_words}; without penalties), but max_hours ends the run after {job.max_hours:g} h; real "
            "runs take several times as long",
            _shorten(run.config, usual),
        )
        return
    if rate is None:
        return
    band = run.hours(rate)
    if _ALMOST_ALL * band.mid <= job.max_hours or band.mid == inf:
        return  # a finding on its rung reports a run that never ends
    never = job.kimg * 1000 / rate.high / 3600 > job.max_hours  # an error only where training alone takes too long
    make = Finding.error if never else Finding.warning
    yield make(
        "run.longer-than-max-hours",
        "gangway:job.max_hours",
        f"{job.kimg:g} kimg are projected to take {band.low:,.3g} to {band.high:,.3g} h (usually {band.mid:,.3g} h, "
        f"{about(rate.low)} to {about(rate.high)} images/s), but max_hours ends the run after {job.max_hours:g} h, "
        f"usually with {run_share(run.config, band.mid):.0%} of the images{', and never with all' if never else ''}",
        f"{_shorten(run.config, band.mid)}; or, if you have measured more, write gangway:estimate.images_per_second",
    )


def _high_limit(run: _Training) -> Iterable[Finding]:
    rate, most = run.speed.images_per_second, run.config.work.max_hours
    if rate is None or first_in_reach(run.config, run.machine) is None:
        return
    slowest = run.hours(rate).high
    if most <= _FAR_FACTOR * slowest or (enough := ceil(2 * slowest)) >= most:
        return
    yield Finding.info(
        "run.far-below-max-hours",
        "gangway:job.max_hours",
        f"the run is expected to take at most {slowest:.2g} h ({run.speed.provenance}), but with this max_hours a job "
        f"that hangs costs {most:g} h",
        f"set max_hours: {enough}",
    )


def _shorten(config: StackConfig, hours: float) -> str:
    kimg = round_down(config.training.kimg * run_share(config, hours))
    fixes = [f"gangway:job.max_hours: {ceil(hours)}, or more"] if ceil(hours) <= MOST_HOURS else []
    fixes += [f"gangway:job.kimg: {kimg:g}, or less"] if kimg else []
    return f"set {'; or '.join(fixes)}"


def _mostly_waiting(run: _Training) -> Iterable[Finding]:
    speed = run.speed
    if speed.waiting is None or speed.images_per_second is None or speed.waiting[0] <= _MOSTLY:
        return
    assert run.course is not None, "a known speed has a course"
    shares, idle = run.course.shares_in_words(run.workers), _idle_workers(run)
    larger = _find_halving_batch(run, speed.waiting[1])
    least, usual = (floor(share * 100) for share in speed.waiting)
    batch = f"; job.settings: {{batch_size: {larger}}} halves it, but changes the training" if larger else ""
    yield Finding.warning(
        "speed.mostly-waiting",
        "gangway:cluster",
        f"{usual} % of a step ({least} % or more) is waiting, not computing: "
        f"{shares} images on each of {run.accelerators}{f'; they train {idle}' if idle else ''}",
        f"use {_fewer_machines(run.config)}{batch}",
    )


def _extra_accelerators(run: _Training) -> Iterable[Finding]:
    if run.course is None or not (idle := _idle_workers(run)):
        return
    yield Finding.warning(
        "speed.extra-accelerators",
        "gangway:cluster",
        f"{run.accelerators} are projected to train {idle}",
        f"use {_fewer_machines(run.config)}, or a larger batch, which changes the training",
    )


def _fewer_machines(config: StackConfig) -> str:
    return "fewer machines" if config.cluster.nodes.max > 1 else "a smaller machine"


def _idle_workers(run: _Training) -> str:
    if run.machine.backend != "nccl":
        return ""
    workers = run.workers
    try:
        usual = {count: _usual_rate(run.trained, run.machine, count) for count in {workers, *_halves(workers)}}
    except InputError:
        return ""  # the speed of the machines' network is unknown
    enough = min(count for count, rate in usual.items() if rate >= _SAME_SPEED * usual[workers])
    if enough == workers:
        return ""
    return (
        f"{about(usual[workers])} images/s, and {enough} of them {about(usual[enough])}: the other "
        f"{workers - enough} add cost but almost no speed"
    )


def _halves(workers: int) -> Iterable[int]:
    while workers > 1:
        workers = (workers + 1) // 2
        yield workers


def _usual_rate(trained: TrainConfig, machine: MachineType, workers: int) -> float:
    course = find_course(trained, machine, workers)
    assert course is not None, "a known speed has a course"
    network = find_network(machine, ceil(workers / machine.num_accelerators.value)) if workers > 1 else None
    return rates(course.legs, network, workers).mid


def _find_halving_batch(run: _Training, waiting: float) -> int | None:
    config, trained, batch_size = run.config, run.trained, run.trained.batch_size * 2
    while batch_size * _MIN_STEPS <= trained.total_images:
        job = config.training.model_copy(update={"settings": {**config.training.settings, "batch_size": batch_size}})
        found = throughput(config.model_copy(update={"job": job}), run.machine).waiting
        if found is not None and found[1] <= waiting / 2:
            larger = trained.model_copy(update={"batch_size": batch_size})
            fits = not any(refusals(larger, node_of(run.machine), config.cluster.nodes.min))
            return batch_size if fits else None
        batch_size *= 2
    return None


def _budget(config: StackConfig, run: ExpectedRun, cost: CostEstimate) -> Iterable[Finding]:
    budget, path = config.budget.monthly_usd, "gangway:budget.monthly_usd"
    foreign = foreign_mark(cost.components)
    if run.usd is not None and run.usd.mid > budget:
        yield Finding.warning(
            "budget.below-run",
            path,
            f"{budget:.2f} USD do not pay for one run: {run.usd.low:,.2f} to {run.usd.high:,.2f} USD, "
            f"usually {run.usd.mid:,.2f} ({run.throughput.provenance}){foreign}",
            f"set monthly_usd: {ceil(run.usd.mid)}, or a shorter run",
        )
    elif (most := most_usd(config, cost)) > budget:
        why = "; it is expected to take less" if run.usd is not None else ""
        top, in_use = most_expensive_rung(config, cost)[0], rung_in_use(config, cost)
        kinds = [rung.kind for rung in config.cluster.capacity]
        at_most = f" {most_bound(cost)}," if most_bound(cost) is Bound.AT_MOST else ""
        on = "" if top == in_use else f"{at_most} on capacity[{top}] ({kinds[top]})"
        also = "" if top == in_use else f"; on capacity[{in_use}] ({kinds[in_use]}), {cost.run:,.2f} USD"
        yield Finding.warning(
            "budget.below-run",
            path,
            f"{budget:.2f} USD do not pay for a run of {cost.run_hours:.4g} h: {most:,.2f} USD{on}{also}{foreign}{why}",
            f"set monthly_usd: {ceil(most)}, or a smaller max_hours",
        )
