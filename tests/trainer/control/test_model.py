"""The policy that fits a model of a step's time."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from trainer.config.control import Objective
from trainer.control.interval import Interval, Knobs
from trainer.control.model import Model, StepModel

from . import plant
from .plant import Plant


@pytest.mark.parametrize("start", [plant.DATA_BOUND, plant.BATCH_TOO_SMALL, plant.BATCH_TOO_LARGE])
@pytest.mark.parametrize("objective", ["time", "cost", "energy", "carbon"])
@pytest.mark.parametrize("seed", range(3))
def test_it_ends_near_the_best_setting(start: tuple[Plant, Knobs], objective: Objective, seed: int) -> None:
    machine, room = replace(start[0], seed=seed), plant.room(start[1], objective)
    history = plant.run(Model(), machine, 60, room)
    assert plant.kept(machine, history, room) >= 0.9 * plant.best_score(machine, room)
    assert plant.made(machine, history, room) > 1.1


@pytest.mark.parametrize("seed", range(3))
def test_it_makes_room_for_a_neighbour_and_takes_its_cores_back(seed: int) -> None:
    machine = Plant(neighbour=(30, 60, 2.0), seed=seed)
    room = plant.room(Knobs(batch_size=128, loader_threads=2, threads=4))
    history = plant.run(Model(), machine, 90, room)
    assert history[55].knobs.threads == 2
    assert history[-1].knobs.threads == 4
    assert plant.made(machine, history, room) > 1.02


@pytest.mark.parametrize("jitter", [0.0, 0.005, 0.02])
@pytest.mark.parametrize("seed", range(3))
def test_it_loses_next_to_nothing_where_all_is_right(jitter: float, seed: int) -> None:
    machine, room = replace(plant.RIGHT[0], seed=seed, jitter=jitter), plant.room(plant.RIGHT[1])
    assert plant.made(machine, plant.run(Model(), machine, 120, room), room) >= 0.98


def test_the_fit_knows_settings_that_it_has_not_seen() -> None:
    machine = Plant(decode_sec=0.01)
    seen = [
        Knobs(batch_size=batch, loader_threads=readers, threads=threads)
        for batch, readers, threads in [(64, 1, 4), (64, 2, 4), (128, 2, 1), (128, 3, 2), (256, 4, 2), (64, 4, 1)]
    ]
    fit = StepModel([machine.interval(knobs, number) for number, knobs in enumerate(seen)])
    for knobs in (Knobs(256, loader_threads=3, threads=3), Knobs(128, loader_threads=2, threads=4)):
        true = machine.interval(knobs, 0, jitter=0.0)
        assert fit.forecast(knobs).step_sec == pytest.approx(knobs.batch_size / true.images_per_sec, rel=0.1)


def test_a_setting_that_was_measured_counts_as_measured() -> None:
    machine, knobs = plant.RIGHT
    slow = knobs.turned("loader_threads", 3)
    history = [machine.interval(knobs, number, jitter=0.0) for number in range(3)]
    worse = [_at(each, slow, 0.5) for each in history]
    fit = StepModel([*worse, *history])
    assert fit.forecast(slow).step_sec > 1.5 * fit.forecast(knobs).step_sec


@pytest.mark.parametrize(("objective", "expected"), [("time", None), ("cost", None), ("energy", 0.7), ("carbon", 0.7)])
def test_less_power_is_for_those_who_count_it(objective: Objective, expected: float | None) -> None:
    machine, knobs = plant.RIGHT
    seen = machine.interval(knobs, 0)._replace(device_use=0.95)
    decision = Model().decide([seen], plant.room(knobs, objective, allowed={"power_share": (0.7, 1.0)}))
    assert (None if decision is None else decision.value) == expected


def test_more_nodes_are_for_those_in_a_hurry() -> None:
    machine, knobs = plant.RIGHT
    history, allowed = [machine.interval(knobs, 0)], {"nodes": (1, 2)}
    hurried = Model().decide(history, plant.room(knobs, "time", allowed=allowed))
    assert hurried is not None
    assert (hurried.knob, hurried.value, hurried.was) == ("nodes", 2, 1)
    assert Model().decide(history, plant.room(knobs, "cost", allowed=allowed)) is None


def test_sixteen_bits_are_tried_on_a_gpu_alone() -> None:
    machine, knobs = plant.RIGHT
    seen, room = machine.interval(knobs, 0), plant.room(knobs, allowed={"precision": ("bf16", "fp32")})
    assert Model().decide([seen], room) is None
    decision = Model().decide([seen._replace(device_use=0.9)], room)
    assert decision is not None
    assert decision.value == "bf16"


def test_without_a_noise_scale_the_batch_stays() -> None:
    machine, knobs = plant.BATCH_TOO_SMALL
    history = plant.run(Model(), replace(machine, noise_scale=None), 40, plant.room(knobs))
    assert {each.knobs.batch_size for each in history} == {knobs.batch_size}


def test_without_figures_it_decides_nothing() -> None:
    machine, knobs = plant.DATA_BOUND
    seen = machine.interval(knobs, 0)
    assert Model().decide([seen], plant.room(knobs)) is not None
    assert Model().decide([seen._replace(usd_per_hour=None)], plant.room(knobs, "cost")) is None
    assert Model().decide([seen._replace(g_per_kwh=None)], plant.room(knobs, "carbon")) is None
    assert Model().decide([seen._replace(told=("the clock went back",))], plant.room(knobs)) is None
    assert Model().decide([seen._replace(images_per_sec=0.0)], plant.room(knobs)) is None


def test_its_gain_must_pass_the_threshold() -> None:
    machine, knobs = plant.DATA_BOUND
    history, room = [machine.interval(knobs, 0)], plant.room(knobs)
    decision = Model().decide(history, room)
    assert decision is not None
    assert Model(threshold=decision.expected_gain + 0.01).decide(history, room) is None


@settings(deadline=None)
@given(plant.shown())
def test_any_history_leads_to_an_allowed_change_and_always_to_the_same(shown: plant.Shown) -> None:
    history, room = shown
    decision = Model().decide(history, room)
    assert decision == Model().decide(list(history), room)
    if decision is not None:
        assert decision.value in room.allowed[decision.knob]
        assert decision.was == getattr(history[-1].knobs, decision.knob) != decision.value


def _at(interval: Interval, knobs: Knobs, speed: float) -> Interval:
    return interval._replace(knobs=knobs, images_per_sec=speed * interval.images_per_sec)
