"""A change stays where it paid, beyond noise; where it did not, or quality got worse, it goes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.config.control import JUDGE, ControlSettings
from trainer.control.interval import Decision, Interval, Knobs
from trainer.control.judge import Verdict, judge, undoing

START = Knobs(batch_size=64, loader_threads=1, threads=2)
SETTINGS = ControlSettings(patience=2, min_gain=0.02)
MORE = Decision("loader_threads", 2, 1, "rules", "", 0.3, "")
BF16 = Decision("precision", "bf16", "fp32", "rules", "", 0.2, "")


def rates(*values: float, knobs: Knobs = START, **more: Any) -> list[Interval]:
    return [Interval(0, 10.0, value, knobs, **more) for value in values]


def changed(before: list[Interval], decision: Decision, after: list[float], **more: Any) -> Verdict:
    last = before[-1]._replace(decision=decision)
    history = [*before[:-1], last, *rates(*after, knobs=last.after, **more)]
    return judge(history, SETTINGS, START)


def test_without_a_change_there_is_nothing_to_judge() -> None:
    assert judge(rates(100, 100), SETTINGS, START).state == "nothing"


@pytest.mark.parametrize("after", [[], [90], [90, 120]])
def test_it_is_given_time(after: list[float]) -> None:
    """The first interval with it does not count, and two have to."""
    assert changed(rates(100, 101, 99), MORE, after).state == "wait"


def test_what_pays_stays_and_is_judged_by_what_it_was_promised() -> None:
    kept = changed(rates(100, 101, 99), MORE, [10, 120, 121])
    assert kept.state == "kept"
    assert kept.gain == pytest.approx(0.205)
    assert changed(rates(100, 101, 99), MORE, [10, 120, 121, 50, 50, 50]) == kept, "what comes later is another matter"


@pytest.mark.parametrize("after", [[200, 90, 90], [200, 101, 101], [200, 100, 100]])
def test_what_does_not_pay_is_undone(after: list[float]) -> None:
    verdict = changed(rates(100, 100, 100), MORE, after)
    assert verdict.state == "undo"
    back = undoing(verdict)
    assert (back.knob, back.value, back.was, back.policy) == ("loader_threads", 1, 2, JUDGE)


def test_a_gain_within_the_noise_before_it_is_none() -> None:
    assert changed(rates(100, 140, 60, 130, 70), MORE, [0, 105, 105]).state == "undo"
    assert changed(rates(100, 101, 99, 101, 99), MORE, [0, 105, 105]).state == "kept"


def test_what_was_before_a_neighbour_came_is_no_measure() -> None:
    alone = rates(200, 200, 200)
    beside = rates(80, 80, cpu_wait_share=0.4, neighbour_cores=1.0)
    assert changed([*alone, *beside], Decision("threads", 1, 2, "rules", "", 0.1, ""), [0, 100, 100]).state == "kept"


def test_networks_that_have_grown_say_nothing_of_it() -> None:
    verdict = changed(rates(100, 100, resolution=16), MORE, [0, 30, 30], resolution=32)
    assert (verdict.state, verdict.gain) == ("kept", None)


def test_what_is_undone_is_not_judged_again() -> None:
    verdict = changed(rates(100, 100), MORE._replace(policy=JUDGE, value=1, was=2), [0, 50, 50, 50])
    assert verdict.state == "nothing"


def guarded(before: list[float], decision: Decision, after: list[float]) -> Verdict:
    values = [each._replace(guard=value) for each, value in zip(rates(*[100] * len(before)), before, strict=True)]
    values[-1] = values[-1]._replace(decision=decision)
    later = rates(*[200] * (len(after) + 1), knobs=values[-1].after)
    later = [later[0], *(each._replace(guard=value) for each, value in zip(later[1:], after, strict=True))]
    return judge([*values, *later], SETTINGS, START)


def test_worse_quality_undoes_a_faster_run_however_late() -> None:
    assert guarded([50, 41, 29, 20], BF16, [15, 14, 13, 40]).state == "undo"
    assert guarded([50, 41, 29, 20], BF16, [15, 14, 13, 12]).state == "kept"
    assert guarded([50, 41, 29, 20], BF16, [22]).state == "wait", "within its noise"
    assert guarded([20], BF16, [21, 21]).state == "kept"
    assert guarded([20], BF16, [30, 30]).state == "undo"


def test_threads_change_no_quality() -> None:
    assert guarded([20, 20, 20], MORE, [90, 90, 90]).state == "kept"


@given(
    before=st.lists(st.floats(1, 1e6), min_size=1, max_size=8),
    after=st.lists(st.floats(1, 1e6), min_size=3, max_size=6),
)
def test_it_stays_only_with_at_least_what_was_asked(before: list[float], after: list[float]) -> None:
    verdict = changed(rates(*before), MORE, after)
    assert verdict.state in ("kept", "undo")
    assert verdict.gain is not None
    if verdict.state == "kept":
        assert verdict.gain >= SETTINGS.min_gain
