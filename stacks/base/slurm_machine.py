"""A machine of the catalogue, or of a site, as a node of Slurm's."""

import re

from components.catalog.schema import MachineType
from images.slurm.spec import SlurmMachine


def slurm_machine(machine: MachineType, fabric: str | None) -> SlurmMachine:
    """`fabric`: by which the nodes of a rung reach each other, beside Ethernet; None for nothing."""
    gpus = machine.num_accelerators.value if machine.backend == "nccl" else 0
    model = re.sub(r"[^a-z0-9]", "_", machine.accelerator.rpartition("x")[0].lower())
    return SlurmMachine(
        cpus=machine.vcpus.value,
        memory_gib=machine.memory_gib.value,
        gpus=gpus,
        gpu_type=model if gpus else "",
        fabric=fabric,
    )
