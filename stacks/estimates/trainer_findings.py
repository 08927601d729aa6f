"""What the trainer would refuse on the nodes of a plan (`gangway.trainer.config.refusals`), also for segments. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from math import floor, log10

from gangway.components.catalog.schema import MachineType
from gangway.components.core.findings import Finding
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.throughput import get_model, get_train_config
from gangway.trainer.config.refusals import Machine, refusals
from gangway.trainer.config.segment_plan import Stretch, refused_workers, stretches, unreached
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
    """An error for each segment that the stack's nodes cannot train, and a warning if only one number of nodes can. The
    run would end at such a segment, on nodes that are paid for.
    """
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
    """A segment whose batch is too small for the workers; other findings report the run's own batch."""
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
