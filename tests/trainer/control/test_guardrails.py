"""Nothing out of bounds, nothing by meters that cannot be believed, nothing too often, nothing for ever."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangway.trainer.config.values.control import JUDGE, Bounds, ControlSettings
from gangway.trainer.control.decide import next_decision
from gangway.trainer.control.guardrails import Machine, allowed_values, doubled, idle_bounds, ladders, lost_sec
from gangway.trainer.control.interval import Decision, Fixed, Interval, Knobs, Policy, Room, Value
from gangway.trainer.control.learned import Learned
from gangway.trainer.control.model import Model
from gangway.trainer.control.rules import Rules
from tests.trainer.control.closed_loop import Loop, Plant

START = Knobs(batch_size=64, loader_threads=1, threads=2)
Broken = Callable[[Interval, int], Interval]


class Restless:
    """Wants something else each time, whatever it costs."""

    name = "restless"

    def __init__(self, pick: Callable[[Room, int], tuple[str, Value] | None]) -> None:
        self._pick, self._asked = pick, 0

    def decide(self, history: Sequence[Interval], room: Room) -> Decision | None:
        self._asked += 1
        found = self._pick(room, self._asked)
        if found is None:
            return None
        return Decision(*found, getattr(history[-1].after, found[0]), self.name, "", 0.0, "")


def _another(room: Room, asked: int) -> tuple[str, Value] | None:
    knobs = sorted(room.allowed)
    if not knobs:
        return None
    knob = knobs[asked % len(knobs)]
    return knob, room.allowed[knob][asked % len(room.allowed[knob])]


@settings(max_examples=40, deadline=None)
@given(
    loaders=st.tuples(st.integers(1, 4), st.integers(4, 8)),
    batch=st.tuples(st.integers(1, 64), st.integers(64, 4096)),
    group=st.sampled_from([1, 4]),
    seed=st.integers(0, 99),
)
def test_no_policy_gets_out_of_bounds(loaders: tuple[int, int], batch: tuple[int, int], group: int, seed: int) -> None:
    bounds = Bounds(loader_threads=loaders, batch_size=batch)
    loop = Loop(
        Plant(noise_scale=50.0),
        START._replace(loader_threads=loaders[0]),
        ControlSettings(bounds=bounds, decisions_per_hour=10_000, lost_sec=1e6),
        policy=Restless(_another),
        seed=seed,
    )
    for each in loop.run().history:
        assert loaders[0] <= each.knobs.loader_threads <= loaders[1]
        assert batch[0] <= each.knobs.batch_size <= batch[1]
        assert 1 <= each.knobs.threads <= 4
        assert (each.knobs.precision, each.knobs.batch_gpu, each.knobs.power_share) == ("fp32", 0, 1.0)


@pytest.mark.parametrize("pick", [("batch_size", 1 << 20), ("precision", "fp16"), ("nodes", 99), ("threads", 2)])
def test_what_a_policy_may_not_is_told_and_not_done(pick: tuple[str, Value]) -> None:
    run = Loop(Plant(), START, policy=Restless(lambda room, asked: pick), intervals=5).run()
    assert all(each.decision is None for each in run.history)
    assert all(outcome.warning and pick[0] in outcome.why for outcome in run.outcomes)


BROKEN: dict[str, Broken] = {
    "not a number": lambda each, number: each._replace(images_per_sec=math.nan),
    "below zero": lambda each, number: each._replace(loader_share=-0.5),
    "infinite": lambda each, number: each._replace(neighbour_cores=math.inf),
    "no images": lambda each, number: each._replace(images_per_sec=0.0),
    "more than all of the time": lambda each, number: each._replace(loader_share=7.0),
    "more than all cores": lambda each, number: each._replace(cpu_use=2.0),
    "clock back": lambda each, number: each._replace(told=("the clock went from 9.0 s to 1.0 s",)),
    "absent": lambda each, number: each._replace(watts=None if number % 2 else each.watts),
    "standing still": lambda each, number: each._replace(watts=123.456),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_meter_leads_to_no_action_and_a_warning(name: str) -> None:
    plant = Plant(read_sec=0.006, compute_sec=0.002)
    fine = Loop(plant, START, intervals=40).run()
    assert any(each.decision for each in fine.history), "there is something to mend"
    break_it = BROKEN[name]
    from_here = 10

    def broken(each: Interval, number: int) -> Interval:
        return break_it(each, number) if number >= from_here else each

    run = Loop(plant, START, policy=Late(from_here + 10), broken=broken, intervals=40).run()
    warned = [outcome for outcome in run.outcomes[from_here + 10 :] if outcome.warning]
    assert warned
    assert all(outcome.decision is None for outcome in warned)
    acted = [number for number, each in enumerate(run.history) if each.decision]
    assert all(number % 2 == 0 for number in acted) if name == "absent" else not acted


@pytest.mark.parametrize("policy", [Rules(), Model(), Learned(least=-1.0)], ids=lambda policy: policy.name)
@pytest.mark.parametrize("figure", [{"images_per_sec": 0.0}, {"loader_share": 7.0}, {"cpu_wait_share": 2.0}], ids=str)
@pytest.mark.parametrize("place", [-1, -2])
def test_no_policy_decides_by_a_value_that_cannot_be(policy: Policy, figure: dict[str, Any], place: int) -> None:
    """Of the last interval, none at all; of the one before, nothing that rests on both."""
    seen = Interval(0, 10.0, 100.0, START, loader_share=0.5, cores=4, noise_scale=100.0)
    history = [seen._replace(images_per_sec=100.0 + number) for number in range(4)]
    room = Room({"loader_threads": (1, 2)}, "time", START, on_cpu=True)
    assert policy.decide(history, room) is not None
    history[place] = history[place]._replace(**figure)
    ((name, value),) = figure.items()
    assert f"{name} is {value:g}" in "; ".join(history[place].invalid)
    if place == -1 or isinstance(policy, Rules):
        assert policy.decide(history, room) is None


class Late(Restless):
    """Wants more loader threads from some interval on."""

    def __init__(self, first: int) -> None:
        super().__init__(lambda room, asked: ("loader_threads", 2) if asked > first else None)


@pytest.mark.parametrize(
    "meter", ["neighbour_cores", "cpu_wait_share", "host_memory_share", "device_memory_share", "device_use", "watts"]
)
def test_a_figure_that_is_no_more_decides_nothing(meter: str) -> None:
    had = Interval(0, 10.0, 100.0, START, neighbour_cores=1.0, host_memory_share=0.5, device_memory_share=0.5)
    had = had._replace(device_use=0.5, watts=100.0, cpu_wait_share=0.3)
    history = [had._replace(images_per_sec=100.0 + number) for number in range(3)]
    asked = Restless(lambda room, asked: ("loader_threads", 2))
    assert next_decision(history, asked, ControlSettings(), START, Machine(4)).decision is not None
    none: dict[str, Any] = {meter: None}
    gone = [*history, history[-1]._replace(**none)]
    told = next_decision(gone, asked, ControlSettings(), START, Machine(4))
    assert (told.decision, told.warning) == (None, True)
    assert meter in told.why


def test_nobody_counting_waits_was_once_written_as_none_of_them() -> None:
    had = Interval(0, 10.0, 100.0, START, cpu_wait_share=0.0)
    history = [had, had._replace(images_per_sec=101.0, cpu_wait_share=None)]
    asked = Restless(lambda room, asked: ("loader_threads", 2))
    assert next_decision(history, asked, ControlSettings(), START, Machine(4)).decision is not None


@pytest.mark.parametrize(
    ("rate", "interval_sec", "hours", "most"),
    [(3, 10, 1.0, 3), (0.5, 60, 2.0, 1), (2.5, 60, 1.2, 3), (0.25, 60, 4.0, 1)],
)
def test_no_more_changes_an_hour_than_allowed(rate: float, interval_sec: float, hours: float, most: int) -> None:
    limited = ControlSettings(decisions_per_hour=rate, min_gain=0.0, patience=1, interval_sec=interval_sec)
    run = Loop(Plant(), START, limited, intervals=900, policy=Restless(_another)).run()
    made = [number for number, each in enumerate(run.history) if each.decision and each.decision.policy != JUDGE]
    assert len(made) > 1
    for number in made:
        assert sum(number - 3600 / interval_sec * hours < other <= number for other in made) <= most


def test_a_start_out_of_bounds_may_stay_and_is_nothing_to_return_to() -> None:
    asked = ControlSettings(bounds=Bounds(prefetch=(4, 8)))
    start = START._replace(prefetch=2)
    now = Interval(0, 10.0, 100.0, start)
    assert allowed_values(asked, start, Machine(4), [now])["prefetch"] == (2, 4, 8)
    later = now._replace(knobs=start._replace(prefetch=4))
    assert allowed_values(asked, start, Machine(4), [later])["prefetch"] == (4, 8)
    more = START._replace(prefetch=16)
    assert 16 in allowed_values(ControlSettings(), more, Machine(4), [now])["prefetch"], "it may without bounds"


def test_what_may_be_lost_by_trying_is_bounded() -> None:
    """A policy that would try for ever is left with undoing."""
    settings = ControlSettings(lost_sec=40, decisions_per_hour=10_000, interval_sec=10)
    worse = Restless(lambda room, asked: next(
        ((knob, values[0]) for knob, values in room.allowed.items() if knob == "threads"), None
    ))  # fmt: skip
    run = Loop(Plant(), START._replace(threads=4), settings, intervals=600, policy=worse).run()
    assert 0 < lost_sec(run.history) <= 40 + 5 * 10
    assert any("were lost" in outcome.why for outcome in run.outcomes)
    assert run.history[-1].knobs.threads == 4


def test_an_actuator_that_fails_is_not_asked_for_ever() -> None:
    failed = Decision("loader_threads", 2, 1, "rules", "", 0.1, "")
    history = [Interval(0, 10.0, 100.0, START, failed=failed)] * 3
    assert "loader_threads" in allowed_values(ControlSettings(), START, Machine(4), history[:2])
    assert "loader_threads" not in allowed_values(ControlSettings(), START, Machine(4), history)


def test_what_cannot_be_turned_is_not_offered() -> None:
    asked = ControlSettings(bounds=Bounds(batch_size=(16, 256), watts=(100.0, 700.0)))
    history = [Interval(0, 10.0, 100.0, START)]
    assert "batch_size" in allowed_values(asked, START, Machine(4), history)
    assert "batch_size" not in allowed_values(asked, START, Machine(4, fixed=("batch_size",)), history)
    assert "power_share" not in allowed_values(asked, START, Machine(4), history)
    assert "threads" not in allowed_values(asked, START, Machine(4, on_cpu=False), history)
    powered = allowed_values(asked, START, Machine(4, limit_watts=700.0, power_floor=0.6), history)
    assert powered["power_share"] == (0.6, 0.7, 0.8, 0.9, 1.0)


@pytest.mark.parametrize(
    ("back", "tried", "left"), [(64, 16, {32}), (0, 16, {32}), (16, 64, {8, 32}), (16, 0, {8, 32})]
)
def test_the_whole_share_cools_down_as_the_number_of_images_that_it_is(back: int, tried: int, left: set[Value]) -> None:
    asked = ControlSettings(bounds=Bounds(batch_gpu=(8, 64)))
    start = START._replace(batch_gpu=back)
    undone = Decision("batch_gpu", back, tried, JUDGE, "", -0.1, "")
    now = Interval(0, 10.0, 100.0, start._replace(batch_gpu=tried), workers=1, decision=undone)
    found = allowed_values(asked, start, Machine(4), [now, now._replace(knobs=start, decision=None)])
    assert set(found["batch_gpu"]) - {back} == left


@pytest.mark.parametrize("undone", [1, 2])
@pytest.mark.parametrize("beside", [False, True])
def test_what_was_undone_alone_may_be_tried_once_beside_a_neighbour(undone: int, beside: bool) -> None:
    less = Decision("threads", 1, 2, "rules", "", 0.1, "")
    back = less._replace(policy=JUDGE, value=2, was=1)
    start = START._replace(threads=2)
    began = Interval(0, 10.0, 100.0, start, neighbour_cores=0.0, decision=less)
    ended = Interval(0, 10.0, 90.0, start._replace(threads=1), neighbour_cores=0.0, decision=back)
    now = Interval(0, 10.0, 50.0, start, neighbour_cores=1.0 if beside else 0.0)
    found = allowed_values(ControlSettings(), start, Machine(4), [*[began, ended] * undone, now])
    assert (1 in found.get("threads", ())) is (beside and undone == 1)
    unknown = now._replace(neighbour_cores=None)
    found = allowed_values(ControlSettings(), start, Machine(4), [*[began, ended] * undone, unknown])
    assert 1 not in found.get("threads", ())


def test_an_objective_without_its_figure_decides_nothing() -> None:
    history = [Interval(0, 10.0, 100.0, START)] * 3
    for objective in ("cost", "carbon"):
        told = next_decision(history, Fixed(), ControlSettings(objective=objective), START, Machine(4))
        assert told.warning
        assert objective in told.why


@given(st.integers(1, 4096), st.integers(1, 64), st.integers(64, 1 << 16))
def test_sizes_are_the_first_one_times_powers_of_two(first: int, least: int, most: int) -> None:
    found = doubled(first, least, most)
    assert found == sorted(set(found))
    assert all(least <= each <= most and math.log2(each / first).is_integer() for each in found)
    if least <= first <= most:
        assert first in found


def test_the_same_history_gives_the_same_decision() -> None:
    history: Any = Loop(Plant(read_sec=0.006), START, intervals=30).run().history
    for name in ("rules", "model", "learned"):
        asked = ControlSettings(policy=name)
        from gangway.trainer.control.decide import get_policy

        found = [next_decision(history[:n], get_policy(asked), asked, START, Machine(4), seed=3) for n in (5, 17, 30)]
        again = [next_decision(history[:n], get_policy(asked), asked, START, Machine(4), seed=3) for n in (5, 17, 30)]
        assert found == again


@pytest.mark.parametrize(
    ("batch_gpu", "found"), [(0, (4, 8, 16, 32, 0)), (64, (4, 8, 16, 32, 64)), (16, (4, 8, 16, 32, 64))]
)
def test_images_at_once_go_up_to_the_whole_share(batch_gpu: int, found: tuple[int, ...]) -> None:
    """In order, and nothing twice."""
    start = Knobs(64, batch_gpu=batch_gpu)
    asked = ControlSettings(bounds=Bounds(batch_gpu=(4, 128), batch_size=(64, 128)))
    assert allowed_values(asked, start, Machine(4), [Interval(0, 10.0, 100.0, start)])["batch_gpu"] == found


def test_fixed_undoes_nothing_that_another_policy_has_changed() -> None:
    more = Decision("loader_threads", 2, 1, "rules", "", 0.3, "")
    history = [Interval(0, 10.0, 100.0, START, decision=more)]
    history += [Interval(0, 10.0, 50.0, START._replace(loader_threads=2))] * 4
    assert next_decision(history, Fixed(), ControlSettings(policy="fixed"), START, Machine(4)).decision is None
    assert next_decision(history, Fixed(), ControlSettings(policy="rules"), START, Machine(4)).decision is not None


BEGUN = Knobs(batch_size=96, batch_gpu=0, loader_threads=2, prefetch=2, threads=2)
CPU = Machine(cores=4, workers=2, local_workers=2, group=4)
GPU = CPU._replace(on_cpu=False, limit_watts=700.0, power_floor=0.3)


@pytest.mark.parametrize(
    ("bounds", "machine", "said"),
    [
        ({"nodes": [1, 4]}, CPU, "job.autoscale"),
        ({"usd_per_hour": 9.5}, CPU, "job.autoscale"),
        ({"threads": [1, 2]}, GPU, "run on the device"),
        ({"watts": [300, 700]}, CPU, "nobody limits"),
        ({"watts": [100, 200]}, GPU, "210 to 700 W"),
        ({"watts": [631, 699]}, GPU, "in tenths of 700"),
        ({"watts": [400, 900]}, GPU, "210 to 700 W"),
        ({"compile": True}, CPU._replace(fixed=("compile",)), "cannot be changed"),
        ({"batch_size": [90, 100]}, CPU, "no value from 90 to 100 but 96"),
        ({"batch_gpu": [5, 7]}, CPU, "whole groups of 4"),
        ({"batch_gpu": [12, 24]}, CPU, "begins with 48"),
        ({"batch_gpu": [12, 96]}, CPU, "share of the batch, 48"),
        ({"loader_threads": [3, 4]}, CPU, "begins with 2"),
        ({"batch_size": [96, 96]}, CPU, "no value from 96 to 96 but 96"),
        ({"batch_gpu": [48, 48]}, CPU, "no value from 48 to 48 but 48"),
        ({"precision": ["fp32"]}, CPU, "no format in it but fp32"),
        ({"precision": ["fp32", "fp16", "bf16"]}, CPU._replace(refused=(("fp16", "slow"), ("bf16", "old"))), "bf16"),
        ({"precision": ["fp32", "fp16"]}, CPU._replace(refused=(("fp16", "slow here"),)), "slow here"),
    ],
)
def test_what_is_of_no_use_is_named_with_the_reason(bounds: dict[str, object], machine: Machine, said: str) -> None:
    ((name, why),) = idle_bounds(Bounds.model_validate(bounds), BEGUN, machine)
    assert name in bounds
    assert said in why


@pytest.mark.parametrize(
    ("bounds", "machine"),
    [
        ({}, CPU),
        ({"threads": [1, 4], "loader_threads": [1, 4], "prefetch": [1, 8], "compile": True}, CPU),
        ({"batch_size": [24, 192], "batch_gpu": [12, 96], "precision": ["fp32", "bf16"]}, CPU),
        ({"loader_threads": [2, 2], "threads": [2, 2], "prefetch": [2, 2]}, CPU),  # which they would not stay at
        ({"watts": [350, 700]}, GPU),
    ],
)
def test_what_can_be_used_is_not_spoken_of(bounds: dict[str, object], machine: Machine) -> None:
    assert dict(idle_bounds(Bounds.model_validate(bounds), BEGUN, machine)) == {}


def test_formats_that_devices_refuse_and_images_beyond_a_share_are_never_tried() -> None:
    bounds = Bounds(precision=("fp32", "bf16", "fp16"), batch_gpu=(12, 400))
    found = ladders(bounds, BEGUN, CPU._replace(refused=(("bf16", "too old"),)))
    assert list(found["precision"]) == ["fp32", "fp16"]
    assert list(found["batch_gpu"]) == [12, 24, 48]
