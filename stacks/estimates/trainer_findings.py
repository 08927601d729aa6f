"""What the trainer would refuse on the nodes of a plan (`gangway.trainer.config.refusals`), also for segments. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, log10

from gangway.components.catalog.schema import MachineType
from gangway.components.core.findings import Finding
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.throughput import about, get_model, get_train_config
from gangway.trainer.config.refusals import Machine, refusals
from gangway.trainer.config.segment_plan import Stretch, refused_workers, stretches, unreached
from gangway.trainer.config.step_memory import estimate, fitting_batch_gpu, images_at_once, least_gib
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.accelerators import WITHOUT_BF16

_PATH = "gangway:job.settings"


def trainer_findings(config: StackConfig, machine: MachineType) -> Iterable[Finding]:
    """An error for each reason why the trainer would not start; other findings report unsuitable machines."""
    if machine.backend not in ("nccl", "xla"):
        return
    # The fewest nodes have the most images each.
    for found in refusals(get_train_config(config, machine), node_of(machine), config.cluster.nodes.min):
        yield Finding.error(
            f"trainer.{found.field.replace('_', '-')}",
            _PATH,
            f"the trainer refuses {found.problem}; allowed: {found.allowed}",
            f"set {_to_settings(found.changes)}" if found.changes else f"change {found.field}",
        )
    yield from _segments(config, machine)


def round_down(value: float) -> float:
    """Rounds down to two digits.

    >>> round_down(1327.4), round_down(0.0672)
    (1300.0, 0.067)
    """
    if value == 0:
        return 0.0
    step = 10.0 ** (floor(log10(value)) - 1)
    return float(f"{floor(value / step) * step:.6g}")


def node_of(machine: MachineType) -> Machine:
    """A node for the trainer's rules."""
    return Machine(
        "xla" if machine.backend == "xla" else "cuda",
        machine.accelerator,
        get_model(machine).partition("-")[0] not in WITHOUT_BF16,
        machine.num_accelerators.value,
        machine.memory_gib.value,
        machine.accelerator_memory_gib.value,
    )


def _to_settings(changes: Mapping[str, object]) -> str:
    values = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in changes.items()}
    return " and ".join(f"gangway:job.settings.{name}: {word}" for name, word in values.items())


def _segments(config: StackConfig, machine: MachineType) -> Iterable[Finding]:
    per_node, nodes = machine.num_accelerators.value, config.cluster.nodes
    runs = [number * per_node for number in range(nodes.min, nodes.max + 1)]
    trained, before = get_train_config(config, machine), None
    for sentence in unreached(trained):
        fix = "a larger kimg of the job, or a smaller from_image"
        yield Finding.warning("trainer.segments", _PATH, sentence, fix)
    for stretch in stretches(trained):
        if stretch.workers is None:
            yield from _small_batch(stretch, runs, equal_shares=machine.backend == "xla")
        elif stretch.workers not in runs:
            if stretch.workers != before:  # otherwise reported for the previous segment
                yield _unavailable_workers(stretch, runs, per_node)
        else:
            yield from _small_batch(stretch, [stretch.workers], equal_shares=machine.backend == "xla")
            if len(runs) > 1 and stretch.workers != before:
                yield _single_node_count(stretch, runs, per_node)
        before = stretch.workers


def _unavailable_workers(stretch: Stretch, runs: Sequence[int], per_node: int) -> Finding:
    least, most = runs[0], runs[-1]
    has = f"{least}" if least == most else f"{least} to {most}"
    allowed = has if least == most else f"a multiple of {per_node} from {least} to {most}"
    asked = stretch.workers or 0
    near = min(runs, key=lambda each: abs(each - asked))
    return Finding.error(
        "trainer.segments",
        _PATH,
        f"the trainer refuses {stretch.place}.workers {asked}: the stack's nodes run {has} workers, so the run would "
        f"end at image {stretch.first:,}; allowed: {allowed}, or 0 for any number",
        f'"workers": {near} or 0 in {stretch.place} of job.settings',
    )


def _single_node_count(stretch: Stretch, runs: Sequence[int], per_node: int) -> Finding:
    number = (stretch.workers or 0) // per_node
    return Finding.warning(
        "trainer.segments",
        _PATH,
        f"{stretch.place}.workers {stretch.workers}: the stack's nodes may run {runs[0]} to {runs[-1]} workers, but "
        f"from image {stretch.first:,} on, the trainer refuses any other number",
        f"set gangway:cluster.nodes: {{min: {number}, max: {number}}}, "
        f'or "workers": 0 in {stretch.place} of job.settings',
    )


def _small_batch(stretch: Stretch, runs: Sequence[int], *, equal_shares: bool) -> Iterable[Finding]:
    if not stretch.place:
        return
    size, group = stretch.config.batch_size, stretch.config.group
    for workers in runs:
        error = refused_workers(stretch.config, workers, equal_shares=equal_shares)
        if error is not None:
            enough = -(-size // (workers * group)) * workers * group
            yield Finding.error(
                "trainer.segments",
                _PATH,
                f"the trainer refuses {stretch.place}, whose batch_size is {size}: {error.problem}; "
                f"allowed: {error.allowed.partition(';')[0]}",
                f'"batch_size": {enough} in {stretch.place} of job.settings, or run other nodes',
            )
            return


_NOTEWORTHY = 0.1  # share of an accelerator's memory
_SOURCE = (
    "tensors at a step's peak, estimated by the networks' sizes (trainer/config/step_memory.py); within 15 % of what "
    "torch traces, without libraries' work space"
)


@dataclass(frozen=True)
class WorkerMemory:
    """GiB on one accelerator at the peak of a step. `least`: the minimum, below which the trainer refuses to start."""

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
