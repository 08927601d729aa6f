"""Whether a run ends within max_hours and the budget, and what it is expected to take and cost; findings on both, on
speeds that no accelerator has, and on steps that mostly wait. Pure.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import ceil, floor, inf
from typing import Any

from components.catalog.schema import MachineType
from components.core.findings import Finding, InputError
from components.estimate.cost import Bound, CostEstimate, foreign_mark
from stacks.config.sections import MOST_HOURS
from stacks.config.stack_config import StackConfig
from stacks.estimates.run_costs import (
    first_in_reach,
    most_bound,
    most_expensive_rung,
    most_usd,
    run_nodes,
    rung_in_use,
    start_hours,
    stops,
)
from stacks.estimates.throughput import (
    Band,
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
from stacks.estimates.trainer_findings import node_of, round_down
from stacks.estimates.worker_memory import WorkerMemory, worker_memory
from trainer.config.refusals import refusals
from trainer.config.train_config import TrainConfig

_MOSTLY = 0.5
_CUT = 0.995
"""Share of the images that rounds to all of them."""
_FAR = 10
"""Times what a run takes at its slowest, that max_hours is worth a word."""
_AS_FAST = 0.9
"""Share of the speed at which fewer accelerators count as as fast: the projection knows no better."""
_FEWEST_STEPS = 5_000
"""That a run makes with a batch which is proposed: some tens of epochs of the smallest sets. A rule of thumb."""


@dataclass(frozen=True)
class ExpectedRun:
    """What it is expected to take on the nodes of the first rung in reach: their start, checkpoints and interruptions
    included.

    Attributes:
        throughput: images a second, and what they rest on.
        hours: for all images, or max_hours where that ends the run earlier; None where the speed is not known,
            or no machine comes.
        usd: for those hours; known prices only.
        share: of the images that max_hours allows, 0..1.
        memory: that a step takes of an accelerator; None where no GPU computes.
    """

    throughput: Throughput
    hours: Band | None = None
    usd: Band | None = None
    share: Band | None = None
    memory: WorkerMemory | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)


def expected_run(config: StackConfig, machine: MachineType, speed: Throughput, cost: CostEstimate) -> ExpectedRun:
    """What the run takes at this speed, which is of `run_nodes`, and costs by the bill of the first rung in reach; at
    most, at its highest prices.
    """
    most, rate = config.work.max_hours, speed.images_per_second
    memory = worker_memory(config, machine) if config.trains else None
    if rate is None or first_in_reach(config, machine) is None:
        return ExpectedRun(speed, memory=memory)
    whole = _whole(config, machine, rate)
    hours = whole.map(lambda each: min(each, most))
    paid = cost.upfront + cost.once
    usd = Band(cost.hourly * hours.low + paid, cost.hourly * hours.mid + paid, cost.hourly_high * hours.high + paid)
    return ExpectedRun(
        speed,
        hours,
        usd,
        Band(*(_share(config, each) for each in (whole.high, whole.mid, whole.low))),
        memory,
    )


def _whole(config: StackConfig, machine: MachineType, rate: Band) -> Band:
    """Hours for all images on the first rung in reach, with the nodes' start and regardless of max_hours; infinite
    where it never ends.
    """
    position, num_nodes = first_in_reach(config, machine) or 0, run_nodes(config, machine)
    each_end = (stops(config, machine, position, num_nodes, each).hours for each in (rate.high, rate.mid, rate.low))
    return Band(*(start_hours(config) + hours for hours in each_end))


def _share(config: StackConfig, hours: float) -> float:
    """Of the images, what max_hours allow a run that takes `hours` with its start."""
    start = start_hours(config)
    return min(1.0, max(0.0, config.work.max_hours - start) / (hours - start))


def run_throughput(config: StackConfig, machine: MachineType) -> Throughput:
    """Images a second on the nodes of the first rung in reach."""
    return throughput(config, machine, run_nodes(config, machine))


def run_findings(config: StackConfig, machine: MachineType, cost: CostEstimate | None) -> Iterable[Finding]:
    """`cost`: the priced plan; None where nothing is priced, and then money is not spoken of."""
    if config.job is None:
        yield from _standing(config)
        return
    if config.own_command is not None:
        yield from _own_command(config, machine, cost)
        return
    speed, trained = run_throughput(config, machine), get_train_config(config, machine)
    workers = run_nodes(config, machine) * machine.num_accelerators.value
    course = find_course(trained, machine, workers)
    if speed.provenance == "measured":
        yield from _measured(config, machine, speed, course, workers)
    else:
        yield from _projected(config, machine, speed, course, workers)
    yield from _far_below(config, machine, speed)
    waiting = list(_waiting(config, machine, trained, speed))
    yield from waiting or _extra(config, machine, trained, course)
    if cost is not None:
        yield from _budget(config, expected_run(config, machine, speed, cost), cost)


def _standing(config: StackConfig) -> Iterable[Finding]:
    """What is told where jobs come to a queue."""
    nodes = config.cluster.nodes
    whole = f"all {nodes.max} nodes" if nodes.max > 1 else "its node"
    yield Finding.info(
        "cluster.standing",
        "gangway:engine",
        f"a cluster with a queue, priced for a month with {whole} up; {nodes.min or 'none'} of them up "
        "while nobody has work; nothing is forecast of the jobs that will come",
        "submit to it: gangway job submit FILE",
    )


def _own_command(config: StackConfig, machine: MachineType, cost: CostEstimate | None) -> Iterable[Finding]:
    """What is told in place of all that is known of a training."""
    yield Finding.info(
        "run.own-command",
        "gangway:job.command",
        f"a run is priced as all of max_hours, {config.work.max_hours:g} h: of a command of your own no speed, time or "
        "energy is forecast; what it has used its record says afterwards",
        "max_hours should be what it takes at most",
    )
    if cost is not None:
        yield from _budget(config, expected_run(config, machine, run_throughput(config, machine), cost), cost)


def _measured(
    config: StackConfig,
    machine: MachineType,
    speed: Throughput,
    course: Course | None,
    workers: int,
) -> Iterable[Finding]:
    """By the speed that the stack file has measured: whether it can be, and whether it is enough."""
    job, rate = config.training, speed.images_per_second
    assert rate is not None, "it is measured"
    if course is not None and rate.mid > (at_peak := workers / course.least_sec):
        yield Finding.error(
            "estimate.beyond-peak",
            "gangway:estimate.images_per_second",
            f"{rate.mid:,.0f} images/s are more than {workers} x {get_model(machine)} compute at their peak all the "
            f"time, {at_peak:,.0f} ({course.peaks_in_words}; penalties left out)",
            "leave it out, or write the images a second of the whole job, as its stats.jsonl has them",
        )
        return
    hours = _whole(config, machine, rate).mid
    if _CUT * hours > job.max_hours and hours < inf:
        yield Finding.warning(
            "run.longer-than-max-hours",
            "gangway:job.max_hours",
            f"{job.kimg:g} kimg take {hours:,.1f} h at the {rate.mid:,.0f} images/s of gangway:estimate, and "
            f"max_hours ends the run after {job.max_hours:g} h, with {_share(config, hours):.0%} of the images",
            _length(config, hours),
        )


def _projected(
    config: StackConfig,
    machine: MachineType,
    speed: Throughput,
    course: Course | None,
    workers: int,
) -> Iterable[Finding]:
    """By the least work of the images at the full peak of all accelerators, which no run reaches; then by the band: an
    error where even its fast end is too slow.
    """
    job, rate = config.training, speed.images_per_second
    if course is not None and (hours := job.kimg * 1000 * course.least_sec / workers / 3600) > job.max_hours:
        usual = hours if rate is None else _whole(config, machine, rate).mid
        yield Finding.error(
            "run.cannot-finish",
            "gangway:job.kimg",
            f"{job.kimg:g} kimg take {hours:,.1f} h at least, on {workers} x {get_model(machine)} at their peak all "
            f"the time ({course.peaks_in_words}; penalties left out), and max_hours ends the run after "
            f"{job.max_hours:g} h; real runs take several times as long",
            _length(config, usual),
        )
        return
    if rate is None:
        return
    band = _whole(config, machine, rate)
    if _CUT * band.mid <= job.max_hours or band.mid == inf:
        return  # what never ends is said of its rung
    never = job.kimg * 1000 / rate.high / 3600 > job.max_hours  # an error only where training alone takes too long
    make = Finding.error if never else Finding.warning
    yield make(
        "run.longer-than-max-hours",
        "gangway:job.max_hours",
        f"{job.kimg:g} kimg are projected to take {band.low:,.3g} to {band.high:,.3g} h ({band.mid:,.3g} h as usual, "
        f"{about(rate.low)} to {about(rate.high)} images/s), and max_hours ends the run after {job.max_hours:g} h, "
        f"with {_share(config, band.mid):.0%} of the images as usual{', and never with all' if never else ''}",
        f"{_length(config, band.mid)}; or, where you have measured more, write gangway:estimate.images_per_second",
    )


def _far_below(config: StackConfig, machine: MachineType, speed: Throughput) -> Iterable[Finding]:
    """A limit of hours so far above what the run needs that a job that hangs would be paid for long."""
    if speed.images_per_second is None or first_in_reach(config, machine) is None:
        return
    slowest, most = _whole(config, machine, speed.images_per_second).high, config.work.max_hours
    if most <= _FAR * slowest or (enough := ceil(2 * slowest)) >= most:
        return
    yield Finding.info(
        "run.far-below-max-hours",
        "gangway:job.max_hours",
        f"the run is expected to take {slowest:.2g} h at most ({speed.provenance}), and "
        f"max_hours lets a job that hangs cost {most:g} h",
        f"set max_hours: {enough}",
    )


def _length(config: StackConfig, hours: float) -> str:
    """The fix of a run that takes `hours`, more than max_hours."""
    kimg = round_down(config.training.kimg * _share(config, hours))
    fixes = [f"gangway:job.max_hours: {ceil(hours)}, or more"] if ceil(hours) <= MOST_HOURS else []
    fixes += [f"gangway:job.kimg: {kimg:g}, or less"] if kimg else []
    return f"set {'; or '.join(fixes)}"


def _waiting(config: StackConfig, machine: MachineType, trained: TrainConfig, speed: Throughput) -> Iterable[Finding]:
    """Steps so short that most of their time is no computing, wherever in the band the truth is."""
    if speed.waiting is None or speed.images_per_second is None or speed.waiting[0] <= _MOSTLY:
        return
    workers, model = run_nodes(config, machine) * machine.num_accelerators.value, get_model(machine)
    course = find_course(trained, machine, workers)
    assert course is not None, "or the speed were not known"
    shares, idle = course.shares_in_words(workers), _idle(machine, trained, workers)
    larger = _halving(config, machine, trained, speed.waiting[1])
    least, usual = (floor(share * 100) for share in speed.waiting)
    batch = f"; job.settings: {{batch_size: {larger}}} halves it, and is another training" if larger else ""
    yield Finding.warning(
        "speed.mostly-waiting",
        "gangway:cluster",
        f"{usual} % of a step ({least} % or more) is waiting, not computing: "
        f"{shares} images on each of {workers} x {model}{f'; they train {idle}' if idle else ''}",
        f"take {_smaller(config)}{batch}",
    )


def _extra(config: StackConfig, machine: MachineType, trained: TrainConfig, course: Course | None) -> Iterable[Finding]:
    """Accelerators that are paid for and speed nothing up, though steps compute most of the time."""
    workers = run_nodes(config, machine) * machine.num_accelerators.value
    if course is None or not (told := _idle(machine, trained, workers)):
        return
    yield Finding.warning(
        "speed.extra-accelerators",
        "gangway:cluster",
        f"{workers} x {get_model(machine)} are projected to train {told}",
        f"take {_smaller(config)}, or share out a larger batch, which is another training",
    )


def _smaller(config: StackConfig) -> str:
    return "fewer machines" if config.cluster.nodes.max > 1 else "a smaller machine"


def _idle(machine: MachineType, trained: TrainConfig, workers: int) -> str:
    """How many of the workers add cost and next to no speed, in words; empty where all are of use. Of a short step the
    host's starts and the averages' way remain, however many share the rest.
    """
    if machine.backend != "nccl":
        return ""
    try:
        usual = {count: _usual_rate(trained, machine, count) for count in {workers, *_halves(workers)}}
    except InputError:
        return ""  # nobody says how fast the machines' network is
    enough = min(count for count, rate in usual.items() if rate >= _AS_FAST * usual[workers])
    if enough == workers:
        return ""
    return (
        f"{about(usual[workers])} images/s as usual, and {enough} of them {about(usual[enough])}: the other "
        f"{workers - enough} add cost and next to no speed"
    )


def _halves(workers: int) -> Iterable[int]:
    while workers > 1:
        workers = (workers + 1) // 2
        yield workers


def _usual_rate(trained: TrainConfig, machine: MachineType, workers: int) -> float:
    """Images a second, on as few machines as hold so many workers."""
    course = find_course(trained, machine, workers)
    assert course is not None, "or the speed were not known"
    network = find_network(machine, ceil(workers / machine.num_accelerators.value)) if workers > 1 else None
    return rates(course.legs, network, workers).mid


def _halving(config: StackConfig, machine: MachineType, trained: TrainConfig, waiting: float) -> int | None:
    """The least multiple of the batch by a power of two with half the waiting and nothing that the trainer refuses, of
    which the run still makes enough steps to learn by.
    """
    batch_size = trained.batch_size * 2
    while batch_size * _FEWEST_STEPS <= trained.total_images:
        job = config.training.model_copy(update={"settings": {**config.training.settings, "batch_size": batch_size}})
        found = throughput(config.model_copy(update={"job": job}), machine).waiting
        if found is not None and found[1] <= waiting / 2:
            larger = trained.model_copy(update={"batch_size": batch_size})
            fits = not any(refusals(larger, node_of(machine), config.cluster.nodes.min))
            return batch_size if fits else None
        batch_size *= 2
    return None


def _budget(config: StackConfig, run: ExpectedRun, cost: CostEstimate) -> Iterable[Finding]:
    """Whether the monthly budget carries one run."""
    budget, path = config.budget.monthly_usd, "gangway:budget.monthly_usd"
    foreign = foreign_mark(cost.components)
    if run.usd is not None and run.usd.mid > budget:
        yield Finding.warning(
            "budget.below-run",
            path,
            f"{budget:.2f} USD do not pay for one run: {run.usd.low:,.2f} to {run.usd.high:,.2f} USD, "
            f"{run.usd.mid:,.2f} as usual ({run.throughput.provenance}){foreign}",
            f"set monthly_usd: {ceil(run.usd.mid)}, or a shorter run",
        )
    elif (most := most_usd(config, cost)) > budget:
        why = "; it is expected to take less" if run.usd is not None else ""
        dearest, in_use = most_expensive_rung(config, cost)[0], rung_in_use(config, cost)
        kinds = [rung.kind for rung in config.cluster.capacity]
        at_most = f" {most_bound(cost)}," if most_bound(cost) is Bound.AT_MOST else ""
        on = "" if dearest == in_use else f"{at_most} on capacity[{dearest}] ({kinds[dearest]})"
        also = "" if dearest == in_use else f"; on capacity[{in_use}] ({kinds[in_use]}), {cost.run:,.2f} USD"
        yield Finding.warning(
            "budget.below-run",
            path,
            f"{budget:.2f} USD do not pay for a run of {cost.run_hours:.4g} h: {most:,.2f} USD{on}{also}{foreign}{why}",
            f"set monthly_usd: {ceil(most)}, or a smaller max_hours",
        )
