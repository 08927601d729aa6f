"""Estimates the accelerator memory of a step; a warning if it exceeds the accelerator's. The trainer's own limit is an
error (gangway.stacks.estimates.trainer_findings). Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gangway.components.catalog.schema import MachineType
from gangway.components.core.findings import Finding
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.throughput import about, get_model, get_train_config
from gangway.trainer.config.segment_plan import stretches
from gangway.trainer.config.step_memory import estimate, fitting_batch_gpu, images_at_once, least_gib
from gangway.trainer.config.train_config import TrainConfig

_NOTEWORTHY = 0.1
"""Share of an accelerator's memory."""
_SOURCE = (
    "tensors at a step's peak, estimated by the networks' sizes (trainer/config/step_memory.py); within 15 % of what "
    "torch traces, without libraries' work space"
)


@dataclass(frozen=True)
class WorkerMemory:
    """GiB on one accelerator at the peak of a step, of the worker with most images.

    Attributes:
        total: sum of the following parts.
        least: the minimum of a step, below which the trainer refuses to start.
        has: the accelerator's memory; None if unknown.
        images: images at once.
    """

    total: float
    parameters: float
    average: float
    moments: float
    gradients: float
    activations: float
    least: float
    has: float | None
    images: int
    provenance: str = "estimated"
    source: str = _SOURCE

    @property
    def is_short(self) -> bool:
        """Whether the estimate exceeds the memory, although the minimum fits."""
        return self.has is not None and self.least <= self.has < self.total

    @property
    def is_noteworthy(self) -> bool:
        """Whether the step takes a noteworthy share of the memory."""
        return self.has is None or self.total > _NOTEWORTHY * self.has

    def in_words(self) -> str:
        """The total and its parts, for messages."""
        of = "" if self.has is None else f" of {self.has:g}"
        weights, kept = _rounded(self.total - self.activations), _rounded(self.activations)
        return f"{_rounded(self.total)}{of} GiB ({weights} weights, gradients and moments, {kept} activations)"


def _rounded(gib: float) -> str:
    return about(gib) if gib >= 1 else f"{gib:.1g}"


def memory_on(config: TrainConfig, machine: MachineType, num_nodes: int = 1) -> WorkerMemory | None:
    """Memory of this training on `num_nodes`; None without GPUs, since XLA's compiler decides what its devices hold."""
    if machine.backend != "nccl" or config.backend in ("gloo", "xla"):
        return None
    workers = machine.num_accelerators.value
    parts = estimate(config, workers, num_nodes)
    images, least = images_at_once(config, workers * num_nodes), least_gib(config, workers, num_nodes)
    return WorkerMemory(parts.total, *parts, least, machine.accelerator_memory_gib.value, images)


def worker_memory(config: StackConfig, machine: MachineType) -> WorkerMemory | None:
    """Memory of a stack's job on the fewest nodes, with most images per worker; None as in `memory_on`."""
    return memory_on(get_train_config(config, machine), machine, config.cluster.nodes.min)


def memory_findings(config: StackConfig, machine: MachineType) -> Iterable[Finding]:
    """A warning if the estimate exceeds the memory; nothing if the trainer refuses to start."""
    found = worker_memory(config, machine)
    if found is None or not found.is_short or found.has is None:
        return
    trained, workers = get_train_config(config, machine), machine.num_accelerators.value
    size = fitting_batch_gpu(trained, found.has, workers, config.cluster.nodes.min)
    yield Finding.warning(
        "memory.estimate",
        "gangway:job.settings",
        f"a step on {found.images} image{'s' if found.images > 1 else ''} at once is estimated to take "
        f"{found.in_words()} of each {get_model(machine)}, without libraries' work space; at least "
        f"{_rounded(found.least)} GiB",
        "use accelerators with more memory, or smaller networks"
        if size is None or len(stretches(trained)) > 1
        else f"set gangway:job.settings.batch_gpu: {size}, or use accelerators with more memory",
    )
