"""The job as one launcher knows it, without torchrun: how it begins, what counts, and when it may be called."""

import signal
import time
from pathlib import Path

import pytest

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.host import boot_id
from gangway.trainer.launch import job as job_module
from gangway.trainer.launch import membership
from gangway.trainer.launch.failures import Nodes
from gangway.trainer.launch.job import Job
from gangway.trainer.launch.node_state import JobFolder, Standing
from gangway.trainer.rendezvous.lifecycle import Event, State

MIN_SEC = 10.0


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_module, "BEAT_SEC", 0.05)
    monkeypatch.setattr(job_module, "SETTLE_SEC", 0.0)


def folder(tmp_path: Path, node: str) -> JobFolder:
    return JobFolder(tmp_path / "job", node)


def was(tmp_path: Path, node: str, standing: str, boot: str) -> None:
    """What a node's launcher has left behind."""
    state = membership.start(None, time.time() - 60, boot).state
    gone = membership.end(membership.mark_lost(state, time.time() - 60), 4) if standing == "lost" else None
    folder(tmp_path, node).write(gone or membership.end(state, 0))


@pytest.mark.parametrize("standing", ["lost", "over"])
@pytest.mark.parametrize("code", [0, 2, 5])
def test_a_new_machine_of_the_name_waits_for_nobody_once_the_job_is_over(
    tmp_path: Path, standing: str, code: int
) -> None:
    """Google makes an instance anew under its name; a machine of one's own reboots. The others are gone."""
    was(tmp_path, "a", standing, "the boot before")
    folder(tmp_path, "b").write_over(code)
    with Job(Nodes(2, 4), folder(tmp_path, "a")) as job:
        assert job.life.exit_code == code
    assert folder(tmp_path, "a").over() is not None


def test_somebody_has_a_job_begin_again_on_the_same_boot_unless_it_is_done(tmp_path: Path) -> None:
    was(tmp_path, "a", "over", boot_id())
    folder(tmp_path, "b").write_over(2)
    with Job(Nodes(2, 4), folder(tmp_path, "a")) as job:
        assert (job.life.state, folder(tmp_path, "a").over()) == (State.WAITING, None)
    was(tmp_path, "a", "over", boot_id())
    folder(tmp_path, "b").write_over(0)
    with Job(Nodes(2, 4), folder(tmp_path, "a")) as job:
        assert job.life.exit_code == 0


def test_the_watch_of_a_lost_node_begins_no_ended_job_again(tmp_path: Path) -> None:
    """It starts the node on the same boot, after a pause in which the others have ended the job for all."""
    was(tmp_path, "a", "lost", boot_id())
    folder(tmp_path, "b").write_over(5)
    with Job(Nodes(2, 4), folder(tmp_path, "a")) as job:
        assert job.life.exit_code == 5
    assert folder(tmp_path, "a").over() is not None


def fails(where: JobFolder, error: Exception) -> int | None:
    with Job(Nodes(1, 2), where) as job:
        if job.life.exit_code is None:
            raise error
    return job.life.exit_code


def test_a_launcher_that_fails_is_counted_and_the_fifth_gives_the_node_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full disk of its own, say, under torchrun: no worker has said anything."""
    other = membership.start(None, time.time(), "b").state
    codes = []
    for _ in range(5):
        folder(tmp_path, "b").write(other.model_copy(update={"seen_at": time.time()}))
        codes.append(fails(folder(tmp_path, "a"), OSError(28, "No space left on device")))
    assert codes == [1, 1, 1, 1, 4]
    assert folder(tmp_path, "a").nodes()["a"].standing is Standing.LOST
    assert capsys.readouterr().err.count("OSError: [Errno 28] No space left on device") == 5


def test_what_fails_after_the_end_changes_nothing_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Job(Nodes(1, 1), folder(tmp_path, "a")) as job:
        job.on(Event.JOINED)
        job.workers_ended(0)
        raise RuntimeError("while cleaning up")
    mine = folder(tmp_path, "a").nodes()["a"]
    assert (job.life.exit_code, mine.standing, mine.failures) == (0, Standing.OVER, ())
    assert "while cleaning up" in capsys.readouterr().err


def test_a_mistake_of_the_users_and_a_ctrl_c_are_not_swallowed(tmp_path: Path) -> None:
    with pytest.raises(TrainerError):
        fails(folder(tmp_path, "a"), TrainerError(place="--watch", problem="no cloud", fix="leave it out"))
    with pytest.raises(KeyboardInterrupt), Job(Nodes(1, 2), folder(tmp_path, "a")):
        raise KeyboardInterrupt
    assert folder(tmp_path, "a").nodes()["a"].failures == ()


def test_the_end_for_all_ends_nobody_before_he_listens(tmp_path: Path) -> None:
    """The signal's own default would end a launcher that waits for clean power, with 138."""
    with Job(Nodes(2, 2), folder(tmp_path, "a")) as job:
        folder(tmp_path, "b").write_over(5)
        time.sleep(0.5)  # ten beats
        assert job.life.state is State.WAITING
        before = signal.getsignal(signal.SIGUSR1)
        try:
            job.listen()
            with pytest.raises(Exception, match="the job has ended for all"):
                time.sleep(MIN_SEC)
        finally:
            signal.signal(signal.SIGUSR1, before)
    assert job.life.exit_code == 5


def test_a_job_that_was_done_as_it_was_told_to_leave_is_done_for_all(tmp_path: Path) -> None:
    with Job(Nodes(2, 2), folder(tmp_path, "a"), max_sec=3600) as job:
        job.on(Event.JOINED)
        job.on(Event.HOURS_OVER)
        job.workers_stopped(0)
    assert job.life.exit_code == 0
    over = folder(tmp_path, "b").over()
    assert over is not None
    assert over.code == 0
