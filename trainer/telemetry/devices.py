"""One worker's devices and their load. Energy: `gangway.trainer.power.energy`."""

import contextlib
import os
import resource
import time
from pathlib import Path
from typing import NamedTuple

import torch

from gangway.trainer.core.host import WAIT_POLICY, memory_of_groups, usable_cores
from gangway.trainer.distributed.world import World
from gangway.trainer.power.energy import Gpu

_GIB = 1 << 30
_TASKS = Path("/proc/self/task")
_STAT = Path("/proc/stat")
_IO = Path("/proc/self/io")
_IDLE = (3, 4)
"""Columns of /proc/stat in which a processor does nothing, or waits for a disk (proc_stat(5)); the last two of ten are
counted in the first two already. Stolen time is a neighbour's, outside this virtual machine."""
_COUNTED = 8


class Load(NamedTuple):
    """One worker's use of its machine."""

    rss_gib: float  # peak resident set of this process
    gpu_gib: float | None  # peak of the GPU memory it allocated since the load before; None without a GPU
    # share of the last second or so in which the GPU ran a kernel, 0..1; None where nobody can tell
    gpu_utilisation: float | None
    cpu_sec: float  # CPU time of this process so far, all its threads
    cores: int  # that its node's workers may use, by quota too; 0 on all but one of them, so that they add up
    host_memory_gib: float  # in use on its node, by all processes; likewise
    # for how long its threads were ready so far and had no core; None where the kernel does not count
    cpu_wait_sec: float | None = None
    node: int = 0  # rank of its node
    # for how long the processors that the node's workers may run on were busy so far, for whomever, and how long they
    # were there; None of all but one worker of the node, and where the kernel does not count
    host_sec: tuple[float, float] | None = None
    # in use, of what there is on its node or, if that is fuller, of what its container or job may have; None of all but
    # one worker of the node
    host_memory_share: float | None = None
    gpu_memory_share: float | None = None  # peak of what it allocated of its GPU's memory; None without a GPU
    read_bytes: int | None = None  # that it has read from disks so far; None where nobody can tell


def load(world: World) -> Load:
    """Measures this worker's load; resets a GPU's peak of memory, so that each line has its own."""
    # Kilobytes on Linux.
    rss_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / _GIB
    own = Load(rss_gib, None, None, time.process_time(), 0, 0.0, _cpu_wait_sec(), world.node_rank)
    own = own._replace(read_bytes=_read_bytes())
    if world.local_rank == 0:
        total, available = _meminfo_gib()
        host_share = max([1 - available / total, *(group.used / group.limit for group in memory_of_groups())])
        own = own._replace(cores=usable_cores(), host_sec=_host_sec())
        own = own._replace(host_memory_gib=total - available, host_memory_share=host_share)
    if world.device.type != "cuda":
        return own
    gpu_gib, all_gib = torch.cuda.max_memory_allocated(world.device) / _GIB, device_memory_gib(world.device)
    torch.cuda.reset_peak_memory_stats(world.device)
    share = gpu_gib / all_gib if all_gib else None
    try:
        utilisation = torch.cuda.utilization(world.device) / 100
    except Exception:  # NVML's own errors: parts of a GPU (MIG) and some virtual ones have no such counter
        utilisation = None
    return own._replace(gpu_gib=gpu_gib, gpu_utilisation=utilisation, gpu_memory_share=share)


def _cpu_wait_sec() -> float | None:
    """Sums the waits of all current threads; schedstat has time on a core, wait for one (both ns), and slices."""
    waits: list[int] = []
    for task in _TASKS.glob("*/schedstat"):
        with contextlib.suppress(OSError):  # a thread that has just ended
            waits.append(int(task.read_text().split()[1]))
    return sum(waits) / 1e9 if waits else None


def _host_sec() -> tuple[float, float] | None:
    ours = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    try:
        rows = [row.split() for row in _STAT.read_text("ascii").splitlines()]
        each = [[int(column) for column in row[1 : _COUNTED + 1]] for row in rows if row and row[0] in ours]
    except (OSError, ValueError):
        return None
    if not each or min(map(len, each)) <= max(_IDLE):
        return None
    ticks = [sum(column) for column in zip(*each, strict=True)]
    hertz = os.sysconf("SC_CLK_TCK")
    return (sum(ticks) - sum(ticks[column] for column in _IDLE)) / hertz, sum(ticks) / hertz


def _read_bytes() -> int | None:
    try:
        rows = dict(line.split(": ") for line in _IO.read_text("ascii").splitlines())
        return int(rows["read_bytes"])
    except (OSError, ValueError, KeyError):
        return None


def device_memory_gib(device: torch.device) -> float | None:
    """Returns a GPU's or TPU's whole memory; None for other devices, or where unknown."""
    if device.type == "xla":
        from gangway.trainer.distributed import xla

        limit = xla.memory_bytes(device)
        return None if limit is None else limit / _GIB
    return torch.cuda.get_device_properties(device).total_memory / _GIB if device.type == "cuda" else None


def free_host_memory_gib() -> float:
    """Returns the memory that new processes may have without swapping, within this one's control groups."""
    _, available = _meminfo_gib()
    return min([available, *(max(0, group.limit - group.used) / _GIB for group in memory_of_groups())])


def _meminfo_gib() -> tuple[float, float]:
    rows = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    total, available = (int(rows[name].split()[0]) * 1024 / _GIB for name in ("MemTotal", "MemAvailable"))
    return total, available


def find_gpu(world: World) -> Gpu | None:
    """Returns this worker's GPU; None on a CPU."""
    if world.device.type != "cuda":
        return None
    properties = torch.cuda.get_device_properties(world.device)
    return Gpu(properties.name, f"GPU-{properties.uuid}", world.local_rank)


def device_name(world: World) -> str:
    """Returns the GPU, XLA's device, or the CPU with its threads and wait policy, for the record."""
    if world.on_xla:
        from gangway.trainer.distributed import xla

        return xla.device_name()
    if (gpu := find_gpu(world)) is not None:
        return gpu.name
    threads, policy = torch.get_num_threads(), os.environ.get(WAIT_POLICY)
    return f"cpu, {threads} thread(s) a worker{f', {WAIT_POLICY}={policy}' if threads > 1 and policy else ''}"
