"""The policy that goes by what earlier decisions brought."""

from typing import Any

import pytest
from hypothesis import given, settings

from gangway.trainer.config.values.control import JUDGE
from gangway.trainer.control.interval import Decision, Interval, Knobs, Room
from gangway.trainer.control.learned import Learned, Trial, context_of, get_trials
from tests.trainer.control import rooms
from tests.trainer.control.closed_loop import SECONDS

START = Knobs(batch_size=128, loader_threads=1, threads=4)


@pytest.mark.parametrize("seed", range(5))
def test_it_loses_little_where_all_is_right(seed: int) -> None:
    loop = rooms.loop_of("learned", rooms.RIGHT, 120, seed=seed, lost_sec=10.0)
    assert loop.made(loop.run().history) >= 0.98


def test_a_reward_is_measured_from_both_sides_of_a_change() -> None:
    history = _changed([100.0, 102.0, 100.0], [10.0, 150.0, 150.0, 90.0])
    there, back = get_trials(history, rooms.room(START))
    assert (there.arm.knob, there.arm.was, there.arm.value, there.arm.up) == ("loader_threads", 1, 2, True)
    assert there.reward == pytest.approx(150 / 101 - 1)
    assert (back.arm.was, back.arm.value, back.arm.up) == (2, 1, False)
    assert back.reward == pytest.approx(101 / 150 - 1)
    assert (there.lost_sec, back.lost_sec) == (0.0, 0.0)


def test_what_a_change_cost_counts_until_it_is_undone() -> None:
    history = _changed([100.0, 100.0], [80.0, 80.0, 80.0])
    history[-1] = history[-1]._replace(decision=_decision(1, 2, by=JUDGE))
    history += _intervals([100.0], START)
    assert _lost_sec(get_trials(history, rooms.room(START))) == pytest.approx(0.2 * 3 * SECONDS)


def test_undoing_is_no_trial_of_its_own() -> None:
    history = _intervals([80.0, 80.0], START.with_value("loader_threads", 2))
    history[-1] = history[-1]._replace(decision=_decision(1, 2, by=JUDGE))
    assert get_trials([*history, *_intervals([100.0], START)], rooms.room(START)) == []


def test_an_estimate_of_the_noise_that_moves_is_no_reward() -> None:
    history = _changed([100.0, 100.0], [100.0, 100.0])
    moved = [each._replace(noise_scale=(number + 1) * 100.0) for number, each in enumerate(history)]
    start = START._replace(batch_size=32)
    assert get_trials(moved, rooms.room(start))[0].reward == pytest.approx(0.0)


@pytest.mark.parametrize("meanwhile", [{"neighbour_cores": 2.0}, {"resolution": 64}, {"workers": 3}])
def test_what_came_meanwhile_is_no_reward(meanwhile: dict[str, Any]) -> None:
    history = _changed([100.0, 100.0], [40.0, 40.0, 40.0])
    assert len(get_trials(history, rooms.room(START))) == 2
    told = [*history[:2], *(each._replace(**meanwhile) for each in history[2:])]
    assert get_trials(told, rooms.room(START)) == []


def test_only_what_a_knob_hangs_on_tells_contexts_apart() -> None:
    seen = rooms.DATA_BOUND[0].still(START)
    assert context_of(seen).data == 2
    assert context_of(seen._replace(loader_share=0.0)).data == 0
    assert context_of(seen._replace(neighbour_cores=2.0)).crowded
    assert [context_of(seen._replace(noise_scale=noise)).batch for noise in (None, 50.0, 200.0, 5000.0)] == [
        None,
        1,
        0,
        -1,
    ]


def test_beyond_its_budget_it_takes_only_what_it_knows_to_pay() -> None:
    machine, knobs = rooms.DATA_BOUND
    seen, room = machine.still(knobs), rooms.room(knobs)
    assert any(_decided([seen], room, lost_sec=60.0))
    assert not any(_decided([seen], room, lost_sec=0.0))
    back = _changed([100.0, 100.0], [150.0, 150.0])
    back[-1] = back[-1]._replace(decision=_decision(1, 2, by="user"))
    known = [*back, *_intervals([100.0, 100.0], START)]
    assert {each and (each.knob, each.value) for each in _decided(known, room, lost_sec=0.0)} == {("loader_threads", 2)}


@pytest.mark.parametrize("seed", range(5))
def test_it_loses_no_more_than_its_budget_and_one_trial(seed: int) -> None:
    history = rooms.loop_of("learned", rooms.RIGHT, 300, seed=seed, lost_sec=5.0).run().history
    trials = get_trials(history, rooms.room(rooms.RIGHT[1], seed=seed))
    assert _lost_sec(trials) <= 5.0 + max((each.lost_sec for each in trials), default=0.0)


def test_without_figures_it_decides_nothing() -> None:
    machine, knobs = rooms.DATA_BOUND
    seen = machine.still(knobs)
    assert not any(_decided([seen._replace(usd_per_hour=None)], rooms.room(knobs, "cost")))
    assert not any(_decided([seen._replace(told=("the clock went back",))], rooms.room(knobs)))


@settings(deadline=None)
@given(rooms.shown())
def test_any_history_leads_to_an_allowed_step_and_always_to_the_same(shown: rooms.Shown) -> None:
    history, room = shown
    decision = Learned().decide(history, room)
    assert decision == Learned().decide(list(history), room)
    if decision is not None:
        values = list(room.allowed[decision.knob])
        assert decision.was == getattr(history[-1].knobs, decision.knob)
        assert abs(values.index(decision.value) - values.index(decision.was)) == 1


def _decided(history: list[Interval], room: Room, lost_sec: float = 300.0) -> list[Decision | None]:
    """With several seeds."""
    return [Learned(lost_sec).decide(history, room._replace(seed=seed)) for seed in range(5)]


def _lost_sec(trials: list[Trial]) -> float:
    return sum(each.lost_sec for each in trials)


def _decision(value: int, was: int, by: str) -> Decision:
    return Decision("loader_threads", value, was, by, "a test", 0.1, "nothing")


def _intervals(per_sec: list[float], knobs: Knobs) -> list[Interval]:
    machine = rooms.DATA_BOUND[0]
    return [machine.still(knobs)._replace(images_per_sec=each) for each in per_sec]


def _changed(before: list[float], after: list[float]) -> list[Interval]:
    """A second loader thread, after some intervals."""
    first = _intervals(before, START)
    first[-1] = first[-1]._replace(decision=_decision(2, 1, by="learned"))
    return [*first, *_intervals(after, START.with_value("loader_threads", 2))]


@pytest.mark.parametrize(("was", "value", "up"), [(0, 16, False), (16, 0, True), (16, 32, True), (32, 16, False)])
def test_the_whole_share_is_the_most_images_at_once(was: int, value: int, up: bool) -> None:
    start = START._replace(batch_gpu=was)
    made = Decision("batch_gpu", value, was, "learned", "", 0.1, "")
    after = _intervals([100.0, 100.0, 100.0], start._replace(batch_gpu=value))
    before = _intervals([100.0, 100.0], start)
    there, back = get_trials([before[0], before[1]._replace(decision=made), *after], rooms.room(start))
    assert (there.arm.up, back.arm.up) == (up, not up)
