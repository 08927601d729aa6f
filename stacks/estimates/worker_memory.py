"""What a step is expected to take of an accelerator's memory, before anybody pays; a warning where that is more than
there is. What cannot be at all is an error of the trainer's own (stacks.estimates.trainer_findings). Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from components.catalog.schema import MachineType
from components.core.findings import Finding
from stacks.config.stack_config import StackConfig
from stacks.estimates.throughput import about, get_model, get_train_config
from trainer.config.segment_plan import stretches
from trainer.config.step_memory import estimate, fitting_batch_gpu, images_at_once, least_gib
from trainer.config.train_config import TrainConfig

_NOTEWORTHY = 0.1
"""Of an accelerator's memory."""
_SOURCE = (
    "tensors at a step's peak, estimated by the networks' sizes (trainer/config/step_memory.py); within 15 % of what "
    "torch traces, without libraries' work space"
)


@dataclass(frozen=True)
class WorkerMemory:
    """GiB on one accelerator at the peak of a step, of the worker with most images.

    Attributes:
        total: of all the parts that follow.
        least: what a step cannot do without, which the trainer refuses by.
        has: what the accelerator has; None where nobody says.
        images: at once, of the worker's share.
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
        """Whether there is less than the step takes, though not surely too little."""
        return self.has is not None and self.least <= self.has < self.total

    @property
    def is_worth_a_word(self) -> bool:
        """Whether it is a noteworthy share of what there is."""
        return self.has is None or self.total > _NOTEWORTHY * self.has

    def in_words(self) -> str:
        """All of it, and its parts."""
        of = "" if self.has is None else f" of {self.has:g}"
        weights, kept = _rounded(self.total - self.activations), _rounded(self.activations)
        return f"{_rounded(self.total)}{of} GiB ({weights} weights and what goes with them, {kept} activations)"


def _rounded(gib: float) -> str:
    return about(gib) if gib >= 1 else f"{gib:.1g}"


def memory_on(config: TrainConfig, machine: MachineType, num_nodes: int = 1) -> WorkerMemory | None:
    """Of this training on so many nodes; None where no GPU computes: XLA's compiler decides what its devices hold."""
    if machine.backend != "nccl" or config.backend in ("gloo", "xla"):
        return None
    workers = machine.num_accelerators.value
    parts = estimate(config, workers, num_nodes)
    images, least = images_at_once(config, workers * num_nodes), least_gib(config, workers, num_nodes)
    return WorkerMemory(parts.total, *parts, least, machine.accelerator_memory_gib.value, images)


def worker_memory(config: StackConfig, machine: MachineType) -> WorkerMemory | None:
    """Of a stack's job, on the fewest nodes, whose workers have most images each; None as `memory_on`."""
    return memory_on(get_train_config(config, machine), machine, config.cluster.nodes.min)


def memory_findings(config: StackConfig, machine: MachineType) -> Iterable[Finding]:
    """A warning where the estimate is more than there is; nothing where the trainer itself refuses."""
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
        "accelerators with more memory, or smaller networks"
        if size is None or len(stretches(trained)) > 1
        else f"set gangway:job.settings.batch_gpu: {size}, or take accelerators with more memory",
    )
