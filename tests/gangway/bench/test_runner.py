"""The loop over a suite: whatever fails, stops or crashes, nothing is left standing and the others go on."""

import itertools
import json
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.bench.journal import Journal, State
from gangway.bench.processes import AbandonedError
from gangway.runs.run_store import Failure, StoreFailedError

FIRST, SECOND, THIRD, FOURTH = "aws-g5-dev-s0", "aws-g5-dev-s1", "azure-nc-dev-s0", "azure-nc-dev-s1"


def states(folder: Path, item: str) -> list[str]:
    lines = [json.loads(text) for text in (folder / "journal.jsonl").read_text("utf-8").splitlines()]
    return [line["state"] for line in lines if line.get("item") == item and "state" in line]


def test_each_item_goes_up_is_recorded_and_goes(stage: Any) -> None:
    journal = stage.run()
    for item in stage.items:
        assert states(stage.folder, item.name) == [
            "planned", "up-begun", "up", "recorded", "destroy-begun", "destroyed",
        ]  # fmt: skip
        assert journal[item.name].is_finished
        assert journal[item.name].facts["left"] == [f"bucket of {item.name}"]
    assert stage.cloud.standing == {}
    assert stage.cloud.collected == [FIRST, SECOND, THIRD, FOURTH]


def test_the_next_begins_when_the_last_is_gone(stage: Any) -> None:
    journal = stage.run()
    spans = [journal[item.name].attempts[0] for item in stage.items]
    assert all(earlier.ended <= later.began for earlier, later in pairwise(spans))


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("up", "InsufficientInstanceCapacity"),
        ("store", "s3://runs: no permission to read it"),
        ("ended", "ended"),
        ("never", "no record within 4 h"),
        ("bug", "KeyError: 'run_bucket'"),
    ],
)
def test_one_that_fails_is_destroyed_and_the_others_go_on(stage: Any, what: str, reason: str) -> None:
    stage.cloud.fail = {SECOND: what}
    journal = stage.run()
    assert journal[SECOND].reason.startswith(reason)
    assert not journal[SECOND].recorded
    assert stage.cloud.standing == {}
    assert [journal[item.name].recorded for item in stage.items] == [True, False, True, True]
    assert (stage.folder / "errors.log").exists() == (what == "bug"), "our own bug leaves its traceback in a file"


def test_a_run_that_has_ended_for_good_is_paid_for_minutes(stage: Any) -> None:
    stage.cloud.fail = {SECOND: "ended"}
    journal = stage.run()
    assert journal[SECOND].attempts[0].hours(stage.clock.now()) < 0.3
    assert stage.cloud.collected.count(SECOND) == 1, "what is there is saved"


def test_a_hiccup_of_the_store_is_no_failure(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = stage.cloud.record, 0

    def hiccup(item: Any, facts: Any) -> Any:
        nonlocal calls
        calls += 1
        stage.cloud.fail = {item.name: "store"} if calls % 5 else {}
        return real(item, facts)

    stage.cloud.record = hiccup
    journal = stage.run()
    assert all(journal[item.name].recorded for item in stage.items)
    assert calls > 20


def outage(stage: Any, kind: Failure, *, first: int) -> None:
    """The bucket does not answer for two hours, from its `first` answer on."""
    real, asked = stage.cloud.record, 0
    since: datetime | None = None

    def record(item: Any, facts: Any) -> Any:
        nonlocal asked, since
        asked += 1
        if asked > first:
            since = since or stage.clock.now()
            if (stage.clock.now() - since).total_seconds() < 7200:
                raise StoreFailedError("s3://runs: cannot be read", kind)
        return real(item, facts)

    stage.cloud.record = record


@pytest.mark.parametrize(("kind", "first"), [(Failure.OUTAGE, 0), (Failure.OUTAGE, 3), (Failure.LOGIN, 3)])
def test_an_outage_and_an_ended_login_are_waited_for(stage: Any, kind: Failure, first: int) -> None:
    outage(stage, kind, first=first)
    journal = stage.run()
    assert all(journal[item.name].recorded for item in stage.items)
    told = [words for words in stage.said if words[1] == "waiting"]
    assert told == [(FIRST, "waiting", "s3://runs: cannot be read; the run continues until its deadline")]


def test_a_login_that_never_saw_the_run_is_not_paid_for(stage: Any) -> None:
    outage(stage, Failure.LOGIN, first=0)
    journal = stage.run()
    assert journal[FIRST].reason == "s3://runs: cannot be read"
    assert journal[FIRST].attempts[0].hours(stage.clock.now()) < 0.5
    assert stage.cloud.standing == {}


def test_an_outage_ends_at_the_deadline(new_stage: Callable[..., Any], tmp_path: Path) -> None:
    stage = new_stage(tmp_path, deadline_hours=1)
    outage(stage, Failure.OUTAGE, first=2)
    journal = stage.run()
    assert journal[FIRST].reason == "no record within 1 h; s3://runs: cannot be read"
    assert stage.cloud.standing == {}


def test_what_is_odd_in_a_bucket_is_told_once_and_ends_nothing(stage: Any) -> None:
    outage(stage, Failure.ODD, first=0)
    journal = stage.run()
    assert all(journal[item.name].recorded for item in stage.items)
    told = [words for words in stage.said if words[1] in ("warning", "waiting")]
    assert told == [(FIRST, "warning", "s3://runs: cannot be read; the run continues until its deadline")]
    assert journal[FIRST].facts["warned"] == "s3://runs: cannot be read"


def test_what_is_odd_is_no_failure_of_the_bucket(stage: Any) -> None:
    """One refusal after many odd looks is a hiccup."""
    outage(stage, Failure.ODD, first=0)
    odd, asked = stage.cloud.record, itertools.count(1)

    def record(item: Any, facts: Any) -> Any:
        if next(asked) in (9, 11):
            raise StoreFailedError("s3://runs: refused", Failure.LASTING)
        return odd(item, facts)

    stage.cloud.record = record
    journal = stage.run()
    assert next(asked) > 12
    assert all(journal[item.name].recorded for item in stage.items)


def test_what_is_odd_is_named_at_the_deadline(new_stage: Callable[..., Any], tmp_path: Path) -> None:
    stage = new_stage(tmp_path, deadline_hours=1)
    outage(stage, Failure.ODD, first=2)
    journal = stage.run()
    assert journal[FIRST].reason == "no record within 1 h; s3://runs: cannot be read"


def crash_while_it_waits(stage: Any, crash_error: type[BaseException]) -> None:
    """A run of the suite that dies as it first looks for a record; the next one finds everything well again."""

    def crash(item: Any, facts: Any) -> Any:
        raise crash_error

    real, stage.cloud.record = stage.cloud.record, crash
    with pytest.raises(crash_error):
        stage.run()
    stage.cloud.record = real


def test_on_this_machine_the_deadline_counts_from_going_on(
    new_stage: Callable[..., Any], tmp_path: Path, crash_error: type[BaseException]
) -> None:
    """Nothing ran while nobody was there, and nothing was paid; a stack's deadline is another matter."""
    stage = new_stage(tmp_path, stacks=["local"], budget=None)
    crash_while_it_waits(stage, crash_error)
    stage.clock.sleep(24 * 3600)
    stage.cloud.standing["local-s0"] = stage.clock.now()  # the launcher is begun anew
    journal = stage.run()
    assert journal["local-s0"].recorded
    assert journal["local-s0"].reason == ""


def test_the_deadline_counts_the_time_to_come_up(stage: Any) -> None:
    stage.cloud.up_sec = 5 * 3600
    journal = stage.run()
    assert journal[FIRST].reason == "no record within 4 h"
    assert journal[FIRST].attempts[0].hours(stage.clock.now()) < 4.2
    assert stage.cloud.standing == {}


def test_a_cap_ends_what_runs_and_refuses_what_follows(new_stage: Callable[..., Any], tmp_path: Path) -> None:
    """Each run costs a dollar and a half by the hours that it stands; its plan says eight."""
    stage = new_stage(tmp_path, budget={"usd": 9.0})
    journal = stage.run()
    assert journal[FIRST].recorded
    assert journal[SECOND].reason.startswith("refused: a run may cost $8.00 (the plan), but only")
    assert states(tmp_path, SECOND) == ["planned", "failed"], "nothing was begun"
    assert stage.cloud.touched == [FIRST]


def test_a_stack_over_its_cap_is_destroyed_while_it_runs(new_stage: Callable[..., Any], tmp_path: Path) -> None:
    stage = new_stage(tmp_path, seeds=[0], budget={"usd": 100, "stack_usd": 8.5}, deadline_hours=4)
    stage.cloud.fail = {FIRST: "never"}
    # More expensive than planned is what a cap is for: the plan's estimate fits, the hours do not.
    real = stage.rates()
    stage.rates = lambda: {name: type(rate)(3.0, 0.0, 8.0, "the plan") for name, rate in real.items()}
    journal = stage.run()
    assert journal[FIRST].reason.startswith("over the cap: $8.5")
    assert "of $8.50 spent for stack aws-g5-dev" in journal[FIRST].reason
    assert journal[THIRD].recorded
    assert stage.cloud.standing == {}


def test_a_destroy_that_fails_is_tried_again(stage: Any) -> None:
    stage.cloud.destroys_left = 2
    journal = stage.run()
    assert states(stage.folder, FIRST)[-4:] == ["destroy-begun", "destroy-begun", "destroy-begun", "destroyed"]
    assert journal[FIRST].reason == ""
    assert journal[FIRST].is_finished


def test_one_that_cannot_be_destroyed_is_told_and_resume_tries_again(stage: Any) -> None:
    stage.cloud.fail = {FIRST: "destroy"}
    journal = stage.run()
    assert journal[FIRST].is_up
    assert journal[FIRST].reason == "destroy: DependencyViolation"
    assert (FIRST, "still up") in stage.said
    assert [journal[item.name].recorded for item in stage.items] == [True] * 4
    stage.cloud.fail = {}
    journal = stage.run(clean_only=True)
    assert journal[FIRST].is_finished
    assert stage.cloud.standing == {}
    assert stage.cloud.touched == [FIRST, SECOND, THIRD, FOURTH], "nothing was run twice"


def test_asked_to_stop_it_destroys_and_resume_finishes(stage: Any) -> None:
    def ask() -> None:
        stage.stop.asked = "SIGINT" if len(stage.cloud.touched) == 2 else ""

    stage.cloud.on_call = ask
    journal = stage.run()
    assert stage.cloud.standing == {}
    assert journal[SECOND].reason == "stopped by SIGINT"
    assert journal[SECOND].stopped
    assert journal[THIRD].state is None
    stage.cloud.on_call, stage.stop.asked = lambda: None, ""
    journal = stage.run()
    assert all(journal[item.name].recorded for item in stage.items)
    assert len(journal[SECOND].attempts) == 2, "both times it stood are paid"
    assert stage.cloud.standing == {}


def run_until_step(stage: Any, number: int, error: type[BaseException]) -> None:
    """A run of the suite whose cloud raises this from its so many-th step on."""
    steps = itertools.count(1)

    def step() -> None:
        if next(steps) >= number:
            raise error

    stage.cloud.on_call = step
    with pytest.raises(error):
        stage.run()


def test_the_second_signal_leaves_all_as_it_is(stage: Any) -> None:
    stage.cloud.train_sec = 3600
    run_until_step(stage, 6, AbandonedError)
    assert list(stage.cloud.standing) == [FIRST]
    stage.cloud.on_call = lambda: None
    stage.run(clean_only=True)
    assert stage.cloud.standing == {}
    assert stage.cloud.touched == [FIRST], "--clean-only begins nothing"


def test_what_is_still_up_is_gone_on_with(stage: Any, crash_error: type[BaseException]) -> None:
    run_until_step(stage, 7, crash_error)
    with stage.journal() as journal:
        assert journal[FIRST].state is State.UP
    stage.cloud.on_call = lambda: None
    journal = stage.run()
    assert stage.cloud.touched == [FIRST, SECOND, THIRD, FOURTH], "the run that was going on was not begun anew"
    assert (FIRST, "attached", "still up from before") in stage.said
    assert all(journal[item.name].recorded for item in stage.items)


def test_a_record_that_came_while_nobody_looked_counts(stage: Any, crash_error: type[BaseException]) -> None:
    """Resumed a day later, past every deadline."""
    crash_while_it_waits(stage, crash_error)
    stage.clock.sleep(24 * 3600)
    journal = stage.run()
    assert journal[FIRST].recorded
    assert stage.cloud.standing == {}


def test_what_resume_cannot_destroy_is_not_begun_again(stage: Any, crash_error: type[BaseException]) -> None:
    crash_while_it_waits(stage, crash_error)
    stage.cloud.fail = {FIRST: "destroy"}
    stage.stop.asked = "SIGTERM"  # so that it is not waited for
    stage.run()
    stage.stop.asked = ""
    journal = stage.run()
    assert stage.cloud.touched.count(FIRST) == 1
    assert journal[FIRST].is_up
    assert len(journal[FIRST].attempts) == 1


def test_files_that_cannot_be_saved_keep_nothing_standing(stage: Any) -> None:
    def full(item: Any, facts: Any) -> None:
        raise OSError(28, "No space left on device")

    stage.cloud.collect = full
    journal = stage.run()
    assert "No space left on device" in journal[FIRST].reason
    assert stage.cloud.standing == {}


@pytest.mark.slow
@given(data=st.data(), clean_only=st.booleans())
def test_after_any_crash_resume_leaves_nothing_standing(
    data: st.DataObject,
    clean_only: bool,
    new_stage: Callable[..., Any],
    crash_error: type[BaseException],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """At any step of the cloud's or line of the journal's, several times in a row; and any item may fail besides."""
    stage = new_stage(tmp_path_factory.mktemp("run"))
    kinds = st.sampled_from(["", "up", "store", "ended", "never", "bug"])
    stage.cloud.fail = {item.name: data.draw(kinds) for item in stage.items}
    stage.cloud.destroys_left = data.draw(st.integers(0, 2))
    left = 0

    def count_down() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise crash_error

    stage.cloud.on_call = count_down
    real = Journal._append

    def crashing(journal: Journal, line: Any) -> Any:
        """Half a line, a whole one, or none."""
        count_down()
        written = real(journal, line)
        count_down()
        return written

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "_append", crashing)
        for _ in range(data.draw(st.integers(1, 3))):
            left = data.draw(st.integers(2, 120))
            try:
                stage.run()
            except crash_error:
                if data.draw(st.booleans()):
                    with (stage.folder / "journal.jsonl").open("a") as torn:
                        torn.write('{"at": "2026-01-01T00:00')
        left = 0
    stage.cloud.on_call = lambda: None
    if not (stage.folder / "journal.jsonl").exists() or not (stage.folder / "journal.jsonl").read_text().count("\n"):
        return
    journal = stage.run(clean_only=clean_only)
    assert stage.cloud.standing == {}
    assert not any(progress.is_up for progress in journal.items.values())
    for item in stage.items:
        assert len(journal[item.name].attempts) >= (item.name in stage.cloud.touched)
        if not clean_only:
            fails = stage.cloud.fail[item.name]
            assert journal[item.name].is_finished
            assert journal[item.name].recorded == (not fails)
