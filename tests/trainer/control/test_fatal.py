"""What no session has outlived is read out of the log and left alone for good; what ends for another reason is none."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.config.segment_plan import decided_values
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.control import JUDGE, Bounds, ControlSettings
from gangway.trainer.control.guardrails import Machine, allowed_values
from gangway.trainer.control.interval import Decision, Interval, Knobs, Value
from gangway.trainer.control.watch import Fatal, fatal_changes, get_history, is_possible_cause, takes_less, to_undo
from gangway.trainer.core.errors import LoneError, TrainerError, WorkerFailedError, diverged
from tests.trainer.control.rooms import KNOBS, line

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
        [begun(60), done(60, "failed")],
        [begun(60), done(60), line(12, 130, **TURNED), event("failed", 140, why="the disk is full")],
        [begun(60, TRIED._replace(policy=JUDGE)), done(60, made=TRIED._replace(policy=JUDGE))],
    ],
)
def test_an_interval_what_was_not_done_and_what_the_judge_turns_back_are_none(between: Lines) -> None:
    assert fatal_changes([*BEFORE, *between, *AFTER], SEC) == []


ORDERLY = {
    "interrupt": event("interrupt", 64, cause="SIGTERM"),
    "done": event("done", 64, state_sha256={}),
    "another reason": event("failed", 64, why="OSError: [Errno 28] No space left on device"),
}


@pytest.mark.parametrize("end", ORDERLY)
def test_after_an_orderly_end_the_next_session_goes_on_with_the_trial(end: str) -> None:
    """Which may die of it, at once, or before an interval; or go on from before it; or train with it."""
    lines = [*BEFORE, begun(60), done(60), ORDERLY[end]]
    second = event("resume", 64, 1)
    died = event("failed", 64, 1, why="OutOfMemoryError: CUDA out of memory")
    third = event("resume", 64, 2)
    assert fatal_changes([*lines, second], SEC) == []
    with_it, again = line(0, 66, session=1, **TURNED), line(4, 80, session=1, **TURNED)
    for seen in ([], [with_it], [with_it, again]):
        (found,) = fatal_changes([*lines, second, *seen, died, third], SEC)
        assert (found.session, found.images, found.decision) == (0, 60, TRIED)
        assert "CUDA out of memory" in found.why
    trained = line(6, 90, session=1, **TURNED)
    for fine in ([with_it, again, trained], [line(0, 66, session=1)]):
        assert fatal_changes([*lines, second, *fine, died, third], SEC) == []
    before = [event("resume", 30, 1), line(0, 34, session=1), event("failed", 40, 1, why="OutOfMemoryError")]
    assert fatal_changes([*lines, *before, third], SEC) == []


@given(st.lists(st.sampled_from([*ORDERLY, "lasts"]), max_size=6), st.booleans())
def test_however_often_it_was_stopped_it_is_made_once(ends: list[str], is_killed: bool) -> None:
    lines = [*BEFORE, begun(60), done(60)]
    for session, end in enumerate(ends):
        if end == "lasts":
            lines += [line(sec, 80 + sec, session=session, **TURNED) for sec in (9, 15)]
        lines += [{**ORDERLY.get(end, ORDERLY["done"]), "session": session}, event("resume", 80, session + 1)]
    lines += [event("resume", 80, len(ends) + 1)] if is_killed else []
    assert [each.decision for each in fatal_changes(lines, SEC)] == (
        [TRIED] if is_killed and "lasts" not in ends else []
    )


def test_a_session_that_still_runs_has_lost_nothing() -> None:
    assert fatal_changes([*BEFORE, begun(60), done(60)], SEC) == []


def test_it_counts_as_failed_and_the_knobs_are_those_before() -> None:
    lines = [*BEFORE, begun(60), done(60), *AFTER]
    fatal = fatal_changes(lines, SEC)
    (plain, *_), (found, *_) = (
        get_history(lines, SEC, 60, failed) for failed in ((), [(each.session, each.images) for each in fatal])
    )
    assert (plain.decision, plain.after.loader_threads) == (TRIED, 4), "what would be restored without it"
    assert (found.decision, found.failed, found.after.loader_threads) == (None, TRIED, 1)


@pytest.mark.parametrize(
    ("knob", "was", "value", "left"),
    [
        ("batch_gpu", 16, 32, (8, 16)),
        ("batch_gpu", 32, 8, (16, 32, 64)),
        ("batch_gpu", 0, 16, (32, 64)),
        ("batch_gpu", 16, 0, (8, 16, 32)),
        ("precision", "fp32", "bf16", ("fp32", "fp16")),
        ("compile", "off", "on", None),
    ],
)
def test_its_value_and_what_is_beyond_are_never_allowed_again(
    knob: str, was: Value, value: Value, left: tuple[Value, ...] | None
) -> None:
    bounds = Bounds(batch_gpu=(8, 64), precision=("fp32", "bf16", "fp16"), compile=True)
    start = Knobs(64, batch_gpu=int(was or 64) if knob == "batch_gpu" else 16)
    history = [Interval(1000 * number, 10.0, 100.0, start) for number in range(1, 3000)]
    machine = Machine(4, fatal=((knob, was, value),))
    found = allowed_values(ControlSettings(bounds=bounds), start, machine, history)
    assert found.get(knob) == left
    assert set(left or ()) < set(allowed_values(ControlSettings(bounds=bounds), start, Machine(4), history)[knob])


PLANNED = {"from_image": 1280, "batch_size": 128}
DECIDED = {"from_image": 64, "batch_size": 128, "decided": True}


@pytest.mark.parametrize(
    ("segments", "images", "is_undone"),
    [
        ([DECIDED], 64, True),
        ([DECIDED], 640, True),
        ([DECIDED], 32, False),
        ([DECIDED, {"from_image": 320, "precision": "bf16"}], 640, True),
        ([DECIDED, PLANNED], 1344, False),
        ([PLANNED], 1280, False),
        ([DECIDED, {**DECIDED, "from_image": 128, "batch_size": 64}], 640, False),
        ([PLANNED, {"from_image": 1408, "precision": "bf16", "decided": True}], 1536, False),
    ],
)
def test_what_was_decided_is_undone_and_what_the_plan_says_is_not(
    tiny_config: TrainConfig, segments: list[dict[str, object]], images: int, is_undone: bool
) -> None:
    made = Decision("batch_size", 128, 64, "model", "", 0.1, "")
    config = tiny_config.replace({"kimg": 10, "batch_size": 64, "segments": segments})
    fatal = [Fatal(0, 64, made, "killed"), Fatal(1, 64, TRIED, "killed")]
    found = to_undo(fatal, decided_values(config, images))
    assert [(undo.knob, undo.value, undo.was, undo.policy) for undo in found] == (
        [("batch_size", 64, 128, JUDGE)] if is_undone else []
    )
    assert to_undo([each._replace(is_trained=True) for each in fatal], decided_values(config, images)) == []


def test_what_the_run_was_trained_with_since_is_known_and_what_was_told_is_told_once() -> None:
    lines = [*BEFORE, begun(60), done(60), event("resume", 60, 1)]
    long = [line(sec, 60 + sec, session=1, **TURNED) for sec in (0, 3, 6)]
    told = event("decision-fatal", 60, 1, of_session=0, of_images=60, knob="loader_threads", value=4, was=1, why="")
    other = [line(sec, 60 + sec, session=1) for sec in (0, 3, 6)]

    def flags(more: Lines) -> list[tuple[bool, bool]]:
        return [(each.is_trained, each.is_reported) for each in fatal_changes([*lines, *more], SEC)]

    assert flags([]) == flags(long[:2]) == flags(other) == [(False, False)]
    assert flags(long) == [(True, False)]
    assert flags([told]) == flags([told, event("resume", 60, 2)]) == [(False, True)]
    assert flags([{**told, "of_images": 30}]) == flags([{**told, "of_session": 7}]) == [(False, False)]


def test_an_interval_is_as_long_as_each_sessions_own_controller_says() -> None:
    """And whatever the judge has kept was trained with."""
    lines = [*BEFORE, begun(60), done(60), line(9, 80, **TURNED)]
    controller = event("controller", 0, settings={"interval_sec": 2.0}, machine={}, seed=0)
    assert fatal_changes([*lines, *AFTER], 60.0)
    assert fatal_changes([controller, *lines, *AFTER], 60.0) == []
    kept = event("decision-kept", 80, knob="loader_threads", value=4, why="+9%")
    assert fatal_changes([*lines, kept, *AFTER], 60.0) == []
    assert fatal_changes([*lines, {**kept, "value": 3}, *AFTER], 60.0)


SIZES = st.integers(0, 512)


@given(st.sampled_from(["batch_size", "batch_gpu"]), SIZES, SIZES)
def test_the_remedy_for_want_of_memory_is_never_fatal(knob: str, was: int, value: int) -> None:
    """`batch_gpu` 0 is all of a worker's share."""
    made = Decision(knob, value, was, "rules", "", 0.1, "")
    found = fatal_changes([*BEFORE, begun(60, made), done(60, made=made), *AFTER], SEC)
    is_less = bool(value) and (was == 0 or value < was)
    assert takes_less(made) == is_less
    assert [each.decision for each in found] == ([] if is_less else [made])


@pytest.mark.parametrize(
    ("error", "is_blamed"),
    [
        (LoneError(place="TrainConfig.batch_gpu", problem="worker 0's memory does not hold a step"), True),
        (diverged("loss_g at step 3", "nan"), True),
        (RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"), True),
        (MemoryError(), True),
        (OSError(12, "Cannot allocate memory"), True),
        (WorkerFailedError(1, "torch.OutOfMemoryError: CUDA out of memory"), True),
        (KeyError("a bug of ours"), True),
        (TrainerError(place="shard-0.npz", problem="is corrupt: its hash is not the one in the index"), False),
        (OSError(28, "No space left on device"), False),
        (PermissionError(13, "Permission denied"), False),
        (KeyboardInterrupt(), False),
        (WorkerFailedError(1, "torch.distributed.DistBackendError: NCCL error: remote process exited"), False),
        (WorkerFailedError(1, "RuntimeError: Connection closed by peer [10.0.0.1]:4711"), False),
        (WorkerFailedError(1, "OSError: [Errno 28] No space left on device"), False),
    ],
)
def test_what_is_known_to_come_from_elsewhere_is_not_the_changes(error: BaseException, is_blamed: bool) -> None:
    why = f"{type(error).__name__}: {error}".split("\n", maxsplit=1)[0]
    assert is_possible_cause(why) == is_blamed
    ended = [*BEFORE, begun(60), done(60), event("failed", 64, why=why)]
    assert len(fatal_changes([*ended, *AFTER], SEC)) == is_blamed
