"""How many images a second a job trains on its machines: as the stack file has measured it, else projected with a band
from the work of a step, the accelerator's peak, what a step waits for, and the links between workers. Pure.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any, Literal, NamedTuple

from components.catalog.schema import MachineType
from components.core.findings import InputError
from components.estimate.scaling import Network, StepModel, links_of, slices_of, step_sec
from components.gcp.tpu.slices import plan_slice, worker_tflops
from stacks.config.stack_config import StackConfig
from trainer.config.accelerators import peak_of
from trainer.config.network_size import discriminator_size, generator_size, stages, step_flop, step_operations
from trainer.config.train_config import TrainConfig

_FLOAT32 = 4
_GRAPH_SHARE = 0.2
"""Of an operation's launch, where it is replayed from a CUDA graph; assumed."""


class Assumed(NamedTuple):
    """What nobody knows before a run. `utilisation`: share of the accelerator's peak that a step's products reach;
    `launch_sec`: until the host has started one operation; `overlap`: share of the products' time during which
    gradients travel; `hidden`: whether the host starts operations while the device computes.
    """

    utilisation: float
    launch_sec: float
    overlap: float
    hidden: bool


SLOW, USUAL, FAST = (
    Assumed(0.02, 50e-6, 0.0, hidden=False),
    Assumed(0.08, 15e-6, 0.5, hidden=True),
    Assumed(0.3, 5e-6, 1.0, hidden=True),
)
"""Calibrated by published speeds of GANs on V100, A100 and L40, which are at 5 to 18 % of the peak (docs/costs.md). A
launch takes 4 to 6 us by https://susun-blog.com/blog/pegainfer-3-cuda-graph, and several times that with Python and
autograd, assumed.
"""
_LEAST_WAITING = Assumed(SLOW.utilisation, FAST.launch_sec, FAST.overlap, hidden=True)
"""No step of the band waits for a smaller share of its time."""


@dataclass(frozen=True)
class Band:
    """A figure and how far off it may be; `low` is the smallest."""

    low: float
    mid: float
    high: float

    def over(self, number: float) -> "Band":
        """`number` divided by it, so that low becomes high."""
        return Band(number / self.high, number / self.mid, number / self.low)

    def map(self, function: Callable[[float], float]) -> "Band":
        """`function`, which does not fall, of each."""
        return Band(function(self.low), function(self.mid), function(self.high))


def about(number: float) -> str:
    """To two digits: a projection knows no more.

    >>> about(25473), about(6.04)
    ('25,000', '6')
    """
    return f"{float(f'{number:.2g}'):,.{0 if number >= 10 else 1}f}".removesuffix(".0")


@dataclass(frozen=True)
class Throughput:
    """Of training alone, on all nodes that the stack may have.

    Attributes:
        images_per_second: of the whole job; None where nobody can tell.
        provenance: measured by the stack file, projected, or unknown.
        source: what it rests on, or why it is not known.
        waiting: shares of a step's time in which no product is computed: at least, and as usual; None likewise.
    """

    images_per_second: Band | None
    provenance: Literal["measured", "projected", "unknown"]
    source: str
    waiting: tuple[float, float] | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)


class WorkerPeak(NamedTuple):
    """Of what one worker drives: TFLOP/s, in which numbers, by whom."""

    tflops: float
    numbers: str
    source: str


def trained_on(config: StackConfig, machine: MachineType) -> TrainConfig:
    """What the nodes train: with PyTorch/XLA where the machine needs it, unless the settings name a backend."""
    effective = config.training.effective_config()
    if machine.backend == "xla" and "backend" not in config.training.settings:
        return effective.model_copy(update={"backend": "xla"})
    return effective


def model_of(machine: MachineType) -> str:
    """`A100-80G` of `A100-80Gx8`; a TPU slice's generation."""
    if machine.backend == "xla":
        return plan_slice(accelerator_type=machine.accelerator).generation
    return machine.accelerator.rpartition("x")[0]


def worker_peak(trained: TrainConfig, machine: MachineType) -> WorkerPeak | None:
    """The peak that this training could reach; None where nobody says, or a worker computes on its processor."""
    if trained.backend == "gloo":
        return None
    if machine.backend == "xla":
        peak = worker_tflops(plan_slice(accelerator_type=machine.accelerator))
        # XLA multiplies float32 in bfloat16 too, unless it is told otherwise.
        return None if peak.value is None else WorkerPeak(peak.value, "bf16", peak.source)
    if machine.backend != "nccl":
        return None
    numbers = "tf32" if trained.precision == "fp32" and trained.tf32 else trained.precision
    for each in (numbers, trained.precision):
        if found := peak_of(model_of(machine), each):
            return WorkerPeak(found.tflops, each, "the vendor's data sheet")
    return None


def throughput(config: StackConfig, machine: MachineType) -> Throughput:
    """Measured, else projected."""
    if config.own_command is not None:
        return Throughput(None, "unknown", "a command of your own: nothing here knows how fast it is")
    if config.job is None:
        return Throughput(None, "unknown", "a cluster with a queue: nothing is known of the jobs that will come")
    measured = config.estimate.images_per_second
    if measured is not None:
        source = "gangway:estimate.images_per_second"
        return Throughput(Band(measured, measured, measured), "measured", source)
    trained, num_nodes = trained_on(config, machine), config.cluster.nodes.max
    peak = worker_peak(trained, machine)
    if peak is None:
        why = "a worker computes on its processor" if trained.backend == "gloo" else "its peak is in no table here"
        return Throughput(None, "unknown", f"nothing to project from on {machine.name}: {why}")
    try:
        network = _network(machine, num_nodes)
    except InputError as unknown:
        return Throughput(None, "unknown", f"{machine.name}: {unknown.problem}")
    return project(trained, model_of(machine), peak, network, num_nodes * machine.num_accelerators.value)


def _network(machine: MachineType, num_nodes: int) -> Network | None:
    """None where one worker is alone."""
    workers = machine.num_accelerators.value
    if num_nodes * workers == 1:
        return None
    if machine.backend != "xla":
        return links_of(machine)
    plan = plan_slice(accelerator_type=machine.accelerator)
    return slices_of(plan.generation, plan.topology, workers, num_nodes)


class Work(NamedTuple):
    """Of a step while networks have one size. `share`: of the run's images shown at it; `flop`: for each real image;
    `operations`: that the host starts for one micro-batch; `gradient_bytes`: that all workers average.
    """

    share: float
    flop: float
    operations: float
    gradient_bytes: float


class Step(NamedTuple):
    """What a step is made of, whatever runs it.

    Attributes:
        work: at each size of the networks.
        images: real images, over all workers.
        largest: the same of the worker that has most: the others wait for it.
        starts: how often its operations are started, for micro-batches; less where they are replayed.
    """

    work: tuple[Work, ...]
    images: int
    largest: int
    starts: float


def step_of(trained: TrainConfig, workers: int) -> Step:
    """Of a configuration on so many workers."""
    share = ceil(trained.batch_size / workers)
    work = tuple(
        Work(stage.share, step_flop(stage.config), step_operations(stage.config), _gradient_bytes(stage.config))
        for stage in stages(trained)
    )
    starts = ceil(share / (trained.batch_gpu or share)) * (_GRAPH_SHARE if trained.cuda_graphs else 1)
    return Step(work, trained.step_images, share * trained.d_steps, starts)


def _gradient_bytes(config: TrainConfig) -> float:
    return _FLOAT32 * (generator_size(config).parameters + config.d_steps * discriminator_size(config).parameters)


class StepTime(NamedTuple):
    """Seconds of a step, on the mean over the run. `products_sec`: of the products alone; `whole_sec`: of all of it."""

    products_sec: float
    whole_sec: float


def step_time(step: Step, tflops: float, network: Network | None, workers: int, assumed: Assumed) -> StepTime:
    """By what is assumed. `tflops`: the peak of what one worker drives; `network`: None for one worker."""
    products = whole = 0.0
    for work in step.work:
        products_sec = step.largest * work.flop / (tflops * 1e12 * assumed.utilisation)
        starts_sec = step.starts * work.operations * assumed.launch_sec
        busy_sec = max(products_sec, starts_sec) if assumed.hidden else products_sec + starts_sec
        model = StepModel(busy_sec, work.gradient_bytes, overlap=assumed.overlap)
        products += work.share * products_sec
        whole += work.share * (busy_sec if network is None else step_sec(model, network, workers, "weak"))
    return StepTime(products, whole)


def rates(step: Step, tflops: float, network: Network | None, workers: int) -> Band:
    """Images a second."""
    times = (step_time(step, tflops, network, workers, assumed) for assumed in (SLOW, USUAL, FAST))
    return Band(*(step.images / time.whole_sec for time in times))


def project(trained: TrainConfig, model: str, peak: WorkerPeak, network: Network | None, workers: int) -> Throughput:
    """The band of so many workers. `model`: of their accelerators; `network`: None for one worker."""
    step = step_of(trained, workers)
    flop = sum(work.share * work.flop for work in step.work)
    operations = sum(work.share * work.operations for work in step.work)
    times = (step_time(step, peak.tflops, network, workers, assumed) for assumed in (_LEAST_WAITING, USUAL))
    least, usual = (1 - time.products_sec / time.whole_sec for time in times)
    return Throughput(
        rates(step, peak.tflops, network, workers),
        "projected",
        f"{flop / 1e9:.3g} GFLOP an image at {SLOW.utilisation:.0%} to {FAST.utilisation:.0%} of {model}'s "
        f"{peak.tflops:g} TFLOP/s ({peak.numbers}, {peak.source}), about {operations:,.0f} operations a step at "
        f"{FAST.launch_sec * 1e6:g} to {SLOW.launch_sec * 1e6:g} us each, {step.largest // trained.d_steps} of "
        f"{trained.batch_size} images on each of {workers} workers"
        f"{', gradients over the links of the catalogue' if network else ''}; calibrated by published GANs; data "
        "loading, checkpoints and metrics are left out",
        (least, usual),
    )
