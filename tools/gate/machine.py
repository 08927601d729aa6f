"""What a machine lets the gate try: its GPUs as this process and their driver tell of them."""

import ctypes.util
import platform
from dataclasses import dataclass
from typing import Literal

Kind = Literal["cuda", "cpu"]


@dataclass(frozen=True)
class Machine:
    """A machine, as the record of a gate has it.

    Attributes:
        kind: what is tried: its GPUs, or its CPU in their place.
        gpus: names of the CUDA devices; empty without any.
        capability: compute capability of the first, such as (9, 0).
        power: why GPUs' power cannot be read or set through NVML; empty where it can be asked for.
    """

    kind: Kind
    gpus: tuple[str, ...]
    capability: tuple[int, int]
    cpu: str
    cores: int
    torch: str
    cuda: str
    nccl: str
    power: str

    @property
    def workers(self) -> int:
        """Processes that can train at once, each on a device of its own; on a CPU two of a core each."""
        return len(self.gpus) if self.kind == "cuda" else min(2, self.cores)


def this_machine(kind: Kind) -> Machine:
    """Looks at this machine; imports torch."""
    import torch

    from gangway.trainer.core.host import usable_cores, versions

    gpus = tuple(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count()))
    nccl = torch.cuda.nccl.version() if gpus and torch.distributed.is_nccl_available() else ()  # type: ignore[no-untyped-call]  # torch's has no annotations
    return Machine(
        kind=kind,
        gpus=gpus,
        capability=torch.cuda.get_device_capability(0) if gpus else (0, 0),
        cpu=versions()["cpu"],
        cores=usable_cores(),
        torch=torch.__version__,
        cuda=torch.version.cuda or "",
        nccl=".".join(map(str, nccl)),
        power=_power_trouble(),
    )


def _power_trouble() -> str:
    if ctypes.util.find_library("nvidia-ml") is None and platform.system() == "Linux":
        return "no NVML here: the driver's libnvidia-ml is missing"
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:  # whatever a broken driver answers
        return f"NVML: {error}"
    return ""
