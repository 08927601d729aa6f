"""A change stays where it paid, beyond noise; where it did not, or quality got worse, it goes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.config.values.control import JUDGE, Bounds, ControlSettings
from gangway.trainer.control.guardrails import Machine, allowed_values
from gangway.trainer.control.interval import Decision, Interval, Knobs
from gangway.trainer.control.judge import Verdict, judge, undo_change

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
    back = undo_change(verdict)
    assert (back.knob, back.value, back.was, back.policy) == ("loader_threads", 1, 2, JUDGE)


def test_a_gain_within_the_noise_before_it_is_none() -> None:
    assert changed(rates(100, 140, 60, 130, 70), MORE, [0, 105, 105]).state == "undo"
    assert changed(rates(100, 101, 99, 101, 99), MORE, [0, 105, 105]).state == "kept"


LESS = Decision("batch_gpu", 16, 32, "rules", "", 0.0, "")


@pytest.mark.parametrize(
    ("was", "now", "rate", "state"),
    [
        (0.97, 0.6, 90, "kept"),  # slower, and that is what it is for
        (0.97, 0.6, 60, "undo"),  # by too much
        (0.99, 0.95, 98, "kept"),  # on the way
        (0.97, 0.97, 98, "undo"),  # for nothing
        (0.97, 0.97, 150, "undo"),
    ],
)
@pytest.mark.parametrize("place", ["device_memory_share", "host_memory_share"])
def test_fewer_images_at_once_are_judged_by_the_memory_that_was_short(
    was: float, now: float, rate: float, state: str, place: str
) -> None:
    start = START._replace(batch_gpu=32)
    before = rates(100, 101, 99, knobs=start, **{place: was})
    verdict = changed(before, LESS, [50, rate, rate], **{place: now})
    assert verdict.state == state
    assert verdict.gain == pytest.approx(rate / 100 - 1)


def test_where_memory_was_not_short_fewer_images_at_once_have_to_pay() -> None:
    before = rates(100, 101, 99, knobs=START._replace(batch_gpu=32), device_memory_share=0.8)
    assert changed(before, LESS, [90, 90, 90], device_memory_share=0.5).state == "undo"


BROKEN = ("energy_joules is nan",)


@pytest.mark.parametrize("figure", [float("nan"), 500.0])
def test_intervals_of_broken_meters_do_not_count_on_either_side(figure: float) -> None:
    before = [*rates(100, 101), *rates(figure, told=BROKEN, loader_share=0.9), *rates(99)]
    last = before[-1]._replace(decision=MORE)
    told = rates(figure, knobs=last.after, told=BROKEN)
    history = [*before[:-1], last, *rates(10, 120, knobs=last.after), *told]
    assert judge(history, SETTINGS, START).state == "wait"
    kept = judge([*history, *told, *rates(121, knobs=last.after)], SETTINGS, START)
    assert kept.state == "kept"
    assert kept.gain == pytest.approx(0.205)


def test_broken_meters_are_waited_for_no_longer_than_thrice_its_patience() -> None:
    last = rates(100)[0]._replace(decision=MORE)
    history = [*rates(100), last, *rates(10, knobs=last.after), *rates(*[200] * 5, knobs=last.after, told=BROKEN)]
    assert judge(history, SETTINGS, START).state == "wait"
    verdict = judge([*history, *rates(200, knobs=last.after)], SETTINGS, START)
    assert (verdict.state, verdict.gain) == ("undo", None)
    assert "nobody knows" in verdict.why


@pytest.mark.parametrize("guards", [(), (99.0,)])
def test_what_the_runs_own_plan_has_turned_since_is_not_undone(guards: tuple[float, ...]) -> None:
    """By speed or by the guard, however late: the plan's value stays."""
    smaller = Decision("batch_size", 32, 64, "rules", "", 0.2, "")
    last = rates(100, guard=10.0, noise_scale=500.0)[0]._replace(decision=smaller)
    worse = [*rates(100), last, *rates(50, 50, 50, knobs=last.after), *rates(*[50] * len(guards), knobs=last.after)]
    worse = [
        *worse[: len(worse) - len(guards)],
        *(each._replace(guard=99.0) for each in worse[-len(guards) :] if guards),
    ]
    assert judge(worse, SETTINGS, START).state == "undo"
    planned = rates(50, 50, knobs=START._replace(batch_size=128))
    assert judge([*worse, *planned], SETTINGS, START).state == "nothing"


def test_other_knobs_that_the_plan_has_turned_meanwhile_leave_nothing_to_tell() -> None:
    last = rates(100)[0]._replace(decision=MORE)
    after = rates(10, 50, 50, knobs=last.after._replace(batch_size=128))
    verdict = judge([*rates(100), last, *after], SETTINGS, START)
    assert (verdict.state, verdict.gain) == ("kept", None)


@pytest.mark.parametrize("guard", [None, 99.0])
def test_an_undo_that_fails_is_not_tried_for_ever(guard: float | None) -> None:
    last = rates(100, guard=10.0)[0]._replace(decision=BF16)
    back = undo_change(Verdict("undo", BF16))
    after = [each._replace(failed=back, guard=guard) for each in rates(*[50] * 6, knobs=last.after)]
    history = [*rates(100), last, *rates(50, 50, knobs=last.after), *after]
    assert judge(history[:6], SETTINGS, START).state == "undo", "two have failed"
    verdict = judge(history, SETTINGS, START)
    assert verdict.state == "kept"
    assert "failed 3 times" in verdict.why
    assert "precision" not in allowed_values(
        ControlSettings(bounds=Bounds(precision=("fp32", "bf16"))), START, Machine(4), history
    )
    later = [*history[:-1], history[-1]._replace(decision=MORE, failed=None)]
    assert judge(later, SETTINGS, START).decision == MORE, "other knobs are judged on"


def test_a_guard_that_is_no_number_undoes_nothing() -> None:
    assert guarded([50, 41, 29, 20], BF16, [15, 14, float("nan")]).state == "kept"


def test_what_was_before_a_neighbour_came_is_no_measure() -> None:
    alone = rates(200, 200, 200)
    beside = rates(80, 80, cpu_wait_share=0.4, neighbour_cores=1.0)
    less = Decision("threads", 1, 2, "rules", "", 0.1, "")
    assert changed([*alone, *beside], less, [0, 100, 100], neighbour_cores=1.0).state == "kept"


@pytest.mark.parametrize(("beside", "state"), [(60, "kept"), (50, "undo")])
def test_it_is_compared_with_what_was_beside_the_same_neighbours(beside: float, state: str) -> None:
    """Also where the neighbour has changed nothing in what holds the run up."""
    alone, with_others = rates(100, 100, 100, loader_share=0.5), rates(50, 50, loader_share=0.5, neighbour_cores=1.0)
    verdict = changed([*alone, *with_others], MORE, [0, beside, beside], neighbour_cores=1.0)
    assert verdict.state == state
    assert verdict.gain == pytest.approx(beside / 50 - 1)
    gone = changed([*with_others, *alone[:2]], MORE, [0, beside, beside])
    assert gone.state == "undo", "nor is it measured by those that have gone"


BESIDE: dict[str, Any] = {"cpu_wait_share": 0.4, "neighbour_cores": 1.0}


def test_a_neighbour_that_comes_meanwhile_is_not_the_changes_fault() -> None:
    less = Decision("threads", 1, 2, "rules", "", 0.1, "")
    alone, beside = rates(100, 100, neighbour_cores=0.0), rates(*[40] * 2, knobs=START._replace(threads=1), **BESIDE)
    began = [*alone[:-1], alone[-1]._replace(decision=less)]
    assert judge([*began, *beside[:1]], SETTINGS, START).state == "wait"
    again = rates(*[120] * 3, knobs=START._replace(threads=1), neighbour_cores=0.0)
    paid = judge([*began, beside[0], *again], SETTINGS, START)
    assert paid.state == "kept", "once it has gone"
    assert paid.gain == pytest.approx(0.2)
    by_turns = [*began, beside[0], again[0], beside[0], again[0]]
    assert judge(by_turns, SETTINGS, START).gain == pytest.approx(0.2), "those are passed over in which it was there"
    stays = judge([*began, *beside[:2]], SETTINGS, START)
    assert (stays.state, stays.gain) == ("undo", None)
    assert "others have come or gone" in stays.why
    slow = rates(50, knobs=START._replace(threads=1), neighbour_cores=0.0)[0]
    lost = judge([*began, again[0], slow, *beside[:2]], SETTINGS, START)
    assert (lost.state, lost.gain) == ("undo", -0.5), "what it has cost before they came is known"


def test_where_nobody_can_tell_whether_others_are_there_it_is_not_compared() -> None:
    less = Decision("threads", 1, 2, "rules", "", 0.1, "")
    unknown = changed(rates(40, 40, **BESIDE), less, [0, *[100] * 6])
    assert (unknown.state, unknown.gain) == ("undo", None)


@pytest.mark.parametrize("others", [0.0, 1.0])
def test_a_neighbour_that_comes_does_not_bring_a_run_back_to_where_memory_is_short(others: float) -> None:
    start = START._replace(batch_gpu=32)
    before = rates(100, 101, 99, knobs=start, device_memory_share=0.97, neighbour_cores=0.0)
    verdict = changed(before, LESS, [50, 40, 40], device_memory_share=0.6, neighbour_cores=others)
    assert verdict.state == ("kept" if others else "undo"), "only alone its speed is its own"


def test_the_odd_jobs_of_a_large_machine_are_no_neighbour() -> None:
    before = rates(100, 100, cores=192, neighbour_cores=0.2)
    assert changed(before, MORE, [0, 120, 120], cores=192, neighbour_cores=1.5).state == "kept"
    assert changed(before, MORE, [0, 120, 120], cores=192, neighbour_cores=40.0).gain is None
    many = START._replace(nodes=8)
    before = rates(100, 100, knobs=many, cores=8 * 96, neighbour_cores=1.0)
    assert changed(before, MORE, [0, 120, 120], cores=8 * 96, neighbour_cores=30.0).gain is None, "on one of the nodes"


def test_a_change_that_answers_others_goes_with_them() -> None:
    """A run would train on half of its cores until they come back, else."""
    less = Decision("threads", 1, 2, "rules", "", 0.1, "")
    beside, alone = [40, 40, 50], rates(50, 50, knobs=START._replace(threads=1), neighbour_cores=0.0)
    last = rates(*beside[:2], **BESIDE)[-1]._replace(decision=less)
    began = [*rates(*beside[:1], **BESIDE), last, *rates(50, 50, knobs=last.after, neighbour_cores=1.0)]
    assert judge([*began, alone[0]], SETTINGS, START).state == "wait", "they may be back"
    verdict = judge([*began, *alone], SETTINGS, START)
    assert (verdict.state, verdict.decision) == ("undo", less)


LARGER = Decision("batch_size", 128, 64, "rules", "", 0.1, "")


@pytest.mark.parametrize("noise", [None, 10.0, 1e6])
def test_an_estimate_of_the_noise_that_moves_is_no_merit_of_a_change(noise: float | None) -> None:
    before = rates(100, 100, knobs=START._replace(batch_size=256), noise_scale=500.0)
    assert changed(before, MORE, [0, 120, 120], noise_scale=noise).gain == pytest.approx(0.2)


def test_nor_is_a_grid_that_gets_cleaner_by_the_hour() -> None:
    before = rates(100, 100, watts=100.0, g_per_kwh=400.0)
    last = before[-1]._replace(decision=MORE)
    after = rates(0, 100, 100, knobs=last.after, watts=100.0, g_per_kwh=200.0)
    carbon = SETTINGS.model_copy(update={"objective": "carbon"})
    assert judge([before[0], last, *after], carbon, START).gain == pytest.approx(0.0)


def test_another_batch_is_judged_by_the_noise_that_was_known_before() -> None:
    known = changed(rates(100, 100, noise_scale=64.0), LARGER, [0, 120, 120], noise_scale=1e6)
    assert known.gain == pytest.approx(1.2 * (64 + 64) / (64 + 128) - 1)
    unknown = changed(rates(100, 100), LARGER, [0, *[200] * 6], noise_scale=64.0)
    assert (unknown.state, unknown.gain) == ("undo", None)
    assert "noise" in unknown.why


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


def test_the_guard_goes_back_to_changes_that_stand_where_a_later_one_was_undone() -> None:
    first = rates(100, 100, 100, guard=20.0)
    first[-1] = first[-1]._replace(decision=BF16)
    kept = rates(200, 200, 200, knobs=first[-1].after, guard=20.0, noise_scale=500.0)
    kept[-1] = kept[-1]._replace(decision=LARGER)
    spoilt = rates(90, 90, 90, knobs=kept[-1].after, guard=90.0)
    back = undo_change(Verdict("undo", LARGER, -0.5))
    spoilt[-1] = spoilt[-1]._replace(decision=back)
    history = [*first, *kept, *spoilt]
    after = rates(200, 200, 200, knobs=spoilt[-1].after)
    assert judge([*history, *after], SETTINGS, START).state == "nothing", "the larger batch had spoilt it"

    def then(*guards: float) -> Verdict:
        later = [rates(200, knobs=spoilt[-1].after, guard=guard)[0] for guard in guards]
        return judge([*history, *after, *later], SETTINGS, START)

    assert then(60.0).state == "nothing", "on its way back"
    assert (then(95.0).state, then(95.0).decision) == ("undo", BF16)
    assert then(60.0, 20.0).state == "nothing"
    assert then(60.0, 20.0, 40.0).decision == BF16, "it was back"


def test_what_the_plan_says_is_no_older_changes_value() -> None:
    first = rates(100, 100, guard=20.0, noise_scale=500.0)
    first[-1] = first[-1]._replace(decision=LARGER)
    kept = rates(200, 200, 200, knobs=first[-1].after, guard=20.0, noise_scale=500.0)
    worse = rates(200, 200, 200, knobs=first[-1].after, guard=90.0)
    assert judge([*first, *kept, *worse], SETTINGS, START).state == "undo", "nobody has turned it since"
    kept[-1] = kept[-1]._replace(decision=LARGER._replace(value=256, was=128))
    more = rates(300, 300, 300, knobs=kept[-1].after, guard=20.0)
    assert judge([*first, *kept, *more, *worse], SETTINGS, START).state == "nothing", "the plan has"


def test_what_was_watched_when_the_guard_undid_another_is_undone_as_well() -> None:
    first = rates(100, 100, 100, guard=20.0)
    first[-1] = first[-1]._replace(decision=BF16)
    kept = rates(200, 200, 200, knobs=first[-1].after)
    kept[-1] = kept[-1]._replace(decision=MORE)
    worse = rates(50, knobs=kept[-1].after, guard=90.0)[0]._replace(decision=undo_change(Verdict("undo", BF16)))
    after = rates(50, knobs=worse.after)
    verdict = judge([*first, *kept, worse, *after], SETTINGS, START)
    assert (verdict.state, verdict.decision) == ("undo", MORE)
    undone = after[0]._replace(decision=undo_change(verdict))
    assert judge([*first, *kept, worse, undone, *rates(100, knobs=undone.after)], SETTINGS, START).state == "nothing"
    slow = [*rates(150, 150, knobs=kept[-1].after), worse._replace(images_per_sec=150.0)]
    lost = judge([*first, *kept, *slow, *after], SETTINGS, START)
    assert (lost.state, lost.decision, lost.gain) == ("undo", MORE, -0.25), "it was due just then"
    over = rates(210, 210, 210, knobs=kept[-1].after)
    ended = [*over, worse._replace(knobs=over[-1].knobs), *after]
    assert judge([*first, *kept, *ended], SETTINGS, START).state == "nothing", "it was judged before"


def test_what_frees_memory_stays_when_the_guard_undoes_another() -> None:
    first = rates(100, 100, 100, guard=20.0, knobs=START._replace(batch_gpu=32))
    first[-1] = first[-1]._replace(decision=BF16)
    full = rates(200, 200, 200, knobs=first[-1].after, device_memory_share=0.97)
    full[-1] = full[-1]._replace(decision=LESS)
    worse = rates(150, knobs=full[-1].after, guard=90.0, device_memory_share=0.6)[0]
    worse = worse._replace(decision=undo_change(Verdict("undo", BF16)))
    assert judge([*first, *full, worse, *rates(80, knobs=worse.after)], SETTINGS, START).state == "nothing"


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


@pytest.mark.parametrize("meanwhile", [{"workers": 1}, {"workers": 4}, {"cores": 8}])
@pytest.mark.parametrize("rate", [55, 200])
def test_of_a_change_before_a_start_with_other_workers_nobody_can_tell(meanwhile: dict[str, int], rate: float) -> None:
    before = rates(100, 101, 99, workers=2, cores=4)
    verdict = changed(before, MORE, [rate] * 3, **({"workers": 2, "cores": 4} | meanwhile))
    assert (verdict.state, verdict.gain) == ("kept", None)


def test_intervals_of_other_workers_are_nothing_to_compare_with() -> None:
    before = [*rates(300, 300, 300, workers=4), *rates(100, workers=2)]
    assert changed(before, MORE, [10, 120, 120], workers=2).gain == pytest.approx(0.2)
