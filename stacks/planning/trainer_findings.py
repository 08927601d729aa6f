"""What the trainer would refuse on the nodes of a plan (`trainer.config.refusals`), and what it cannot do in the time
that it has, told before anybody pays.
"""

from collections.abc import Iterable, Mapping
from math import ceil, floor, log10

from components.catalog.schema import MachineType
from components.core.findings import Finding
from stacks.config.stack_config import StackConfig
from trainer.config.accelerators import WITHOUT_BF16, peak_of
from trainer.config.network_size import least_flop
from trainer.config.refusals import Machine, refusals
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


def length_findings(config: StackConfig, machine: MachineType) -> Iterable[Finding]:
    """Whether the run can end within max_hours: by the speed that the stack file has measured, else by the least work
    of its images at the full peak of all accelerators, which no run reaches.
    """
    job, measured = config.job, config.estimate.images_per_second
    if measured is not None:
        hours = job.kimg * 1000 / measured / 3600
        if hours > job.max_hours:
            yield Finding.warning(
                "run.longer-than-max-hours",
                "gangway:job.max_hours",
                f"{job.kimg:g} kimg take {hours:,.1f} h at the {measured:,.0f} images/s of gangway:estimate, and "
                f"max_hours ends the run after {job.max_hours:g} h, with {job.max_hours / hours:.0%} of the images",
                _length(job.kimg * job.max_hours / hours, hours),
            )
        return
    trained = trained_on(config, machine)
    flop, workers = least_flop(trained), config.cluster.nodes.max * machine.num_accelerators.value
    numbers = "tf32" if trained.precision == "fp32" and trained.tf32 else trained.precision
    model = _model(machine)
    peak = peak_of(model, numbers) or peak_of(model, trained.precision)
    if flop is None or peak is None or machine.backend != "nccl" or trained.backend == "gloo":
        return
    hours = job.kimg * 1000 * flop / (peak.tflops * 1e12 * workers) / 3600
    if hours > job.max_hours:
        yield Finding.error(
            "run.cannot-finish",
            "gangway:job.kimg",
            f"{job.kimg:g} kimg take {hours:,.1f} h at least, on {workers} x {model} at their peak all the time "
            f"({peak.tflops:g} TFLOP/s {numbers}, the vendor's data sheet; {flop / 1e9:,.3g} GFLOP an image, penalties "
            f"left out), and max_hours ends the run after {job.max_hours:g} h; real runs take several times as long",
            _length(job.kimg * job.max_hours / hours, hours),
        )


def _length(kimg: float, hours: float) -> str:
    return f"set kimg: {rounded_down(kimg):g} at most, or max_hours: {ceil(hours)} at least"


def rounded_down(value: float) -> float:
    """To two digits, down: nobody writes 1327.4 for 1300.

    >>> rounded_down(1327.4), rounded_down(0.0672)
    (1300.0, 0.067)
    """
    step = 10.0 ** (floor(log10(value)) - 1)
    return float(f"{floor(value / step) * step:.6g}")


def node_of(machine: MachineType) -> Machine:
    """A node as the trainer's rules see it."""
    return Machine(
        "xla" if machine.backend == "xla" else "cuda",
        machine.accelerator,
        _model(machine).partition("-")[0] not in WITHOUT_BF16,
        machine.num_accelerators.value,
        machine.memory_gib.value,
        machine.accelerator_memory_gib.value,
    )


def _model(machine: MachineType) -> str:
    """`A100-80G` of `A100-80Gx8`."""
    return machine.accelerator.rpartition("x")[0]


def _written(changes: Mapping[str, object]) -> str:
    """As in a stack file."""
    values = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in changes.items()}
    return ", ".join(f"{name}: {word}" for name, word in values.items())
