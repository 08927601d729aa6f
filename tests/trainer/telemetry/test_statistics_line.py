"""A statistics line's figures: added up over workers, counted since the session began, refused when not finite."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.distributed.world import World
from gangway.trainer.phases.updates import Accumulator
from gangway.trainer.power.carbon_start import START_VARIABLE
from gangway.trainer.power.energy import EnergyReading
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import RunContext
from gangway.trainer.steps.state import TrainState
from gangway.trainer.steps.step import get_phases
from gangway.trainer.telemetry.devices import Load
from gangway.trainer.telemetry.flops import StepFlops
from gangway.trainer.telemetry.statistics_line import (
    GridIntensity,
    ResourceMeter,
    Stalls,
    StatisticsLine,
    check_finite,
    is_finite,
    starvation_note,
    usd_per_hour,
)

WORK = Quantity(value=1e6, unit="FLOP", provenance="estimated", source="counted")
PEAK = Quantity(value=1e12, unit="FLOP/s", provenance="assumed", source="data sheet")
NOTHING = Stalls(0.0, 0.0, 0.0)


class Twins(World):
    """Two workers of which one is here; the other says the same, but waited longer for images."""

    def gather(self, value: Any, kind: Any = None) -> list[Any]:
        if isinstance(value[1], Load):
            now, own = value
            return [value, (now, own._replace(cores=0, host_memory_gib=0.0))]
        other = value._replace(stalls=Stalls(5.0, 0.0, 0.0), load=value.load._replace(cores=0, host_memory_gib=0.0))
        return [value, other]


class Second(World):
    """The second of two workers; the first one's clock is another one and half as fast."""

    def gather(self, value: Any, kind: Any = None) -> list[Any]:
        if isinstance(value[1], Load):
            return [(value[0] / 2 + 40, value[1]), value]
        return [value._replace(now=value.now / 2 + 40), value]


@pytest.fixture
def state(tiny_config: TrainConfig) -> TrainState:
    made = TrainState.create(tiny_config, torch.device("cpu"))
    for network in (made.generator, made.discriminator):
        for parameter in network.parameters():
            parameter.grad = torch.ones_like(parameter)
    return made


def _line(
    config: TrainConfig, state: TrainState, stalls: Stalls, monkeypatch: pytest.MonkeyPatch, kind: type[World] = Twins
) -> dict[str, Any]:
    """The line after 10 steps of half a second in all, on a clock of the test's own."""
    clock = [100.0]
    monkeypatch.setattr("gangway.trainer.telemetry.statistics_line.time", SimpleNamespace(monotonic=lambda: clock[0]))
    world = kind(0, 0, 2, 0, 1, torch.device("cpu"), "gloo", "")
    meters = StatisticsLine(config, world, RunContext(), 0, StepFlops(WORK, PEAK))
    clock[0] += 0.5
    state.images, state.step = 160, 10
    line: dict[str, Any] = meters.line(state, Accumulator(get_phases(state), torch.device("cpu")), stalls)
    return line


def test_rates_are_over_the_time_since_the_last_line(
    tiny_config: TrainConfig, state: TrainState, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = _line(tiny_config, state, NOTHING, monkeypatch)
    assert (line["images"], line["step"], line["world_size"]) == (160, 10, 2)
    assert line["wall_sec"] == pytest.approx(0.5)
    assert line["images_per_sec"] == pytest.approx(320)
    assert line["mfu"] == pytest.approx(320 * 1e6 / (1e12 * 2))
    squares = sum(parameter.numel() for parameter in state.generator.parameters())
    assert line["grad_norm_g"] == pytest.approx(squares**0.5, rel=1e-5)


def test_time_that_went_into_metrics_is_none_of_the_steps(
    tiny_config: TrainConfig, state: TrainState, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr("gangway.trainer.telemetry.statistics_line.time", SimpleNamespace(monotonic=lambda: clock[0]))
    world = World(0, 0, 1, 0, 1, torch.device("cpu"), "none", "")
    meters = StatisticsLine(tiny_config, world, RunContext(), 0, StepFlops(WORK, PEAK))
    found: list[dict[str, Any]] = []
    for metrics_sec in (0.0, 10.0, 10.0, 15.0):  # since the session began
        clock[0] += 0.5 + metrics_sec - (found[-1]["metrics_sec"] if found else 0.0)
        state.images += 160
        sums = Accumulator(get_phases(state), torch.device("cpu"))
        found.append(meters.line(state, sums, Stalls(0.0, 0.0, 0.0, metrics_sec)))
    assert [line["images_per_sec"] for line in found] == pytest.approx([320] * 4)
    assert [line["mfu"] for line in found] == pytest.approx([320 * 1e6 / 1e12] * 4)
    assert found[-1]["wall_sec"] == pytest.approx(17), "the run's time has them"


def test_the_slowest_worker_counts_for_what_all_wait_for(
    tiny_config: TrainConfig, state: TrainState, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = _line(tiny_config, state, Stalls(1.0, 2.0, 3.0), monkeypatch)
    waits = [line[name] for name in ("loader_stall_sec", "checkpoint_stall_sec", "telemetry_sec")]
    assert waits == [5.0, 2.0, 3.0]


def test_whoever_is_the_slowest_since_the_last_line_counts(
    tiny_config: TrainConfig, state: TrainState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker waits 100 s at the start, the other one 30 s of each minute from then on."""
    clock = [100.0]
    monkeypatch.setattr("gangway.trainer.telemetry.statistics_line.time", SimpleNamespace(monotonic=lambda: clock[0]))
    others: list[Stalls] = []

    class Pair(Twins):
        def gather(self, value: Any, kind: Any = None) -> list[Any]:
            own, other = super().gather(value, kind)
            return [own, other if isinstance(value[1], Load) else other._replace(stalls=others[-1])]

    world = Pair(0, 0, 2, 0, 1, torch.device("cpu"), "gloo", "")
    meters = StatisticsLine(tiny_config, world, RunContext(), 0, StepFlops(WORK, PEAK))
    found: list[dict[str, Any]] = []
    for minute in range(4):
        clock[0] += 60
        state.images += 160
        late = 30.0 * minute
        others.append(Stalls(late, late, late, allreduce_wait_sec=6.0 * minute if minute > 1 else None))
        own = Stalls(100.0, 100.0, 100.0, allreduce_wait_sec=20.0)
        found.append(meters.line(state, Accumulator(get_phases(state), torch.device("cpu")), own))
    for name in ("loader_stall_sec", "checkpoint_stall_sec", "telemetry_sec"):
        assert [line[name] for line in found] == [100.0, 130.0, 160.0, 190.0]
    assert [line["allreduce_wait_sec"] for line in found] == [20.0, 20.0, 32.0, 38.0]
    assert {line["controller_sec"] for line in found} == {None}


def test_what_a_controller_takes_is_the_slowest_workers_and_none_without_one(
    tiny_config: TrainConfig, state: TrainState, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _line(tiny_config, state, NOTHING, monkeypatch)["controller_sec"] is None
    assert _line(tiny_config, state, NOTHING._replace(controller_sec=0.5), monkeypatch, Second)["controller_sec"] == 0.5


def test_all_workers_have_the_first_ones_clock(
    tiny_config: TrainConfig, state: TrainState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is decided by a line, such as a step of the search for a power limit, is decided alike everywhere."""
    line = _line(tiny_config, state, NOTHING, monkeypatch, Second)
    assert line["wall_sec"] == pytest.approx(0.25)
    assert line["images_per_sec"] == pytest.approx(160 / 0.25)


def test_what_a_controller_needs_is_in_each_line_and_none_where_nobody_knows(
    tiny_config: TrainConfig, state: TrainState, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = _line(tiny_config, state, NOTHING, monkeypatch)
    unknown = ("allreduce_wait_sec", "gpu_memory_share", "noise_scale", "usd_per_hour", "g_per_kwh")
    assert {name: line[name] for name in unknown} == dict.fromkeys(unknown)
    assert (line["phase_sec"], line["nodes"], line["nodes_wanted"]) == ({}, 1, 1)
    assert line["on_cpu"] is True
    assert {"neighbour_cores", "host_memory_share", "read_bytes_per_sec", "watts"} <= line.keys()
    waited = _line(tiny_config, state, NOTHING._replace(allreduce_wait_sec=0.25), monkeypatch, Second)
    assert waited["allreduce_wait_sec"] == 0.25


def test_what_a_tpu_draws_is_nobodys_figure_and_the_hosts_is_not_all(
    tiny_config: TrainConfig, state: TrainState, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Tpu(Twins):
        @property
        def on_xla(self) -> bool:
            return True

    line = _line(tiny_config, state, NOTHING, monkeypatch, Tpu)
    assert line["energy"]["node0/cpu"][0] is not None
    assert line["energy"]["node0/xla0"][:2] == [None, "absent"]
    assert line["watts"] is None


def test_machines_add_up_and_each_nodes_memory_counts_once(
    tiny_config: TrainConfig, state: TrainState, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = iter([Load(1.0, None, None, 10.0, 4, 8.0, 3.0), Load(1.5, None, None, 10.8, 4, 9.0, 3.2)])
    monkeypatch.setattr("gangway.trainer.telemetry.statistics_line.load", lambda world: next(loads))
    line = _line(tiny_config, state, NOTHING, monkeypatch)
    assert line["cpu_utilisation"] == pytest.approx(2 * 0.8 / 0.5 / 4)
    assert line["cpu_wait_share"] == pytest.approx(0.2 / (0.2 + 0.8))
    assert (line["rss_gib"], line["host_memory_gib"]) == (3.0, 9.0)
    assert (line["gpu_gib"], line["gpu_utilisation"]) == (None, None)


@pytest.mark.parametrize(("wait_sec", "share"), [((None, None), None), ((3.0, 2.0), 0.0), ((3.0, 4.2), 0.6)])
def test_threads_that_wait_for_a_core_are_told_of(
    tiny_config: TrainConfig,
    state: TrainState,
    monkeypatch: pytest.MonkeyPatch,
    wait_sec: tuple[float | None, float | None],
    share: float | None,
) -> None:
    """Not where the kernel does not count, nor where the threads that waited have ended."""
    loads = iter([Load(1.0, None, None, cpu, 4, 8.0, wait) for cpu, wait in zip((10.0, 10.8), wait_sec, strict=True)])
    monkeypatch.setattr("gangway.trainer.telemetry.statistics_line.load", lambda world: next(loads))
    line = _line(tiny_config, state, NOTHING, monkeypatch)
    assert line["cpu_wait_share"] == pytest.approx(share)
    assert starvation_note(line).startswith("note: this run's threads waited 60 % of their time for a core") == bool(
        share
    )


def test_gpus_memory_adds_up_and_their_use_is_a_mean(
    tiny_config: TrainConfig, state: TrainState, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = iter([Load(1.0, 3.0, 0.5, 0.0, 4, 8.0), Load(1.0, 3.0, 0.9, 0.0, 4, 8.0)])
    monkeypatch.setattr("gangway.trainer.telemetry.statistics_line.load", lambda world: next(loads))
    line = _line(tiny_config, state, NOTHING, monkeypatch)
    assert (line["gpu_gib"], line["gpu_utilisation"]) == (6.0, 0.9)


@pytest.mark.parametrize("key", ["loss_g", "loss_d", "grad_norm_g", "grad_norm_d"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_none_stop_the_run_with_their_step(key: str, bad: float) -> None:
    line = {"loss_g": 1.0, "loss_d": 1.0, "grad_norm_g": 1.0, "grad_norm_d": 1.0, "step": 10, "images": 160}
    check_finite(line)
    assert is_finite(line)
    assert not is_finite({**line, key: bad})
    with pytest.raises(TrainerError, match=f"{key} at step 10, 160 images: is no longer a finite number"):
        check_finite({**line, key: bad})


def test_the_clock_starts_with_the_session(tiny_config: TrainConfig) -> None:
    began = time.monotonic()
    world = World(0, 0, 1, 0, 1, torch.device("cpu"), "none", "")
    meters = StatisticsLine(tiny_config, world, RunContext(), 0, StepFlops(WORK, PEAK))
    assert began <= meters._began <= time.monotonic()


FIRST = Load(1.0, None, None, 10.0, 2, 4.0, host_sec=(100.0, 400.0), host_memory_share=0.5, read_bytes=1000)
SECOND = FIRST._replace(cores=0, host_memory_gib=0.0, host_sec=None, host_memory_share=None)
ELSEWHERE = FIRST._replace(node=1, host_memory_share=0.7)


def since(before: list[Load], after: list[Load], energy: dict[str, Any] | None = None) -> dict[str, Any]:
    return ResourceMeter(before, 50.0).since(after, energy or {}, 52.0)


def later(load: Load, own_sec: float, busy_sec: float = 0.0, all_sec: float = 4.0, read: int = 0) -> Load:
    host = None if load.host_sec is None else (load.host_sec[0] + busy_sec, load.host_sec[1] + all_sec)
    bytes_read = None if load.read_bytes is None else load.read_bytes + read
    return load._replace(cpu_sec=load.cpu_sec + own_sec, host_sec=host, read_bytes=bytes_read)


def test_neighbours_have_what_is_busy_beside_a_nodes_own_workers() -> None:
    before = [FIRST, SECOND, ELSEWHERE]
    after = [later(FIRST, 1.0, 3.5), later(SECOND, 1.5), later(ELSEWHERE, 1.0, 0.9)]
    assert since(before, after)["neighbour_cores"] == pytest.approx((3.5 - 2.5) / 2), "the other node has none"


def test_neighbours_take_nothing_of_a_quota_as_long_as_there_are_other_cores() -> None:
    """Two cores of eight: others are in the way from the seventh on."""
    quiet, full = (later(FIRST, 1.0, 1.0 + busy_sec, all_sec=16.0) for busy_sec in (11.0, 14.0))
    assert since([FIRST], [quiet])["neighbour_cores"] == 0
    assert since([FIRST], [full])["neighbour_cores"] == pytest.approx(1.0)


@pytest.mark.parametrize(("busy_sec", "all_sec"), [(0.0, 0.0), (-1.0, 4.0)])
def test_counters_that_stand_or_go_back_tell_of_no_neighbours(busy_sec: float, all_sec: float) -> None:
    assert since([FIRST, SECOND], [later(FIRST, 0.0, busy_sec, all_sec), SECOND])["neighbour_cores"] is None


def test_absent_counters_tell_nothing() -> None:
    bare = FIRST._replace(host_sec=None, host_memory_share=None, read_bytes=None)
    found = since([bare], [bare])
    names = ("neighbour_cores", "host_memory_share", "gpu_memory_share", "read_bytes_per_sec", "watts")
    assert {name: found[name] for name in names} == dict.fromkeys(names)


def test_the_fullest_node_and_gpu_count() -> None:
    full = FIRST._replace(gpu_memory_share=0.4)
    found = since([full, ELSEWHERE], [full, ELSEWHERE._replace(gpu_memory_share=0.6)])
    assert (found["host_memory_share"], found["gpu_memory_share"]) == (0.7, 0.6)


def test_reads_add_up_where_all_workers_count_them() -> None:
    after = [later(FIRST, 0, read=300), later(SECOND, 0, read=100)]
    assert since([FIRST, SECOND], after)["read_bytes_per_sec"] == 200
    assert since([FIRST, SECOND], [after[0], SECOND._replace(read_bytes=None)])["read_bytes_per_sec"] is None


def test_power_is_a_mean_since_the_last_line() -> None:
    meter = ResourceMeter([FIRST], 0.0)
    readings = [
        {"cpu": EnergyReading(cpu, "measured", ""), "gpu": EnergyReading(gpu, "measured", "")}
        for cpu, gpu in ((40.0, 100.0), (60.0, 300.0), (60.0, 400.0))
    ]
    found = [meter.since([FIRST], energy, 2.0 * number)["watts"] for number, energy in enumerate(readings, 1)]
    assert found == [70.0, 110.0, None], "the last has a meter that stands still"


@pytest.mark.parametrize("cpu", ["measured", "estimated"])
def test_power_of_some_devices_is_not_power(cpu: Any) -> None:
    processor, absent = EnergyReading(200.0, cpu, ""), EnergyReading(None, "absent", "")
    assert since([FIRST], [FIRST], {"cpu": processor, "gpu0": absent})["watts"] is None
    assert since([FIRST], [FIRST], {"cpu": processor})["watts"] == 100


def usd(value: float) -> Quantity:
    return Quantity(value=value, unit="USD/h", provenance="assumed", source="list")


GRID = Quantity(value=300.0, unit="gCO2e/kWh", provenance="assumed", source="year")
NOON = datetime(2026, 12, 1, 12, 30, tzinfo=UTC)


def test_each_node_costs_what_its_kind_does() -> None:
    context = RunContext(
        capacity=("spot", "on-demand"), usd_per_hour_by_kind={"spot": usd(1.0), "on-demand": usd(3.0)}, num_nodes=3
    )
    assert usd_per_hour(context, ["spot", "on-demand", "spot"]) == 5.0
    assert usd_per_hour(context, ["spot", "reserved"]) is None, "one has no price"
    assert usd_per_hour(RunContext(usd_per_hour=usd(2.0)), ["", ""]) == 4.0
    assert usd_per_hour(RunContext(), [""]) is None


def test_the_grid_is_what_the_launcher_said() -> None:
    assert GridIntensity(RunContext(intensity_g_per_kwh=GRID)).now() == 300.0
    assert GridIntensity(RunContext()).now() is None


def test_a_forecast_at_hand_says_it_as_long_as_it_reaches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "forecast.csv"
    file.write_text("time,g_per_kwh\n2026-12-01T12:00Z,120\n2026-12-01T13:00Z,180\n")
    monkeypatch.setenv(START_VARIABLE, json.dumps({"forecast": str(file)}))
    grid = GridIntensity(RunContext(intensity_g_per_kwh=GRID))
    assert grid.now(NOON) == 120.0
    assert grid.now(NOON.replace(hour=13)) == 180.0
    assert grid.now(NOON.replace(hour=20)) == 300.0


@pytest.mark.parametrize("where", ["https://127.0.0.1:9/forecast", "/no/such/file.csv"])
def test_a_forecast_that_is_not_here_is_not_fetched(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(START_VARIABLE, json.dumps({"forecast": where}))
    assert GridIntensity(RunContext(intensity_g_per_kwh=GRID)).now(NOON) == 300.0
