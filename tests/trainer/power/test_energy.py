"""Energy readers against a fake sysfs tree and a fake NVML: sums, wrap-around, and who reads what."""

import math
from pathlib import Path

import pytest

from gangway.trainer.power import energy
from gangway.trainer.power.energy import (
    EnergyReading,
    Gpu,
    NvmlMeter,
    PowerEstimate,
    RaplMeter,
    choose_readers,
    cpu_time_estimate,
    gpu_power_estimate,
    merge,
    read_all,
)
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import RunContext

KNOWN = RunContext(
    accelerator_watts=Quantity(value=700.0, unit="W", provenance="assumed", source="data sheet", as_of="2026-01-01"),
    accelerator_utilisation=Quantity(value=0.75, unit="1", provenance="assumed", source="operator"),
    host_watts=Quantity(value=2200.0, unit="W", provenance="assumed", source="operator"),
)
KNOWN_GPU = KNOWN.model_copy(update={"host_watts": None})
H100 = Gpu("NVIDIA H100 80GB HBM3", "GPU-1234", 3)


def _set(package: Path, microjoules: int) -> None:
    (package / "energy_uj").write_text(f"{microjoules}\n")


@pytest.fixture
def sockets(tmp_path: Path) -> list[Path]:
    """Two sockets; the first also shows its cores, which must not be counted again."""
    packages = [tmp_path / "intel-rapl:0", tmp_path / "intel-rapl:1"]
    for package in [*packages, tmp_path / "intel-rapl:0:0"]:
        package.mkdir()
        (package / "max_energy_range_uj").write_text("10000000\n")
        _set(package, 9_000_000)
    return packages


class FakeNvml:
    """As much of pynvml as the meter calls."""

    NVMLError = RuntimeError

    def __init__(self, broken: bool = False) -> None:
        self.millijoules, self._broken = 5_000, broken

    def nvmlInit(self) -> None:  # noqa: N802
        if self._broken:
            raise self.NVMLError("driver not loaded")

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        return uuid

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:  # noqa: N802
        assert handle == H100.uuid
        return self.millijoules


def test_rapl_adds_sockets_up_and_survives_wrap_around(tmp_path: Path, sockets: list[Path]) -> None:
    meter = RaplMeter(tmp_path)
    _set(sockets[0], 9_500_000)
    _set(sockets[1], 500_000)  # wrapped at 10 J
    assert meter.read()["cpu"] == EnergyReading(2.0, "measured", "RAPL package counters, 2 socket(s), whole node")
    _set(sockets[0], 100_000)
    assert meter.read()["cpu"].joules == pytest.approx(2.6)


def test_nvml_counts_from_its_start() -> None:
    nvml = FakeNvml()
    meter = NvmlMeter(nvml, H100)
    nvml.millijoules = 12_500
    assert meter.read() == {"gpu3": EnergyReading(7.5, "measured", "NVML total energy counter, whole board")}


def test_without_a_meter_cpu_time_is_an_estimate_that_names_its_assumption(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.process_time", iter([10.0, 14.0]).__next__)
    reading = cpu_time_estimate().read()["cpu"]
    assert reading.joules == 4 * energy.WATTS_PER_BUSY_VCPU
    assert reading.source == "estimated"
    assert "3.5 W" in reading.method


def test_a_gpu_without_counter_is_estimated_from_the_launchers_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", iter([0.0, 100.0]).__next__)
    reading = gpu_power_estimate(H100, KNOWN).read()["gpu3"]
    assert reading.joules == pytest.approx(100 * 700 * 0.75)
    assert reading.source == "estimated"
    assert "700 W (assumed: data sheet, 2026-01-01) board power x 0.75 (assumed: operator)" in reading.method


@pytest.mark.parametrize("missing", ["accelerator_watts", "accelerator_utilisation"])
def test_a_gpu_of_which_the_launcher_says_nothing_is_absent_not_zero(missing: str) -> None:
    reading = gpu_power_estimate(H100, KNOWN.model_copy(update={missing: None})).read()["gpu3"]
    assert (reading.joules, reading.source) == (None, "absent")
    assert "H100" in reading.method


def test_a_host_without_a_meter_is_estimated_from_the_launchers_power_once_a_node(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("time.monotonic", iter([0.0, 100.0]).__next__)
    assert choose_readers(1, None, KNOWN, tmp_path) == []
    (reader,) = choose_readers(0, None, KNOWN, tmp_path)
    reading = reader.read()["cpu"]
    assert (reading.joules, reading.source) == (220_000, "estimated")
    assert "2200 W (assumed: operator) of the host" in reading.method


def test_the_nodes_cpu_meter_is_read_by_local_rank_0_alone(tmp_path: Path, sockets: list[Path]) -> None:
    assert len(sockets) == 2
    for context in (RunContext(), KNOWN):
        assert [type(reader) for reader in choose_readers(0, None, context, tmp_path)] == [RaplMeter]
        assert choose_readers(1, None, context, tmp_path) == []


def test_each_process_reads_its_own_gpu_and_its_own_cpu_time(tmp_path: Path) -> None:
    kinds = [type(reader) for reader in choose_readers(3, H100, RunContext(), tmp_path, FakeNvml())]
    assert kinds == [PowerEstimate, NvmlMeter]
    kinds = [type(reader) for reader in choose_readers(3, H100, KNOWN_GPU, tmp_path, FakeNvml(broken=True))]
    assert kinds == [PowerEstimate, PowerEstimate]


def test_readings_of_all_processes_add_up_by_device() -> None:
    first = {"node0/cpu": EnergyReading(1.0, "estimated", "m"), "node0/gpu0": EnergyReading(5.0, "measured", "n")}
    second = {"node0/cpu": EnergyReading(2.0, "estimated", "m"), "node0/gpu1": EnergyReading(None, "absent", "none")}
    third = {"node0/gpu1": EnergyReading(3.0, "measured", "n")}
    merged = merge([first, second, third])
    assert merged["node0/cpu"].joules == 3.0
    assert merged["node0/gpu0"].joules == 5.0
    assert merged["node0/gpu1"].joules is None


def test_devices_are_named_by_their_node() -> None:
    readings = read_all([cpu_time_estimate()], node_rank=2)
    assert list(readings) == ["node2/cpu"]
    joules = readings["node2/cpu"].joules
    assert joules is not None
    assert math.isfinite(joules)
