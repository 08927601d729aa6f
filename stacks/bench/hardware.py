"""What this machine is, for the records of runs on it: processor, cores, memory, GPUs. Measures nothing."""

import os
import platform
from pathlib import Path
from typing import Any

__all__ = ["Hardware", "describe", "hardware"]

_CPUINFO = Path("/proc/cpuinfo")


class Hardware(dict[str, Any]):
    """Plain JSON data: `cpu`, `cores`, `memory_gib`, `gpus`, `system`."""


def hardware(cpuinfo: Path = _CPUINFO) -> Hardware:
    """This machine."""
    return Hardware(
        cpu=_cpu(cpuinfo),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        gpus=_gpus(),
        system=f"{platform.system()} {platform.machine()}",
    )


def describe(machine: Hardware) -> str:
    """In one line, as a record's machine type."""
    gpus = f"{len(machine['gpus'])} x {machine['gpus'][0]}, " if machine["gpus"] else ""
    return f"{gpus}{machine['cores']} cores of {machine['cpu']}, {machine['memory_gib']:g} GiB"


def _cpu(cpuinfo: Path) -> str:
    """The model; Linux alone tells it, and not on every architecture."""
    if cpuinfo.exists():
        for line in cpuinfo.read_text("utf-8", "replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name" and value.strip():
                return value.strip()
    return platform.processor() or platform.machine()


def _gpus() -> list[str]:
    """NVIDIA's, by their names; none where there is no driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [str(pynvml.nvmlDeviceGetName(handle)) for handle in handles]
    finally:
        pynvml.nvmlShutdown()
