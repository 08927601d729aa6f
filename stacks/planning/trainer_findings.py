"""What the trainer would refuse on the nodes of a plan (`trainer.config.refusals`), told before anybody pays."""

from collections.abc import Iterable, Mapping

from components.catalog.schema import MachineType
from components.core.findings import Finding
from stacks.config.stack_config import StackConfig
from trainer.config.refusals import WITHOUT_BF16, Machine, refusals
from trainer.config.train_config import TrainConfig


def trained_on(config: StackConfig, machine: MachineType) -> TrainConfig:
    """What the nodes train: with PyTorch/XLA where the machine needs it, unless the settings name a backend."""
    effective = config.job.effective_config()
    if machine.backend == "xla" and "backend" not in config.job.settings:
        return effective.model_copy(update={"backend": "xla"})
    return effective


def trainer_findings(config: StackConfig, machine: MachineType) -> Iterable[Finding]:
    """An error for each reason why the trainer would not start; of machines that nothing trains on others speak."""
    if machine.backend not in ("nccl", "xla"):
        return
    # The fewest nodes have the most images each.
    for found in refusals(trained_on(config, machine), node_of(machine), config.cluster.nodes.min):
        yield Finding.error(
            f"trainer.{found.field.replace('_', '-')}",
            "gangway:job.settings",
            f"the trainer refuses {found.problem}; allowed: {found.allowed}",
            f"set {_written(found.changes)} in job.settings" if found.changes else f"change {found.field}",
        )


def node_of(machine: MachineType) -> Machine:
    """A node as the trainer's rules see it."""
    model = machine.accelerator.rpartition("x")[0].partition("-")[0]
    return Machine(
        "xla" if machine.backend == "xla" else "cuda",
        machine.accelerator,
        model not in WITHOUT_BF16,
        machine.num_accelerators.value,
        machine.memory_gib.value,
        machine.accelerator_memory_gib.value,
    )


def _written(changes: Mapping[str, object]) -> str:
    """As in a stack file."""
    values = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in changes.items()}
    return ", ".join(f"{name}: {word}" for name, word in values.items())
