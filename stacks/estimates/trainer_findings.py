"""What the trainer would refuse on the nodes of a plan (`trainer.config.refusals`), told before anybody pays."""

from collections.abc import Iterable, Mapping
from math import floor, log10

from components.catalog.schema import MachineType
from components.core.findings import Finding
from stacks.config.stack_config import StackConfig
from stacks.estimates.planned_workers import segment_findings
from stacks.estimates.throughput import get_model, get_train_config
from trainer.config.refusals import Machine, refusals
from trainer.config.values.accelerators import WITHOUT_BF16


def trainer_findings(config: StackConfig, machine: MachineType) -> Iterable[Finding]:
    """An error for each reason why the trainer would not start; of machines that nothing trains on others speak."""
    if machine.backend not in ("nccl", "xla"):
        return
    # The fewest nodes have the most images each.
    for found in refusals(get_train_config(config, machine), node_of(machine), config.cluster.nodes.min):
        yield Finding.error(
            f"trainer.{found.field.replace('_', '-')}",
            "gangway:job.settings",
            f"the trainer refuses {found.problem}; allowed: {found.allowed}",
            f"set {_written(found.changes)}" if found.changes else f"change {found.field}",
        )
    yield from segment_findings(config, machine)


def round_down(value: float) -> float:
    """To two digits, down: nobody writes 1327.4 for 1300.

    >>> round_down(1327.4), round_down(0.0672)
    (1300.0, 0.067)
    """
    if value == 0:
        return 0.0
    step = 10.0 ** (floor(log10(value)) - 1)
    return float(f"{floor(value / step) * step:.6g}")


def node_of(machine: MachineType) -> Machine:
    """A node as the trainer's rules see it."""
    return Machine(
        "xla" if machine.backend == "xla" else "cuda",
        machine.accelerator,
        get_model(machine).partition("-")[0] not in WITHOUT_BF16,
        machine.num_accelerators.value,
        machine.memory_gib.value,
        machine.accelerator_memory_gib.value,
    )


def _written(changes: Mapping[str, object]) -> str:
    """As in a stack file."""
    values = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in changes.items()}
    return " and ".join(f"gangway:job.settings.{name}: {word}" for name, word in values.items())
