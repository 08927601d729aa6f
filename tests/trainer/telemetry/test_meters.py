"""A statistics line's figures: added up over workers, counted since the session began, refused when not finite."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.distributed.world import World
from gangway.trainer.phases.updates import Accumulator
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import RunContext
from gangway.trainer.steps.state import TrainState
from gangway.trainer.steps.step import get_phases
from gangway.trainer.telemetry.devices import Load
from gangway.trainer.telemetry.flops import StepFlops
from gangway.trainer.telemetry.meters import Meters, Stalls, check_finite, is_finite, starvation_note

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
    monkeypatch.setattr("gangway.trainer.telemetry.meters.time", SimpleNamespace(monotonic=lambda: clock[0]))
    world = kind(0, 0, 2, 0, 1, torch.device("cpu"), "gloo", "")
    meters = Meters(config, world, RunContext(), 0, StepFlops(WORK, PEAK))
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
    monkeypatch.setattr("gangway.trainer.telemetry.meters.time", SimpleNamespace(monotonic=lambda: clock[0]))
    world = World(0, 0, 1, 0, 1, torch.device("cpu"), "none", "")
    meters = Meters(tiny_config, world, RunContext(), 0, StepFlops(WORK, PEAK))
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
    monkeypatch.setattr("gangway.trainer.telemetry.meters.time", SimpleNamespace(monotonic=lambda: clock[0]))
    others: list[Stalls] = []

    class Pair(Twins):
        def gather(self, value: Any, kind: Any = None) -> list[Any]:
            own, other = super().gather(value, kind)
            return [own, other if isinstance(value[1], Load) else other._replace(stalls=others[-1])]

    world = Pair(0, 0, 2, 0, 1, torch.device("cpu"), "gloo", "")
    meters = Meters(tiny_config, world, RunContext(), 0, StepFlops(WORK, PEAK))
    found: list[dict[str, Any]] = []
    for minute in range(4):
        clock[0] += 60
        state.images += 160
        late = 30.0 * minute
        others.append(Stalls(late, late, late, allreduce=6.0 * minute if minute > 1 else None))
        own = Stalls(100.0, 100.0, 100.0, allreduce=20.0)
        found.append(meters.line(state, Accumulator(get_phases(state), torch.device("cpu")), own))
    for name in ("loader_stall_sec", "checkpoint_stall_sec", "telemetry_sec"):
        assert [line[name] for line in found] == [100.0, 130.0, 160.0, 190.0]
    assert [line["allreduce_wait_sec"] for line in found] == [20.0, 20.0, 32.0, 38.0]
    assert {line["controller_sec"] for line in found} == {None}


def test_what_a_controller_takes_is_the_slowest_workers_and_none_without_one(
    tiny_config: TrainConfig, state: TrainState, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _line(tiny_config, state, NOTHING, monkeypatch)["controller_sec"] is None
    assert _line(tiny_config, state, NOTHING._replace(controller=0.5), monkeypatch, Second)["controller_sec"] == 0.5


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
    waited = _line(tiny_config, state, NOTHING._replace(allreduce=0.25), monkeypatch, Second)
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
    monkeypatch.setattr("gangway.trainer.telemetry.meters.load", lambda world: next(loads))
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
    monkeypatch.setattr("gangway.trainer.telemetry.meters.load", lambda world: next(loads))
    line = _line(tiny_config, state, NOTHING, monkeypatch)
    assert line["cpu_wait_share"] == pytest.approx(share)
    assert starvation_note(line).startswith("note: this run's threads waited 60 % of their time for a core") == bool(
        share
    )


def test_gpus_memory_adds_up_and_their_use_is_a_mean(
    tiny_config: TrainConfig, state: TrainState, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = iter([Load(1.0, 3.0, 0.5, 0.0, 4, 8.0), Load(1.0, 3.0, 0.9, 0.0, 4, 8.0)])
    monkeypatch.setattr("gangway.trainer.telemetry.meters.load", lambda world: next(loads))
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
    meters = Meters(tiny_config, world, RunContext(), 0, StepFlops(WORK, PEAK))
    assert began <= meters._began <= time.monotonic()
