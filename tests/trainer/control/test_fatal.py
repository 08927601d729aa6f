"""What a session did not outlive is read out of its log and left alone for good; an orderly end is none."""

from typing import Any

import pytest

from tests.trainer.control.lines import KNOBS, line
from trainer.config.control import JUDGE, Bounds, ControlSettings
from trainer.control.fatal import Fatal, fatal_changes, to_undo
from trainer.control.guardrails import Machine, allowed
from trainer.control.interval import Decision, Interval, Knobs, Value
from trainer.control.watch import history_of

SEC = 5.0
TRIED = Decision("loader_threads", 4, 1, "rules", "it waits", 0.2, "it does not pay")
Lines = list[dict[str, Any]]


def event(name: str, images: int, session: int = 0, **more: Any) -> dict[str, Any]:
    return {"event": name, "time": 1.8e9, "images": images, "session": session, **more}


def begun(images: int, made: Decision = TRIED) -> dict[str, Any]:
    return event("decision-begun", images, **made._asdict())


def done(images: int, outcome: str = "done", made: Decision = TRIED) -> dict[str, Any]:
    return event("decision", images, outcome=outcome, **made._asdict())


BEFORE = [line(0, 0), line(6, 60)]
TURNED = {"knobs": KNOBS._replace(loader_threads=4)._asdict()}
AFTER = [event("resume", 60, 1), line(0, 60, session=1), line(6, 120, session=1)]


@pytest.mark.parametrize(
    ("between", "why"),
    [
        ([begun(60)], "killed"),
        ([begun(60), done(60)], "killed"),
        ([begun(60), done(60), line(8, 80, **TURNED)], "killed"),
        ([begun(60), done(60), event("failed", 64, why="LoneError: no memory")], "LoneError: no memory"),
    ],
)
def test_what_a_session_did_not_outlive_is_found_with_its_last_words(between: Lines, why: str) -> None:
    (found,) = fatal_changes([*BEFORE, *between, *AFTER], SEC)
    assert (found.session, found.images, found.decision) == (0, 60, TRIED)
    assert why in found.why


@pytest.mark.parametrize(
    "between",
    [
        [],
        [begun(60), done(60), event("interrupt", 64, cause="SIGTERM")],
        [begun(60), done(60), event("done", 64, state_sha256={})],
        [begun(60), done(60, "failed")],
        [begun(60), done(60), line(12, 130, **TURNED), event("failed", 140, why="the disk is full")],
        [begun(60, TRIED._replace(policy=JUDGE)), done(60, made=TRIED._replace(policy=JUDGE))],
    ],
)
def test_an_orderly_end_an_interval_and_what_the_judge_turns_back_are_none(between: Lines) -> None:
    assert fatal_changes([*BEFORE, *between, *AFTER], SEC) == []


def test_a_session_that_still_runs_has_lost_nothing() -> None:
    assert fatal_changes([*BEFORE, begun(60), done(60)], SEC) == []


def test_it_counts_as_failed_and_the_knobs_are_those_before() -> None:
    lines = [*BEFORE, begun(60), done(60), *AFTER]
    fatal = fatal_changes(lines, SEC)
    (plain, *_), (found, *_) = (
        history_of(lines, SEC, 60, failed) for failed in ((), [(each.session, each.images) for each in fatal])
    )
    assert (plain.decision, plain.after.loader_threads) == (TRIED, 4), "what would be restored without it"
    assert (found.decision, found.failed, found.after.loader_threads) == (None, TRIED, 1)


@pytest.mark.parametrize(
    ("knob", "was", "value", "left"),
    [
        ("batch_gpu", 16, 32, (8, 16)),
        ("batch_gpu", 32, 8, (16, 32, 64)),
        ("precision", "fp32", "bf16", ("fp32", "fp16")),
        ("compile", "off", "on", None),
    ],
)
def test_its_value_and_what_is_beyond_are_never_allowed_again(
    knob: str, was: Value, value: Value, left: tuple[Value, ...] | None
) -> None:
    bounds = Bounds(batch_gpu=(8, 64), precision=("fp32", "bf16", "fp16"), compile=True)
    start = Knobs(64, batch_gpu=16 if was != 32 else 32)
    history = [Interval(1000 * number, 10.0, 100.0, start) for number in range(1, 3000)]
    machine = Machine(4, fatal=((knob, was, value),))
    found = allowed(ControlSettings(bounds=bounds), start, machine, history)
    assert found.get(knob) == left
    assert value in allowed(ControlSettings(bounds=bounds), start, Machine(4), history)[knob]


def test_what_a_checkpoint_has_kept_of_it_is_undone_first() -> None:
    made = Decision("batch_gpu", 32, 16, "model", "", 0.1, "")
    fatal = [Fatal(0, 60, made, "killed"), Fatal(1, 60, TRIED, "killed")]
    (undo,) = to_undo(fatal, Knobs(64, batch_gpu=32, loader_threads=4), ("batch_gpu",))
    assert (undo.knob, undo.value, undo.was, undo.policy) == ("batch_gpu", 16, 32, JUDGE)
    assert to_undo(fatal, Knobs(64, batch_gpu=16), ("batch_gpu",)) == []
