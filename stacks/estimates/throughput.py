"""How many images a second a job trains on its machines: measured in the stack file, else projected as a band. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal, NamedTuple

from gangway.components.catalog.schema import MachineType
from gangway.components.core.findings import InputError
from gangway.components.estimate.scaling import Network, StepModel, get_links, get_slices, step_sec
from gangway.components.estimate.statistics import Band
from gangway.components.gcp.slices import plan_slice, worker_tflops
from gangway.stacks.config.stack_config import StackConfig
from gangway.trainer.config.network_size import (
    discriminator_size,
    generator_size,
    least_flop,
    stages,
    step_flop,
    step_operations,
)
from gangway.trainer.config.segment_plan import Stretch, stretches
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.accelerators import find_peak
from gangway.trainer.config.values.segments import Span

_FLOAT32 = 4
_DCGAN_OPERATIONS = 167.5  # operations of a step of dcgan-digits (`step_operations`)
_GRAPH_SHARE = 0.2  # share of a launch if the operation is replayed from a CUDA graph; assumed


class Assumed(NamedTuple):
    """Shares: `utilisation` of the peak in matrix products; `overlap` of their time in which gradients travel."""

    utilisation: float
    launches: float
    launch_sec: float
    overlap: float
    hidden: bool


SLOW, USUAL, FAST = (
    Assumed(0.02, 344 / _DCGAN_OPERATIONS, 50e-6, 0.0, hidden=False),
    Assumed(0.08, 284 / _DCGAN_OPERATIONS, 15e-6, 0.5, hidden=True),
    Assumed(0.3, 224 / _DCGAN_OPERATIONS, 5e-6, 1.0, hidden=True),
)
"""Calibrated by published speeds of GANs on V100, A100 and L40, at 5 to 18 % of the peak (test_throughput.py). A
launch takes 4 to 6 us by https://susun-blog.com/blog/pegainfer-3-cuda-graph, and several times that with Python and
autograd (assumed). Launch-bound runs of dcgan-digits made 224 to 344 launches a step (measured, November 2026); other
networks are assumed to have the same ratio.
"""
_LEAST_WAITING = Assumed(SLOW.utilisation, FAST.launches, FAST.launch_sec, FAST.overlap, hidden=True)


def about(number: float) -> str:
    """Rounds to two digits, the precision of a projection.

    >>> about(25473), about(6.04)
    ('25,000', '6')
    """
    return f"{float(f'{number:.2g}'):,.{0 if number >= 10 else 1}f}".removesuffix(".0")


@dataclass(frozen=True)
class Throughput:
    """Speed of training, without checkpoints and interruptions. `waiting`: least and usual share of a step."""

    images_per_second: Band | None
    provenance: Literal["measured", "projected", "unknown"]
    source: str
    waiting: tuple[float, float] | None = None

    @property
    def usual_waiting(self) -> float:
        """The usual share of a step in which nothing is computed; 0 if unknown."""
        return 0.0 if self.waiting is None else self.waiting[1]


class WorkerPeak(NamedTuple):
    """Peak of one worker's device in TFLOP/s, with number format and source."""

    tflops: float
    numbers: str
    source: str


def get_train_config(config: StackConfig, machine: MachineType) -> TrainConfig:
    """What the nodes train: with PyTorch/XLA if the machine needs it and the settings name no backend."""
    effective = config.training.effective_config()
    if machine.backend == "xla" and "backend" not in config.training.settings:
        return effective.model_copy(update={"backend": "xla"})
    return effective


def get_model(machine: MachineType) -> str:
    """`A100-80G` for `A100-80Gx8`; a TPU slice's generation."""
    if machine.backend == "xla":
        return plan_slice(accelerator_type=machine.accelerator).generation
    return machine.accelerator.rpartition("x")[0]


def worker_peak(trained: TrainConfig, machine: MachineType) -> WorkerPeak | None:
    """The peak for this training; None if unknown, or if workers compute on CPUs."""
    if trained.backend == "gloo":
        return None
    if machine.backend == "xla":
        peak = worker_tflops(plan_slice(accelerator_type=machine.accelerator))
        # XLA also multiplies float32 in bfloat16 by default.
        return None if peak.value is None else WorkerPeak(peak.value, "bf16", peak.source)
    if machine.backend != "nccl":
        return None
    numbers = "tf32" if trained.precision == "fp32" and trained.tf32 else trained.precision
    for each in (numbers, trained.precision):
        if found := find_peak(get_model(machine), each):
            return WorkerPeak(found.tflops, each, "the vendor's data sheet")
    return None


def throughput(config: StackConfig, machine: MachineType, num_nodes: int | None = None) -> Throughput:
    """Measured, else projected. A measurement is for all nodes; for fewer it is scaled like the projection."""
    most = config.cluster.nodes.max
    num_nodes = most if num_nodes is None else num_nodes
    if config.own_command is not None:
        return Throughput(None, "unknown", "the speed of a custom command is not known")
    if config.job is None:
        return Throughput(None, "unknown", "the jobs of a queue are not known in advance")
    measured = config.estimate.images_per_second
    if measured is not None:
        source = "gangway:estimate.images_per_second"
        if num_nodes == most:
            return Throughput(Band(measured, measured, measured), "measured", source)
        fewer, top = (project(get_train_config(config, machine), machine, count) for count in (num_nodes, most))
        rate = _scale(measured, fewer.images_per_second, top.images_per_second, num_nodes / most)
        scaled = f"{source} of {most} nodes, scaled to {num_nodes} like the projection"
        return Throughput(rate, "projected", scaled, fewer.waiting)
    return project(get_train_config(config, machine), machine, num_nodes)


def _scale(measured: float, fewer: Band | None, top: Band | None, share: float) -> Band:
    if fewer is None or top is None:
        return Band(measured * share, measured * share, measured)
    ratios = (fewer.low / top.low, fewer.mid / top.mid, fewer.high / top.high)
    return Band(measured * min(ratios), measured * ratios[1], measured * max(ratios))


def find_network(machine: MachineType, num_nodes: int) -> Network | None:
    """The network for gradients; None for a single worker. InputError: its speed is unknown."""
    workers = machine.num_accelerators.value
    if num_nodes * workers == 1:
        return None
    if machine.backend != "xla":
        return get_links(machine)
    plan = plan_slice(accelerator_type=machine.accelerator)
    return get_slices(plan.generation, plan.topology, workers, num_nodes)


class Work(NamedTuple):
    """Work of a step at one network size. `share`: of the run's images; `operations`: per micro-batch."""

    share: float
    flop: float
    operations: float
    gradient_bytes: float


class Step(NamedTuple):
    """A step. `largest`: real images of the worker with most; `starts`: once per micro-batch, less if replayed."""

    work: tuple[Work, ...]
    images: int
    largest: int
    starts: float


def get_step(trained: TrainConfig, workers: int, span: Span | None = None) -> Step:
    """The step of a configuration on `workers`. `span`: part of the run; all of it if omitted."""
    share = ceil(trained.batch_size / workers)
    work = []
    for stage in stages(trained, span):
        at = stage.config
        parameters = generator_size(at).parameters + at.d_steps * discriminator_size(at).parameters
        work.append(Work(stage.share, step_flop(at), step_operations(at), _FLOAT32 * parameters))
    starts = ceil(share / (trained.batch_gpu or share)) * (_GRAPH_SHARE if trained.cuda_graphs else 1)
    return Step(tuple(work), trained.step_images, share * trained.d_steps, starts)


class Leg(NamedTuple):
    """A segment of a run with constant batch and precision. `share`: of its images; `tflops`: peak of one worker."""

    share: float
    step: Step
    tflops: float


class StepTime(NamedTuple):
    """Mean seconds of a step over its sizes. `products_sec`: matrix products only; `whole_sec`: all of it."""

    products_sec: float
    whole_sec: float


def step_time(step: Step, tflops: float, network: Network | None, workers: int, assumed: Assumed) -> StepTime:
    """The time of a step under these assumptions. `tflops`: peak of one worker; `network`: None for one worker."""
    products = whole = 0.0
    for work in step.work:
        products_sec = step.largest * work.flop / (tflops * 1e12 * assumed.utilisation)
        starts_sec = step.starts * work.operations * assumed.launches * assumed.launch_sec
        busy_sec = max(products_sec, starts_sec) if assumed.hidden else products_sec + starts_sec
        model = StepModel(busy_sec, work.gradient_bytes, overlap=assumed.overlap)
        products += work.share * products_sec
        whole += work.share * (busy_sec if network is None else step_sec(model, network, workers, "weak"))
    return StepTime(products, whole)


def image_time(legs: Sequence[Leg], network: Network | None, workers: int, assumed: Assumed) -> StepTime:
    """Mean time of one image over the run, each segment with its own batch and precision."""
    times = [(leg, step_time(leg.step, leg.tflops, network, workers, assumed)) for leg in legs]
    return StepTime(
        sum(leg.share * time.products_sec / leg.step.images for leg, time in times),
        sum(leg.share * time.whole_sec / leg.step.images for leg, time in times),
    )


def rates(legs: Sequence[Leg], network: Network | None, workers: int) -> Band:
    """Images a second over the whole run."""
    return Band(*(1 / image_time(legs, network, workers, assumed).whole_sec for assumed in (SLOW, USUAL, FAST)))


class Course(NamedTuple):
    """A run on machines: its segments, with the peak and work of each."""

    stretches: Sequence[Stretch]
    peaks: Sequence[WorkerPeak]
    legs: Sequence[Leg]

    @property
    def least_sec(self) -> float:
        """Seconds of one worker per image at the full peak; no run is faster."""
        return sum(
            leg.share * least_flop(stretch.config, stretch.span) / (leg.tflops * 1e12)
            for stretch, leg in zip(self.stretches, self.legs, strict=True)
        )

    @property
    def peaks_in_words(self) -> str:
        """Each peak once, in the run's order."""
        return "; then ".join(
            dict.fromkeys(f"{each.tflops:g} TFLOP/s {each.numbers}, {each.source}" for each in self.peaks)
        )

    def shares_in_words(self, workers: int) -> str:
        """Images of a worker and of the batch, in the run's order."""
        sizes = dict.fromkeys(stretch.config.batch_size for stretch in self.stretches)
        return ", then ".join(f"{ceil(size / workers)} of {size}" for size in sizes)


def find_course(trained: TrainConfig, machine: MachineType, workers: int) -> Course | None:
    """All segments that the run reaches, on `workers`; None if a worker's peak is unknown."""
    reached = stretches(trained)
    peaks = [peak for each in reached if (peak := worker_peak(each.config, machine)) is not None]
    if len(peaks) < len(reached):
        return None
    legs = [
        Leg((each.end - each.first) / reached[-1].end, get_step(each.config, workers, each.span), peak.tflops)
        for each, peak in zip(reached, peaks, strict=True)
    ]
    return Course(reached, peaks, legs)


def project(trained: TrainConfig, machine: MachineType, num_nodes: int) -> Throughput:
    """The band of the whole run on `num_nodes`, segment by segment; or the reason why it is unknown."""
    workers = num_nodes * machine.num_accelerators.value
    course = find_course(trained, machine, workers)
    if course is None:
        why = "workers compute on CPUs" if trained.backend == "gloo" else "its peak is not known"
        return Throughput(None, "unknown", f"no projection for {machine.name}: {why}")
    try:
        network = find_network(machine, num_nodes)
    except InputError as unknown:
        return Throughput(None, "unknown", f"{machine.name}: {unknown.problem}")
    parts = [(leg.share * work.share, work) for leg in course.legs for work in leg.step.work]
    flop = sum(share * work.flop for share, work in parts)
    operations = sum(share * work.operations for share, work in parts)
    peaks = dict.fromkeys(f"{each.tflops:g} TFLOP/s ({each.numbers}, {each.source})" for each in course.peaks)
    times = (image_time(course.legs, network, workers, assumed) for assumed in (_LEAST_WAITING, USUAL))
    least, usual = (1 - time.products_sec / time.whole_sec for time in times)
    return Throughput(
        rates(course.legs, network, workers),
        "projected",
        f"{flop / 1e9:.3g} GFLOP an image at {SLOW.utilisation:.0%} to {FAST.utilisation:.0%} of "
        f"{get_model(machine)}'s {', then '.join(peaks)}, {operations * FAST.launches:,.0f} to "
        f"{operations * SLOW.launches:,.0f} launches a step at "
        f"{FAST.launch_sec * 1e6:g} to {SLOW.launch_sec * 1e6:g} us each, {course.shares_in_words(workers)} images on "
        f"each of {workers} workers"
        f"{', gradients over the links of the catalogue' if network else ''}; calibrated by published GANs; data "
        "loading, checkpoints and metrics are left out",
        (least, usual),
    )
