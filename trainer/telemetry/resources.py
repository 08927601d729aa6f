"""A statistics line's figures of machines: CPU, memory, reads and power of all workers since the last line.

A missing or stuck meter gives None, never zero.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from gangway.trainer.power.energy import EnergyReading
from gangway.trainer.telemetry.devices import Load

Energy = dict[str, EnergyReading]


class ResourceMeter:
    """One session's figures, by the first worker's clock; `loads` are all workers' at its start."""

    def __init__(self, loads: Sequence[Load], now: float) -> None:
        self._loads, self._time = loads, now
        self._joules: dict[str, float] = {}

    def since(self, loads: Sequence[Load], energy: Energy, now: float) -> dict[str, Any]:
        """The figures since the last call; `energy` is of all devices since the session began."""
        elapsed_sec = now - self._time
        cores = sum(each.cores for each in loads)
        busy_sec = _cpu_sec(loads) - _cpu_sec(self._loads)
        gpu_gib = _known(each.gpu_gib for each in loads)
        gpu_busy = _known(each.gpu_utilisation for each in loads)
        figures = {
            "cores": cores,
            "rss_gib": sum(each.rss_gib for each in loads),
            "host_memory_gib": sum(each.host_memory_gib for each in loads),
            "host_memory_share": max(_known(each.host_memory_share for each in loads), default=None),
            "cpu_utilisation": busy_sec / elapsed_sec / cores,
            "cpu_wait_share": self._cpu_wait_share(loads, busy_sec),
            "neighbour_cores": self._neighbour_cores(loads, elapsed_sec),
            "gpu_gib": sum(gpu_gib) if gpu_gib else None,
            "gpu_memory_share": max(_known(each.gpu_memory_share for each in loads), default=None),
            "gpu_utilisation": sum(gpu_busy) / len(gpu_busy) if gpu_busy else None,
            "read_bytes_per_sec": self._read_bytes_per_sec(loads, elapsed_sec),
            "watts": self._watts(energy, elapsed_sec),
        }
        self._loads, self._time = loads, now
        return figures

    def _cpu_wait_share(self, loads: Sequence[Load], busy_sec: float) -> float | None:
        now, before = (_known(each.cpu_wait_sec for each in those) for those in (loads, self._loads))
        if len(now) < len(loads) or len(before) < len(self._loads):
            return None
        waited_sec = max(0.0, sum(now) - sum(before))  # threads that have ended count no longer
        return waited_sec / (waited_sec + busy_sec) if waited_sec else 0.0

    def _neighbour_cores(self, loads: Sequence[Load], elapsed_sec: float) -> float | None:
        """Returns None where a node's kernel does not count, or its counters stop or go back."""
        cores = 0.0
        before, after = _hosts(self._loads), _hosts(loads)
        for node in {each.node for each in loads}:
            if node not in before or node not in after:
                return None
            busy_sec, all_sec = (now - then for now, then in zip(after[node], before[node], strict=True))
            if all_sec <= 0 or busy_sec < 0:
                return None
            own_sec = _cpu_sec(_of(node, loads)) - _cpu_sec(_of(node, self._loads))
            # A container's quota is less than the processors: others' use of the rest does not slow it.
            beside = max(0, round(all_sec / elapsed_sec) - sum(each.cores for each in _of(node, loads)))
            cores += max(0.0, (busy_sec - own_sec) / elapsed_sec - beside)
        return cores

    def _read_bytes_per_sec(self, loads: Sequence[Load], elapsed_sec: float) -> float | None:
        now, before = (_known(each.read_bytes for each in those) for those in (loads, self._loads))
        if len(now) < len(loads) or len(before) < len(loads) or sum(now) < sum(before):
            return None
        return (sum(now) - sum(before)) / elapsed_sec

    def _watts(self, energy: Energy, elapsed_sec: float) -> float | None:
        """Returns None where a device has no meter or model, or its meter is stuck, as the sum would be incomplete."""
        joules = {device: reading.joules for device, reading in energy.items() if reading.joules is not None}
        used = [all_of_it - self._joules.get(device, 0.0) for device, all_of_it in joules.items()]
        self._joules = joules
        known = used and len(used) == len(energy)
        return sum(used) / elapsed_sec if known and min(used) > 0 else None


def _of(node: int, loads: Sequence[Load]) -> list[Load]:
    return [each for each in loads if each.node == node]


def _hosts(loads: Sequence[Load]) -> dict[int, tuple[float, float]]:
    """Returns busy and total processor seconds of each node whose kernel counts."""
    return {each.node: each.host_sec for each in loads if each.host_sec is not None}


def _cpu_sec(loads: Sequence[Load]) -> float:
    return sum(each.cpu_sec for each in loads)


def _known(figures: Iterator[float | None]) -> list[float]:
    return [figure for figure in figures if figure is not None]
