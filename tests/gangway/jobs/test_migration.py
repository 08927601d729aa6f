"""How far a move has come: what a cancel meanwhile comes to, where a refused job goes, and which copies are known."""

import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.jobs import moves
from gangway.jobs.base import EngineAwayError, Phase, SubmitUnansweredError
from gangway.jobs.job_folder import UnreadableError
from gangway.jobs.local.engine import LocalQueue
from gangway.jobs.migration import MoveRecord
from gangway.jobs.moves import move_job
from tests.gangway.jobs.test_contract import job, limited, over, until
from tests.gangway.jobs.test_copying import Cut, cut, quiet

GOES_ON = "test -e made && exit 0; echo x >made; trap 'EXIT' TERM; echo begun; while :; do sleep 0.1; done"


@pytest.fixture
def source(tmp_path: Path) -> LocalQueue:
    return LocalQueue(tmp_path / "a")


@pytest.fixture
def target(tmp_path: Path) -> LocalQueue:
    return LocalQueue(tmp_path / "b")


def begun(queue: LocalQueue, end: str = "exit 75") -> str:
    """A job that runs, and ends with success where it is begun again."""
    job_id = queue.submit(job(GOES_ON.replace("EXIT", end)))
    until(queue, job_id, lambda found, log: "begun" in log)
    return job_id


def refuses(job_id: str) -> None:
    raise InputError("--on slurm", "sbatch: QOSMaxSubmitJobPerUserLimit")


def cut_off(*_: object, **__: object) -> None:
    raise Cut


def refused(why: str, source: LocalQueue, job_id: str, target: LocalQueue) -> None:
    with pytest.raises(InputError, match=why):
        move_job(source, job_id, target, limited(), quiet)


def perhaps(job_id: str) -> None:
    raise SubmitUnansweredError("--on slurm", "no answer")


@pytest.mark.slow
@pytest.mark.parametrize("when", ["over", "told", "over by another hand", "copied"])
def test_a_cancel_during_a_move_ends_the_job_for_good(
    source: LocalQueue, target: LocalQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    job_id = begun(source, "sleep 1; exit 75")

    def copying(*_: object) -> None:  # the data set, for an hour
        if when == "over by another hand":  # such as scancel, of which no folder tells
            source.stop(job_id)
        else:
            source.cancel(job_id)
        if when != "told":
            over(source, job_id)

    def tell(done: int, total: int) -> None:
        if when == "copied":  # after its stop
            source.cancel(job_id)

    if when != "copied":
        monkeypatch.setattr(target, "bring_data", copying)
    with pytest.raises(InputError, match="it is not resumed"):
        move_job(source, job_id, target, limited(), tell)
    assert target.jobs() == []
    assert list((tmp_path / "b").iterdir()) == [], "nor is there a copy"
    found = over(source, job_id)
    assert (found.phase, "move" in found.reason) == (Phase.CANCELLED, False)
    refused("it is not resumed", source, job_id, target)


@pytest.mark.slow
def test_one_that_is_about_to_begin_at_the_target_is_cancelled_there(
    source: LocalQueue, target: LocalQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, submit = begun(source), target.submit_staged

    def cancelled(*args: Any) -> str:
        with pytest.raises(InputError, match="moving to"):
            source.cancel(job_id)
        return submit(*args)

    monkeypatch.setattr(target, "submit_staged", cancelled)
    moved = move_job(source, job_id, target, limited(), quiet)
    assert over(target, moved.job_id).phase is Phase.DONE
    source.cancel(job_id)  # of one that is over nothing changes
    assert moved.job_id in source.status(job_id).reason
    assert move_job(source, job_id, target, limited(), quiet).job_id == moved.job_id


@pytest.mark.slow
def test_a_cancel_after_a_move_that_was_cut_off_is_heard_by_the_next(
    source: LocalQueue, target: LocalQueue, tmp_path: Path
) -> None:
    job_id = begun(source)
    with pytest.raises(Cut):
        move_job(source, job_id, target, limited(), cut)
    assert "interrupted" in source.status(job_id).reason
    source.cancel(job_id)
    assert "interrupted" not in source.status(job_id).reason
    third = LocalQueue(tmp_path / "c")
    refused("cancelled", source, job_id, third)
    assert (target.jobs(), third.jobs()) == ([], [])
    assert [*(tmp_path / "b").iterdir(), *(tmp_path / "c").glob("*")] == []


@pytest.mark.slow
@pytest.mark.parametrize("to", ["a", "b", "c"])
def test_one_that_the_target_refuses_at_the_last_goes_back_or_elsewhere_or_there_later(
    source: LocalQueue, target: LocalQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    job_id = begun(source)
    with monkeypatch.context() as full:
        full.setattr(target, "_begin", refuses)
        refused("QOSMax", source, job_id, target)
    assert target.jobs() == []
    elsewhere = LocalQueue(tmp_path / to)
    moved = move_job(source, job_id, elsewhere, limited(), quiet)
    assert over(elsewhere, moved.job_id).phase is Phase.DONE
    assert f"moved to local:{tmp_path}/{to}" in source.status(job_id).reason
    assert not list(tmp_path.glob("*/.staged-*"))


@pytest.mark.slow
def test_one_that_was_killed_before_a_target_that_refuses_it_now_goes_elsewhere(
    source: LocalQueue, target: LocalQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = begun(source)

    with monkeypatch.context() as dies:
        dies.setattr(target, "submit_staged", cut_off)
        with pytest.raises(Cut):
            move_job(source, job_id, target, limited(), quiet)
    refused("has moved to", source, job_id, source)
    monkeypatch.setattr(moves, "refusals", lambda *_: _refused())
    refused("no such job", source, job_id, target)
    monkeypatch.undo()
    back = move_job(source, job_id, source, limited(), quiet)
    assert over(source, back.job_id).phase is Phase.DONE


def _refused() -> None:
    raise InputError("--to", "no such job here")


@pytest.mark.slow
def test_one_that_may_be_at_work_at_the_target_goes_nowhere_else(
    source: LocalQueue, target: LocalQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = begun(source)
    with monkeypatch.context() as away:
        away.setattr(target, "_begin", perhaps)
        with pytest.raises(SubmitUnansweredError):
            move_job(source, job_id, target, limited(), quiet)
    for elsewhere in (source, LocalQueue(tmp_path / "c")):
        refused("has moved to", source, job_id, elsewhere)
    moved = move_job(source, job_id, target, limited(), quiet)
    assert over(target, moved.job_id).phase is Phase.DONE
    assert len(target.jobs()) == 1


@pytest.mark.slow
def test_a_cancel_that_cannot_stop_the_job_is_heard_by_a_move_all_the_same(
    source: LocalQueue, target: LocalQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = begun(source)

    def copying(*_: object) -> None:
        with monkeypatch.context() as away:
            away.setattr(source, "stop", perhaps)
            with pytest.raises(EngineAwayError):
                source.cancel(job_id)

    monkeypatch.setattr(target, "bring_data", copying)
    refused("it is not resumed", source, job_id, target)
    assert target.jobs() == []
    assert source.status(job_id).phase is Phase.RUNNING, "nobody could tell it"
    source.cancel(job_id)
    assert over(source, job_id).phase is Phase.CANCELLED


@pytest.mark.slow
def test_a_cancel_is_heard_while_it_is_still_stopping_the_job(
    source: LocalQueue, target: LocalQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, job_id, stops, has_moved = LocalQueue(tmp_path / "a"), begun(source), Event(), Event()

    def slow(job_id: str) -> None:
        stops.set()
        assert has_moved.wait(120)

    monkeypatch.setattr(other, "stop", slow)
    with ThreadPoolExecutor() as pool:
        cancels: list[Future[None]] = []

        def copying(*_: object) -> None:
            cancels.append(pool.submit(other.cancel, job_id))
            assert stops.wait(60)

        monkeypatch.setattr(target, "bring_data", copying)
        try:
            refused("it is not resumed", source, job_id, target)
        finally:
            has_moved.set()
        cancels[0].result()
    assert target.jobs() == []
    source.cancel(job_id)
    assert over(source, job_id).phase is Phase.CANCELLED


@pytest.mark.slow
def test_a_job_without_a_move_whose_stop_failed_is_cancelled_by_the_next(
    source: LocalQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = begun(source)
    with monkeypatch.context() as away:
        away.setattr(source, "stop", perhaps)
        with pytest.raises(EngineAwayError):
            source.cancel(job_id)
    assert source.status(job_id).phase is Phase.RUNNING
    source.cancel(job_id)
    assert over(source, job_id).phase is Phase.CANCELLED


@pytest.mark.slow
def test_what_cannot_be_read_of_a_move_lets_a_cancel_stop_the_job(source: LocalQueue, tmp_path: Path) -> None:
    job_id = begun(source)
    (tmp_path / "a" / job_id / "moved.json").write_text("[]")
    with pytest.raises(UnreadableError):
        source.cancel(job_id)
    (tmp_path / "a" / job_id / "moved.json").unlink()
    assert over(source, job_id).phase is Phase.CANCELLED


@pytest.mark.slow
def test_a_job_whose_move_was_cut_off_at_the_last_is_ended_by_the_same_move(
    source: LocalQueue, target: LocalQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = begun(source)

    with monkeypatch.context() as dies:
        dies.setattr(target, "submit_staged", cut_off)
        with pytest.raises(Cut):
            move_job(source, job_id, target, limited(), quiet)
    for _ in range(2):
        with pytest.raises(InputError, match=r"was interrupted.*\n.*\n.*repeat the move"):
            source.cancel(job_id)
        assert "to end it" in source.status(job_id).reason
    refused("it is not resumed", source, job_id, target)
    assert target.jobs() == []
    assert list((tmp_path / "b").iterdir()) == []
    found = source.status(job_id)
    assert (found.phase, "move" in found.reason) == (Phase.CANCELLED, False)


@pytest.mark.slow
def test_a_second_cancel_takes_nothing_from_the_first(
    source: LocalQueue, target: LocalQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, gone = begun(source), MoveRecord.record_copied

    def cancelled(way: MoveRecord) -> None:
        source.cancel(job_id)
        gone(way)
        with pytest.raises(InputError, match="moving to"):
            source.cancel(job_id)

    monkeypatch.setattr(MoveRecord, "record_copied", cancelled)
    refused("it is not resumed", source, job_id, target)
    assert target.jobs() == []


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["removed", "unreadable"])
def test_one_that_has_arrived_and_is_not_seen_there_is_never_begun_again(
    source: LocalQueue, target: LocalQueue, tmp_path: Path, lost: str
) -> None:
    job_id = begun(source)
    moved = move_job(source, job_id, target, limited(), quiet)
    assert over(target, moved.job_id).phase is Phase.DONE
    there, said = tmp_path / "b" / moved.job_id, source.status(job_id).reason
    if lost == "removed":
        shutil.rmtree(there)
    else:
        (there / "state.json").write_text("{}")
    for _ in range(2):
        refused(f"it arrived at local:{tmp_path}/b as {moved.job_id}", source, job_id, target)
        refused("has moved to", source, job_id, LocalQueue(tmp_path / "c"))
    assert source.status(job_id).reason == said
    assert not list(tmp_path.glob("*/.staged-*"))


@pytest.mark.slow
def test_a_job_that_is_over_touches_no_folder_to_which_no_move_came(
    source: LocalQueue, target: LocalQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    over(source, job_id := source.submit(job("true")))
    monkeypatch.setattr(target, "unstage", closed)
    refused(r"(?m)it is not resumed$", source, job_id, target)


def closed(origin: str) -> None:
    raise PermissionError(13, "Permission denied")


@pytest.mark.slow
def test_a_copy_that_cannot_be_removed_is_told_and_removed_once_it_can_be(
    source: LocalQueue, target: LocalQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = begun(source)
    with pytest.raises(Cut):
        move_job(source, job_id, target, limited(), cut)
    source.cancel(job_id)
    with monkeypatch.context() as patch:
        patch.setattr(target, "unstage", closed)
        for _ in range(2):
            refused(f"a copy remains in local:{tmp_path}/b", source, job_id, target)
    assert list((tmp_path / "b").iterdir())
    refused(r"(?m)it is not resumed$", source, job_id, target)
    assert list((tmp_path / "b").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("then", ["moved", "cancelled"])
def test_the_first_copy_of_one_that_waits_is_known_where_it_was_cut_off(
    source: LocalQueue, target: LocalQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    first = begun(source)
    waits = source.submit(job("true"))

    with monkeypatch.context() as dies:
        dies.setattr(moves, "copy_run", cut_off)
        with pytest.raises(Cut):
            move_job(source, waits, target, limited(), quiet)
    assert source.status(waits).phase is Phase.WAITING, "it keeps its turn"
    assert list((tmp_path / "b").iterdir()), "what a kill leaves"
    third = LocalQueue(tmp_path / "c")
    if then == "moved":
        moved = move_job(source, waits, third, limited(), quiet)
        assert (over(third, moved.job_id).phase, moved.left_at) == (Phase.DONE, ())
    else:
        source.cancel(waits)
        assert "cut off" not in over(source, waits).reason, "no move has stopped it"
        refused("it is not resumed", source, waits, third)
        assert third.jobs() == []
    assert list((tmp_path / "b").iterdir()) == []
    source.cancel(first)
    over(source, first)
