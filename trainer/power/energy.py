"""Energy per device since the session began: by RAPL or NVML counters, else estimated from power, and marked so.

RAPL and host power cover a whole node, so only local rank 0 reads them.
"""

import importlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from gangway.trainer.records.quantity import Provenance, Quantity
from gangway.trainer.records.run_record import RunContext

POWERCAP = Path("/sys/class/powercap")
WATTS_PER_BUSY_VCPU = 3.5
"""Assumed power of one virtual CPU at full load: "Average Max Watts" for AWS in Cloud Carbon Footprint's methodology
(https://www.cloudcarbonfootprint.org/docs/methodology/, "Compute"; MAX_WATTS_AVG in its
AwsFootprintEstimationConstants.ts). It is the mean over the server processors AWS uses, from SPECpower_ssj2008: a whole
server's power at 100 % load over its threads. The same source has 0.74 W for an idle one, and 4.26 (GCP) and 3.76 W
(Azure) at full load; real machines lie between about 2 and 6 W."""


class EnergyReading(NamedTuple):
    """Energy of a device since its reader's creation, with the meter or model, or why there is neither."""

    joules: float | None
    source: Provenance
    method: str


class Gpu(NamedTuple):
    """The GPU of one process: `name` such as "NVIDIA H100 80GB HBM3", `uuid` as NVML writes it, GPU-..."""

    name: str
    uuid: str
    local_rank: int


class Reader(Protocol):
    """Reads the energy of some devices."""

    def read(self) -> dict[str, EnergyReading]:
        """Readings by device name, cumulative since the reader was created."""
        ...


class RaplMeter:
    """Intel's and AMD's package counters, summed over sockets. They wrap around: read them every few minutes."""

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
    """NVML's total energy counter of one GPU, updated about every 100 ms: too coarse for single steps."""

    def __init__(self, nvml: Any, gpu: Gpu) -> None:
        self._nvml, self._key = nvml, f"gpu{gpu.local_rank}"
        self._handle = nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
        self._start = self._counter()

    def read(self) -> dict[str, EnergyReading]:
        """One reading, `gpu<index>`."""
        joules = (self._counter() - self._start) / 1e3
        return {self._key: EnergyReading(joules, "measured", "NVML total energy counter, whole board")}

    def _counter(self) -> int:
        return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))  # millijoules


class PowerEstimate:
    """A device's power, W, times the seconds of `clock` since its creation; `method` names the source of the power."""

    def __init__(self, device: str, watts: float, method: str, clock: Callable[[], float]) -> None:
        self._device, self._watts, self._method = device, watts, method
        self._clock, self._start = clock, clock()

    def read(self) -> dict[str, EnergyReading]:
        """One reading, of the device."""
        joules = (self._clock() - self._start) * self._watts
        return {self._device: EnergyReading(joules, "estimated", self._method)}


def cpu_time_estimate() -> Reader:
    """CPU time of this process times an assumed power. Excludes idle power, memory, disks and other processes."""
    method = (
        f"model: CPU seconds of the training processes x {WATTS_PER_BUSY_VCPU} W per busy vCPU (assumed: Cloud "
        "Carbon Footprint, Average Max Watts of AWS); no RAPL meter can be read here"
    )
    return PowerEstimate("cpu", WATTS_PER_BUSY_VCPU, method, time.process_time)


def gpu_power_estimate(gpu: Gpu, context: RunContext) -> Reader:
    """Board power x utilisation x time from the launcher, or absent; off by 27-37 % (arXiv 2506.14551)."""
    device, watts, utilisation = f"gpu{gpu.local_rank}", context.accelerator_watts, context.accelerator_utilisation
    if watts is None or watts.value is None or utilisation is None or utilisation.value is None:
        why = f"no NVML counter of the {gpu.name}, and the launcher gave no board power and utilisation"
        return NoMeter(device, why)
    method = f"model: time x {_cite(watts)} board power x {_cite(utilisation)} utilisation; no NVML counter"
    return PowerEstimate(device, watts.value * utilisation.value, method, time.monotonic)


class NoMeter:
    """A device that draws unknown power: absent, so that the others are not taken for the total."""

    def __init__(self, device: str, why: str) -> None:
        self._device, self._why = device, why

    def read(self) -> dict[str, EnergyReading]:
        """One reading, absent."""
        return {self._device: EnergyReading(None, "absent", self._why)}


def choose_readers(
    local_rank: int, gpu: Gpu | None, context: RunContext, root: Path = POWERCAP, nvml: Any = None
) -> list[Reader]:
    """The readers of this process: its GPU, on local rank 0 the node's CPU meter. `nvml` None imports pynvml."""
    readers: list[Reader] = []
    host = context.host_watts
    if RaplMeter.available(root):
        readers += [RaplMeter(root)] if local_rank == 0 else []
    elif host is not None and host.value is not None:
        method = f"model: time x {_cite(host)} of the host; no RAPL meter can be read here"
        readers += [PowerEstimate("cpu", host.value, method, time.monotonic)] if local_rank == 0 else []
    else:
        readers.append(cpu_time_estimate())
    if gpu is not None:
        nvml = nvml or importlib.import_module("pynvml")
        try:
            nvml.nvmlInit()
            readers.append(NvmlMeter(nvml, gpu))
        except nvml.NVMLError:
            readers.append(gpu_power_estimate(gpu, context))
    return readers


def read_all(readers: list[Reader], node_rank: int) -> dict[str, EnergyReading]:
    """Readings of this process by node and device: node0/cpu, node0/gpu3."""
    return {f"node{node_rank}/{device}": reading for reader in readers for device, reading in reader.read().items()}


def merge(per_process: list[dict[str, EnergyReading]]) -> dict[str, EnergyReading]:
    """Sum the readings of all processes by device; a device with an absent part is absent."""
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


def _cite(quantity: Quantity) -> str:
    """A launcher's figure with its source: 700 W (assumed: data sheet, 2026-01-01)."""
    unit = "" if quantity.unit == "1" else f" {quantity.unit}"
    as_of = f", {quantity.as_of}" if quantity.as_of else ""
    return f"{quantity.value:g}{unit} ({quantity.provenance}: {quantity.source}{as_of})"
