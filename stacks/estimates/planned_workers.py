"""Workers that a run's segments are planned for, beside those that a stack's nodes run: a run that comes to a segment
for others ends there, on nodes that are paid for. Pure.
"""

from collections.abc import Iterable, Sequence

from components.catalog.schema import MachineType
from components.core.findings import Finding
from stacks.config.stack_config import StackConfig
from stacks.estimates.throughput import get_train_config
from trainer.config.segment_plan import Stretch, refused_workers, stretches, unreached

_PATH = "gangway:job.settings"


def segment_findings(config: StackConfig, machine: MachineType) -> Iterable[Finding]:
    """An error for each segment that no number of nodes of the stack can train, and a warning where one number alone
    can; of a run without segments other findings speak.
    """
    per_node, nodes = machine.num_accelerators.value, config.cluster.nodes
    runs = [number * per_node for number in range(nodes.min, nodes.max + 1)]
    trained, before = get_train_config(config, machine), None
    for sentence in unreached(trained):
        fix = "a larger kimg of the job, or a smaller from_image"
        yield Finding.warning("trainer.segments", _PATH, sentence, fix)
    for stretch in stretches(trained):
        if stretch.workers is None:
            yield from _unserved(stretch, runs, equal_shares=machine.backend == "xla")
        elif stretch.workers not in runs:
            if stretch.workers != before:  # it stays as in the one before, which was told
                yield _of_others(stretch, runs, per_node)
        else:
            yield from _unserved(stretch, [stretch.workers], equal_shares=machine.backend == "xla")
            if len(runs) > 1 and stretch.workers != before:
                yield _of_one_number(stretch, runs, per_node)
        before = stretch.workers


def _of_others(stretch: Stretch, runs: Sequence[int], per_node: int) -> Finding:
    least, most = runs[0], runs[-1]
    has = f"{least}" if least == most else f"{least} to {most}"
    allowed = has if least == most else f"a multiple of {per_node} from {least} to {most}"
    asked = stretch.workers or 0
    near = min(runs, key=lambda each: abs(each - asked))
    return Finding.error(
        "trainer.segments",
        _PATH,
        f"the trainer refuses {stretch.place}.workers {asked}: the stack's nodes run {has} workers, and the run would "
        f"end at image {stretch.first:,}; allowed: {allowed}, or 0 for any number",
        f'"workers": {near} or 0 in {stretch.place} of job.settings',
    )


def _of_one_number(stretch: Stretch, runs: Sequence[int], per_node: int) -> Finding:
    number = (stretch.workers or 0) // per_node
    return Finding.warning(
        "trainer.segments",
        _PATH,
        f"{stretch.place}.workers {stretch.workers}: the stack's nodes may run {runs[0]} to {runs[-1]} workers, and "
        f"from image {stretch.first:,} on the trainer refuses any other number",
        f"set gangway:cluster.nodes: {{min: {number}, max: {number}}}, "
        f'or "workers": 0 in {stretch.place} of job.settings',
    )


def _unserved(stretch: Stretch, runs: Sequence[int], *, equal_shares: bool) -> Iterable[Finding]:
    """A segment whose batch is too small for the workers; where the run's own is, others speak of it."""
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
