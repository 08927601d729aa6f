"""A machine as a Slurm node."""

import re

from gangway.components.catalog.schema import MachineType
from gangway.images.slurm.conf import SlurmMachine


def slurm_machine(machine: MachineType, fabric: str | None) -> SlurmMachine:
    """A machine of the catalogue or a site for Slurm. `fabric`: network between nodes besides Ethernet, if any."""
    gpus = machine.num_accelerators.value if machine.backend == "nccl" else 0
    model = re.sub(r"[^a-z0-9]", "_", machine.accelerator.rpartition("x")[0].lower())
    return SlurmMachine(
        cpus=machine.vcpus.value,
        memory_gib=machine.memory_gib.value,
        gpus=gpus,
        gpu_type=model if gpus else "",
        fabric=fabric,
    )
