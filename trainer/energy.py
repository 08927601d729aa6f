"""Energy used since the session began, by device: measured where there is a meter, else estimated and called so.

CPU: the RAPL counters under /sys/class/powercap; they are mostly absent on virtual machines and need root. GPU: NVML's
energy counter. Without a meter: power times busy time, whose model each reading names. RAPL counts a whole node, so
only local rank 0 reads it, else energy would be counted once for each process; a process's own GPU and its own CPU
time, behind the estimate, are its own to read. Not here: PUE, carbon and dollars (trainer.summary).
"""

import importlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from trainer.figure import Provenance

__all__ = [
    "WATTS_PER_BUSY_VCPU",
    "CpuTimeEstimate",
    "EnergyReading",
    "Gpu",
    "GpuPowerEstimate",
    "NvmlMeter",
    "RaplMeter",
    "Reader",
    "choose_readers",
    "merge",
    "read_all",
]

POWERCAP = Path("/sys/class/powercap")
WATTS_PER_BUSY_VCPU = 3.5
"""Assumed power of one fully busy virtual CPU. Cloud Carbon Footprint's methodology uses 3.5 W (AWS average at 100 %
load, SPECpower data); real machines lie between about 2 and 6 W."""
ASSUMED_GPU_UTILISATION = 0.75
BOARD_WATTS: Mapping[str, float] = MappingProxyType(
    {"V100": 300.0, "A100": 400.0, "H100": 700.0, "H200": 700.0, "B200": 1000.0, "A10G": 300.0, "L40S": 350.0}
)
"""Board power by a part of the device's name, from the vendors' data sheets."""


class EnergyReading(NamedTuple):
    """Energy of one device since the reader was made.

    Attributes:
        joules: None when absent.
        source: measured, estimated or absent.
        method: the meter, the model with its assumptions, or why there is neither.
    """

    joules: float | None
    source: Provenance
    method: str


class Gpu(NamedTuple):
    """The GPU of one process.

    Attributes:
        name: such as "NVIDIA H100 80GB HBM3".
        uuid: as NVML spells it, GPU-...
        local_rank: of the process that has it.
    """

    name: str
    uuid: str
    local_rank: int


class Reader(Protocol):
    """Anything that knows the energy of some devices."""

    def read(self) -> dict[str, EnergyReading]:
        """Readings by device name, cumulative since the reader was made."""
        ...


class RaplMeter:
    """Intel's and AMD's package counters, summed over sockets. Wraps around, so read it at least every few minutes.

    Args:
        root: the powercap folder.
    """

    def __init__(self, root: Path = POWERCAP) -> None:
        self._packages = [path for path in sorted(root.glob("intel-rapl:*")) if path.name.count(":") == 1]
        self._ranges = [int((path / "max_energy_range_uj").read_text()) for path in self._packages]
        self._last = self._counters()
        self._microjoules = 0

    @staticmethod
    def available(root: Path = POWERCAP) -> bool:
        """Whether there is a package counter that this user may read."""
        return any(os.access(path, os.R_OK) for path in root.glob("intel-rapl:*/energy_uj"))

    def read(self) -> dict[str, EnergyReading]:
        """One reading, `cpu`."""
        now = self._counters()
        for before, after, span in zip(self._last, now, self._ranges, strict=True):
            self._microjoules += after - before if after >= before else after + span - before
        self._last = now
        method = f"RAPL package counters, {len(self._packages)} socket(s), whole node"
        return {"cpu": EnergyReading(self._microjoules / 1e6, "measured", method)}

    def _counters(self) -> list[int]:
        return [int((path / "energy_uj").read_text()) for path in self._packages]


class NvmlMeter:
    """NVML's total energy counter of one GPU. It steps about every 100 ms: fine over seconds, not over single steps.

    Args:
        nvml: the pynvml module, initialised.
        gpu: the device.
    """

    def __init__(self, nvml: Any, gpu: Gpu) -> None:
        self._nvml, self._key = nvml, f"gpu{gpu.local_rank}"
        self._handle = nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
        self._start = self._counter()

    def read(self) -> dict[str, EnergyReading]:
        """One reading, `gpu<index>`."""
        joules = (self._counter() - self._start) / 1e3
        return {self._key: EnergyReading(joules, "measured", "NVML total energy counter, whole board")}

    def _counter(self) -> int:
        """Millijoules since the driver was loaded."""
        return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))


class CpuTimeEstimate:
    """CPU time of this process times an assumed power. Leaves out idle power, memory, disks and other processes."""

    def __init__(self) -> None:
        self._start = time.process_time()

    def read(self) -> dict[str, EnergyReading]:
        """One reading, `cpu`."""
        joules = (time.process_time() - self._start) * WATTS_PER_BUSY_VCPU
        method = (
            f"model: CPU seconds of the training processes x {WATTS_PER_BUSY_VCPU} W per busy vCPU (assumed: Cloud "
            "Carbon Footprint's AWS average at full load); no RAPL meter can be read here"
        )
        return {"cpu": EnergyReading(joules, "estimated", method)}


class GpuPowerEstimate:
    """Board power x assumed utilisation x time of one GPU. Off by 27-37 % in published comparisons.

    Args:
        gpu: the device.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._name, self._key = gpu.name, f"gpu{gpu.local_rank}"
        self._watts = next((watts for part, watts in BOARD_WATTS.items() if part in gpu.name), None)
        self._start = time.monotonic()

    def read(self) -> dict[str, EnergyReading]:
        """One reading, absent when the board's power is not known."""
        if self._watts is None:
            return {self._key: EnergyReading(None, "absent", f"no NVML, and no known board power for {self._name}")}
        joules = (time.monotonic() - self._start) * self._watts * ASSUMED_GPU_UTILISATION
        method = (
            f"model: time x {self._watts:g} W board power x {ASSUMED_GPU_UTILISATION} utilisation (assumed); no NVML"
        )
        return {self._key: EnergyReading(joules, "estimated", method)}


def choose_readers(local_rank: int, gpu: Gpu | None, root: Path = POWERCAP, nvml: Any = None) -> list[Reader]:
    """The readers this process is responsible for, so that each device is counted once.

    Args:
        local_rank: of this process; the CPU meter of the whole node is read by 0 alone.
        gpu: this process's GPU; None on a CPU.
        root: the powercap folder.
        nvml: the pynvml module or a fake; None imports it where there is a GPU.
    """
    readers: list[Reader] = []
    if not RaplMeter.available(root):
        readers.append(CpuTimeEstimate())
    elif local_rank == 0:
        readers.append(RaplMeter(root))
    if gpu is not None:
        readers.append(_gpu_reader(gpu, nvml or importlib.import_module("pynvml")))
    return readers


def read_all(readers: list[Reader], node_rank: int) -> dict[str, EnergyReading]:
    """What this process's readers say, the devices named by their node: node0/cpu, node0/gpu3."""
    return {f"node{node_rank}/{device}": reading for reader in readers for device, reading in reader.read().items()}


def merge(per_process: list[dict[str, EnergyReading]]) -> dict[str, EnergyReading]:
    """Adds the readings of all processes up by device; a device with an absent part is absent."""
    merged: dict[str, EnergyReading] = {}
    for readings in per_process:
        for device, reading in readings.items():
            before = merged.get(device)
            if before is not None and before.joules is not None and reading.joules is not None:
                reading = reading._replace(joules=before.joules + reading.joules)
            elif before is not None and before.joules is None:
                reading = before
            merged[device] = reading
    return merged


def _gpu_reader(gpu: Gpu, nvml: Any) -> Reader:
    """The GPU's meter, or the estimate where driver or board offer no counter; the reading says which."""
    try:
        nvml.nvmlInit()
        return NvmlMeter(nvml, gpu)
    except nvml.NVMLError:
        return GpuPowerEstimate(gpu)
