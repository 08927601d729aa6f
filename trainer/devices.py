"""What one worker's devices are and how busy they are, as far as torch can tell.

Not energy, which has meters of its own (`trainer.energy`).
"""

import resource
from typing import NamedTuple

import torch

from trainer.distributed import World
from trainer.energy import Gpu

__all__ = ["Load", "device_name", "gpu_of", "load"]

_GIB = 1 << 30


class Load(NamedTuple):
    """One worker's use of its machine.

    Attributes:
        rss_gib: peak resident set of this process.
        gpu_gib: peak of the GPU memory it allocated; None without a GPU.
        gpu_utilisation: share of the last second or so in which the GPU ran a kernel, 0..1; None where nobody can tell.
    """

    rss_gib: float
    gpu_gib: float | None
    gpu_utilisation: float | None


def load(world: World) -> Load:
    """This worker's load now."""
    # Kilobytes on Linux.
    rss_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / _GIB
    if world.device.type != "cuda":
        return Load(rss_gib, None, None)
    return Load(rss_gib, torch.cuda.max_memory_allocated(world.device) / _GIB, _gpu_utilisation(world.device))


def _gpu_utilisation(device: torch.device) -> float | None:
    try:
        return torch.cuda.utilization(device) / 100
    except Exception:  # NVML's own errors: parts of a GPU (MIG) and some virtual ones have no such counter
        return None


def gpu_of(world: World) -> Gpu | None:
    """This worker's GPU; None on a CPU."""
    if world.device.type != "cuda":
        return None
    properties = torch.cuda.get_device_properties(world.device)
    return Gpu(properties.name, f"GPU-{properties.uuid}", world.local_rank)


def device_name(world: World) -> str:
    """For the record: the GPU, XLA's device, or the CPU with its threads."""
    if world.on_xla:
        from trainer import xla

        return xla.device_name()
    gpu = gpu_of(world)
    return f"cpu, {torch.get_num_threads()} thread(s) a worker" if gpu is None else gpu.name
