"""What is kept of a long run gives the sums and verdicts of all of it, however often it was shortened."""

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangway.trainer.config.values.control import JUDGE, ControlSettings
from gangway.trainer.control import decide as module
from gangway.trainer.control.decide import shorten, standing_decisions
from gangway.trainer.control.guardrails import failures, is_too_often, loss_reason, lost_sec
from gangway.trainer.control.interval import Decision, Interval, Knobs
from gangway.trainer.control.judge import judge
from tests.trainer.control.closed_loop import Loop, Plant

START = Knobs(64, loader_threads=1, threads=2)
ASKED = ControlSettings(lost_sec=30.0, decisions_per_hour=1.0)


@st.composite
def histories(draw: st.DrawFn) -> list[Interval]:
    """Long quiet stretches with a few changes, undone or not, failures and guards between them."""
    knobs, found = START, list[Interval]()
    for _ in range(draw(st.integers(1, 4))):
        for number in range(draw(st.integers(1, 60))):
            rate = draw(st.sampled_from([90.0, 100.0, 110.0])) if number < 8 else 100.0
            found.append(Interval(len(found), 10.0, rate, knobs, guard=5.0 if number == 30 else None))
        value, by = draw(st.integers(1, 4)), draw(st.sampled_from(["rules", JUDGE]))
        made = Decision("loader_threads", value, knobs.loader_threads, by, "", 0.1, "")
        if draw(st.booleans()):
            found[-1] = found[-1].ended_by(made, failed=draw(st.booleans()))
        knobs = found[-1].after
    return [*found, Interval(len(found), 10.0, 100.0, knobs)]


@pytest.fixture(autouse=True, scope="module")
def _short() -> Iterator[None]:
    """Forty intervals are many here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_INTERVALS", 40)
        yield


@settings(max_examples=60, deadline=None)
@given(histories())
def test_sums_and_verdicts_are_those_of_the_whole(whole: list[Interval]) -> None:
    kept = list[Interval]()
    for each in whole:
        kept = shorten([*kept, each], ASKED)
    assert kept == shorten(whole, ASKED) == shorten(kept, ASKED)
    assert kept[0].knobs == START
    assert kept[-39:] == whole[-39:]
    assert sum(each.seconds for each in kept) == sum(each.seconds for each in whole)
    for ask in (lost_sec, lambda seen: failures(seen, "loader_threads")):
        assert ask(kept) == pytest.approx(ask(whole))
    assert is_too_often(kept, ASKED) == is_too_often(whole, ASKED)
    assert loss_reason(kept, ASKED) == loss_reason(whole, ASKED)
    assert judge(kept, ASKED, START) == judge(whole, ASKED, START)


def test_a_quiet_run_is_short() -> None:
    quiet = [Interval(number, 10.0, 100.0, START) for number in range(1000)]
    kept = shorten(quiet, ASKED)
    assert len(kept) == 41
    assert kept[0] == quiet[0]
    assert kept[1].seconds == 9600
    assert kept[2:] == quiet[-39:]


@pytest.mark.parametrize(
    ("decisions", "stands"),
    [
        ([], None),
        ([(1, 2)], 2),
        ([(1, 2), (2, 1)], None),  # undone
        ([(1, 2), (2, 3), (3, 2)], 2),
        ([(1, 2), (2, 1), (3, 1)], 1),  # a session between was started with three
        ([(1, 2), (4, 3), (3, 4)], None),
    ],
)
def test_another_session_goes_on_with_what_was_decided_and_not_undone(
    decisions: list[tuple[int, int]], stands: int | None
) -> None:
    history = [Interval(0, 10.0, 100.0, START._replace(prefetch=8))]
    for was, value in decisions:
        made = Decision("loader_threads", value, was, "rules", "", 0.1, "")
        history.append(Interval(0, 10.0, 100.0, START._replace(loader_threads=was), decision=made))
    assert standing_decisions(history) == ({} if stands is None else {"loader_threads": stands})


def test_what_could_not_be_turned_is_nothing_to_go_on_with() -> None:
    made = Decision("loader_threads", 2, 1, "rules", "", 0.1, "")
    assert standing_decisions([Interval(0, 10.0, 100.0, START).ended_by(made, failed=True)]) == {}


REPO = Path(__file__).resolve().parents[3]


def test_the_policy_among_the_examples_works() -> None:
    names = runpy.run_path(str(REPO / "examples/control/more_loaders.py"))
    loop = Loop(
        Plant(read_sec=0.006, compute_sec=0.002), Knobs(batch_size=64, threads=1), policy=names["MoreLoaders"]()
    )
    run = loop.run()
    assert run.history[-1].knobs.loader_threads == 3
    assert run.goodput > 2 * loop.at()
