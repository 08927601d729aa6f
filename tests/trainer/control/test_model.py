"""The policy that fits a model of a step's time."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from gangway.trainer.config.values.control import Objective
from gangway.trainer.control.interval import Interval, Knobs
from gangway.trainer.control.model import Model, StepModel
from tests.trainer.control import rooms


@pytest.mark.parametrize("seed", range(3))
def test_it_makes_room_for_a_neighbour_and_takes_its_cores_back(seed: int) -> None:
    machine, knobs = rooms.RIGHT
    busy = replace(machine, neighbour=lambda passed: 2.0 if 1 / 3 <= passed < 2 / 3 else 0.0)
    loop = rooms.loop_of("model", (busy, knobs), 90, seed=seed)
    history = loop.run().history
    assert history[55].knobs.threads == 2
    assert history[-1].knobs.threads == 4
    assert loop.made(history) > 1.02


@pytest.mark.slow
@pytest.mark.parametrize("jitter", [0.0, 0.005, 0.02])
@pytest.mark.parametrize("seed", range(3))
def test_it_loses_next_to_nothing_where_all_is_right(jitter: float, seed: int) -> None:
    machine, knobs = rooms.RIGHT
    loop = rooms.loop_of("model", (replace(machine, spread=jitter), knobs), 120, seed=seed)
    assert loop.made(loop.run().history) >= 0.98


def test_the_fit_knows_settings_that_it_has_not_seen() -> None:
    machine, _ = rooms.DATA_BOUND
    seen = [
        Knobs(batch_size=batch, loader_threads=readers, threads=threads)
        for batch, readers, threads in [(64, 1, 4), (64, 2, 4), (128, 2, 1), (128, 3, 2), (256, 4, 2), (64, 4, 1)]
    ]
    fit = StepModel([machine.still(knobs) for knobs in seen], on_cpu=True)
    for knobs in (Knobs(256, loader_threads=3, threads=3), Knobs(128, loader_threads=2, threads=4)):
        true = machine.still(knobs)
        assert fit.forecast(knobs).step_sec == pytest.approx(knobs.batch_size / true.images_per_sec, rel=0.1)


def test_a_setting_that_was_measured_counts_as_measured() -> None:
    machine, knobs = rooms.RIGHT
    slow = knobs.with_value("loader_threads", 3)
    history = [machine.still(knobs)] * 3
    worse = [_at(each, slow, 0.5) for each in history]
    fit = StepModel([*worse, *history], on_cpu=True)
    assert fit.forecast(slow).step_sec > 1.5 * fit.forecast(knobs).step_sec


@pytest.mark.parametrize(("objective", "expected"), [("time", None), ("cost", None), ("energy", 0.7), ("carbon", 0.7)])
def test_less_power_is_for_those_who_count_it(objective: Objective, expected: float | None) -> None:
    machine, knobs = rooms.RIGHT
    seen = machine.still(knobs)._replace(device_use=0.95, on_cpu=False)
    on_gpu = rooms.room(knobs, objective, allowed={"power_share": (0.7, 1.0)}, on_cpu=False)
    decision = Model().decide([seen], on_gpu)
    assert (None if decision is None else decision.value) == expected


def test_more_nodes_are_for_those_in_a_hurry() -> None:
    machine, knobs = rooms.RIGHT
    history, allowed = [machine.still(knobs)], {"nodes": (1, 2)}
    hurried = Model().decide(history, rooms.room(knobs, "time", allowed=allowed))
    assert hurried is not None
    assert (hurried.knob, hurried.value, hurried.was) == ("nodes", 2, 1)
    assert Model().decide(history, rooms.room(knobs, "cost", allowed=allowed)) is None


def test_sixteen_bits_are_tried_on_a_gpu_alone() -> None:
    machine, knobs = rooms.RIGHT
    seen, precisions = machine.still(knobs), {"precision": ("bf16", "fp32")}
    assert Model().decide([seen], rooms.room(knobs, allowed=precisions)) is None
    room = rooms.room(knobs, allowed=precisions, on_cpu=False)
    for device_use in (0.9, None):  # without NVML it is a GPU all the same
        decision = Model().decide([seen._replace(device_use=device_use, on_cpu=False)], room)
        assert decision is not None
        assert decision.value == "bf16"


def test_without_figures_it_decides_nothing() -> None:
    machine, knobs = rooms.DATA_BOUND
    seen = machine.still(knobs)
    assert Model().decide([seen], rooms.room(knobs)) is not None
    assert Model().decide([seen._replace(usd_per_hour=None)], rooms.room(knobs, "cost")) is None
    assert Model().decide([seen._replace(g_per_kwh=None)], rooms.room(knobs, "carbon")) is None
    assert Model().decide([seen._replace(told=("the clock went back",))], rooms.room(knobs)) is None
    assert Model().decide([seen._replace(images_per_sec=0.0)], rooms.room(knobs)) is None


def test_its_gain_must_pass_the_threshold() -> None:
    machine, knobs = rooms.DATA_BOUND
    history, room = [machine.still(knobs)], rooms.room(knobs)
    decision = Model().decide(history, room)
    assert decision is not None
    assert Model(threshold=decision.expected_gain + 0.01).decide(history, room) is None


@settings(deadline=None)
@given(rooms.shown())
def test_any_history_leads_to_an_allowed_change_and_always_to_the_same(shown: rooms.Shown) -> None:
    history, room = shown
    decision = Model().decide(history, room)
    assert decision == Model().decide(list(history), room)
    if decision is not None:
        assert decision.value in room.allowed[decision.knob]
        assert decision.was == getattr(history[-1].knobs, decision.knob) != decision.value


def _at(interval: Interval, knobs: Knobs, speed: float) -> Interval:
    return interval._replace(knobs=knobs, images_per_sec=speed * interval.images_per_sec)


def test_steps_that_wait_for_no_image_get_no_loader_thread() -> None:
    """However much their speed scatters."""
    knobs = Knobs(64, loader_threads=1, threads=4)
    draw = np.random.default_rng(5)
    history = [Interval(0, 10.0, 100 * factor, knobs, cores=4) for factor in draw.uniform(0.7, 1.3, 120)]
    allowed = {"loader_threads": (1, 2, 3, 4)}
    found = [Model().decide(history[:number], rooms.room(knobs, allowed=allowed)) for number in range(1, 121)]
    assert found == [None] * 120
    waited = [each._replace(loader_share=0.5) for each in history]
    assert Model().decide(waited, rooms.room(knobs, allowed=allowed)) is not None
