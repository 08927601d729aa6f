"""The process of a local job where the disk is full, what it has kept is odd, or what it ran wants to stay."""

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from gangway.components.core.findings import InputError
from gangway.components.core.whole_files import lock
from gangway.jobs.base import Phase
from gangway.jobs.job_folder import JobFolder, OwnJobFolder, UnreadableError
from gangway.jobs.job_folders import read_job
from gangway.jobs.local import engine as local
from gangway.jobs.local.engine import (
    LocalQueue,
    Spent,
    Turn,
    find_end,
    lacks_space,
    record_end,
    record_space,
    reserve_space,
)
from gangway.stacks.config.job_file import Priority
from tests.gangway.jobs.local.test_engine import processes_of
from tests.gangway.jobs.test_contract import job, limited, over, until

FULL_DISK = """#!{python}
# A runner on whose disk nothing new can be written while FULL is there; what has its room can be.
import errno, os, runpy, sys
opened = os.open
def full(path, flags, *rest, **named):
    if flags & (os.O_CREAT | os.O_APPEND) and os.path.exists({full!r}):
        raise OSError(errno.ENOSPC, "No space left on device")
    return opened(path, flags, *rest, **named)
os.open = full
sys.path.insert(0, {repo!r})
sys.argv = sys.argv[2:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """While this file is there, the disk of jobs' runners is full."""
    program, path = tmp_path / "python", tmp_path / "full"
    repo = str(Path(__file__).resolve().parents[4])
    program.write_text(FULL_DISK.format(python=sys.executable, full=str(path), repo=repo))
    program.chmod(0o755)
    monkeypatch.setattr(local, "sys", SimpleNamespace(executable=str(program)))
    return path


OTHER = """#!{python}
# A runner that differs from ours in a line or two.
import os, pathlib, sys, time
sys.path.insert(0, {repo!r})
from gangway.jobs.local import runner
{lines}
sys.exit(runner.main(sys.argv[3:]))
"""


def begun_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str) -> None:
    program, repo = tmp_path / "python", str(Path(__file__).resolve().parents[4])
    program.write_text(OTHER.format(python=sys.executable, repo=repo, lines=lines))
    program.chmod(0o755)
    monkeypatch.setattr(local, "sys", SimpleNamespace(executable=str(program)))


@pytest.mark.slow
def test_a_system_without_waitid_runs_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MacOS before Python 3.13."""
    begun_by_another(tmp_path, monkeypatch, "sys.platform = 'darwin'; del os.waitid")
    queue = LocalQueue(tmp_path / "queue")
    fails = queue.submit(job("sleep 0.3; exit 2"))
    assert over(queue, fails).phase is Phase.BAD_INPUT
    stays = queue.submit(job("echo begun; sleep 600 & wait"))
    until(queue, stays, lambda found, log: "begun" in log)
    queue.cancel(stays)
    assert over(queue, stays).phase is Phase.CANCELLED


def test_one_that_is_cancelled_between_two_starts_is_not_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "sleep, runner._PAUSE_SEC, cancel = time.sleep, 7.25, pathlib.Path(sys.argv[3], 'cancel')\n"
    lines += "time.sleep = lambda sec: cancel.touch() if sec == 7.25 else sleep(sec)"
    begun_by_another(tmp_path, monkeypatch, lines)
    queue = LocalQueue(tmp_path / "queue")
    job_id = queue.submit(job("echo ran; exit 1", max_restarts=1))
    found = over(queue, job_id)
    assert (found.phase, found.starts, queue.log(job_id)[0].count("ran")) == (Phase.CANCELLED, 1, 1)


@pytest.mark.slow
def test_a_folder_whose_name_is_no_utf_8(tmp_path: Path) -> None:
    queue = LocalQueue(tmp_path / os.fsdecode(b"caf\xe9"))
    done, stays = queue.submit(job("echo ran")), queue.submit(job("echo begun; sleep 600 & wait"))
    assert over(queue, done).phase is Phase.DONE
    until(queue, stays, lambda found, log: "begun" in log)
    queue.cancel(stays)
    assert over(queue, stays).phase is Phase.CANCELLED


@pytest.mark.slow
@pytest.mark.parametrize("taken_up", [False, True])
def test_what_lives_of_a_job_whose_process_was_killed_ends_before_the_next_begins(
    tmp_path: Path, *, taken_up: bool
) -> None:
    """Whether another process has taken it up meanwhile or not."""
    queue = LocalQueue(tmp_path / "queue")
    told = "trap 'sleep 1; touch saved; rmdir ../../running; exit 75' TERM"
    first = queue.submit(
        job(f"test -e saved && exit 0; mkdir ../../running; {told}; echo begun; while :; do sleep 0.1; done")
    )
    until(queue, first, lambda found, log: "begun" in log)
    second = queue.submit(job("test ! -e ../../running || exit 2", priority=Priority.HIGH))
    alive = processes_of(tmp_path / "queue" / first)
    (runner,) = (each for each in alive if "gangway.jobs.local.runner" in each.info["cmdline"])
    runner.kill()
    if taken_up:
        until(queue, first, lambda found, log: found.phase is Phase.WAITING)
        queue.ensure_begun(first)
    assert over(queue, second).phase is Phase.DONE
    found = over(queue, first)
    assert (found.phase, found.starts) == (Phase.DONE, 2)


@pytest.mark.slow
def test_what_has_ended_on_a_full_disk_waits_for_room(tmp_path: Path, full: Path) -> None:
    queue = LocalQueue(tmp_path / "queue")
    job_id = queue.submit(job(f"echo ran >>{tmp_path}/runs; touch {full}"))
    found = until(queue, job_id, lambda found, log: "exit code 0" in found.reason and "space" in found.reason)
    assert found.phase is Phase.RUNNING, "it is over, and nobody can write so"
    time.sleep(1.5)
    full.unlink()
    found = over(queue, job_id)
    assert (found.phase, found.exit_code, found.starts) == (Phase.DONE, 0, 1)
    assert found.stretches is not None
    assert [each.end is None for each in found.stretches] == [False]
    assert (tmp_path / "runs").read_text() == "ran\n"
    assert queue.log(job_id)[0].count("waiting for disk space") == 1, "told once, however often it was tried"


@pytest.mark.slow
@pytest.mark.parametrize(("script", "phase", "failures"), [("exit 0", Phase.DONE, 0), ("exit 1", Phase.FAILED, 1)])
def test_what_has_ended_is_not_begun_again_by_the_next_process(
    tmp_path: Path, full: Path, script: str, phase: Phase, failures: int
) -> None:
    """The one that waiting for disk space is killed."""
    queue = LocalQueue(tmp_path / "queue")
    job_id = queue.submit(job(f"echo ran >>{tmp_path}/runs; touch {full}; {script}", max_restarts=0))
    until(queue, job_id, lambda found, log: "exit code" in found.reason)
    for process in processes_of(tmp_path / "queue"):
        process.kill()
    until(queue, job_id, lambda found, log: found.phase is Phase.WAITING)
    full.unlink()
    found = over(queue, job_id)
    assert (found.phase, found.starts) == (phase, 1)
    assert queue.get_stored_job(job_id).failures == failures
    assert (tmp_path / "runs").read_text() == "ran\n"


@pytest.mark.slow
def test_a_failure_that_was_half_written_down_counts_once(tmp_path: Path) -> None:
    queue = LocalQueue(tmp_path / "queue")
    job_id = queue.submit(job("test -e again && exit 0; echo begun; sleep 600", max_restarts=1))
    until(queue, job_id, lambda found, log: "begun" in log)
    for process in processes_of(tmp_path / "queue"):
        process.kill()
    until(queue, job_id, lambda found, log: found.phase is Phase.WAITING)
    folder = OwnJobFolder(tmp_path / "queue" / job_id)
    reserve_space(folder, 1)
    record_end(folder, 1, 1)
    Spent(failures=1, start=1, before=0).write(folder)
    (folder.path / "run" / "again").touch()
    found = over(queue, job_id)
    assert (found.phase, found.starts) == (Phase.DONE, 2), "one failure is allowed, and was one"
    assert queue.get_stored_job(job_id).failures == 1


def test_between_two_starts_stands_how_the_last_one_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun_by_another(tmp_path, monkeypatch, "runner._PAUSE_SEC = 600")
    queue, reasons = LocalQueue(tmp_path / "queue"), list[str]()
    job_id = queue.submit(job("exit 1"))
    pause = limited()
    while not any("restart" in each or "space" in each for each in reasons):
        pause(found := queue.status(job_id))
        reasons.append(found.reason)
    for process in processes_of(tmp_path / "queue"):
        process.kill()
    assert "restart" in reasons[-1]
    assert not any("space" in each for each in reasons)


def test_the_end_of_one_start_is_none_of_another(tmp_path: Path) -> None:
    folder = OwnJobFolder(tmp_path)
    assert find_end(folder, 1) is None
    reserve_space(folder, 2)
    assert find_end(folder, 2) is None
    record_end(folder, 2, 143)
    assert (find_end(folder, 1), find_end(folder, 2)) == (None, 143)
    record_space(folder, lacks=True)
    assert (find_end(folder, 2), lacks_space(folder)) == (143, True)
    record_space(folder, lacks=False)
    assert (find_end(folder, 2), lacks_space(folder)) == (143, False)
    (tmp_path / "exit-code").write_bytes(b"\xff\xfe")
    assert find_end(folder, 2) is None


@pytest.mark.slow
def test_one_that_waits_for_room_to_begin_begins_then(tmp_path: Path, full: Path) -> None:
    queue = LocalQueue(tmp_path / "queue")
    first = queue.submit(job("while [ ! -e end ]; do sleep 0.1; done"))
    until(queue, first, lambda found, log: found.phase is Phase.RUNNING)
    second = queue.submit(job("true"))
    full.touch()
    (tmp_path / "queue" / first / "run" / "end").touch()
    until(queue, first, lambda found, log: "exit code 0" in found.reason)
    full.unlink()
    assert [over(queue, each).phase for each in (first, second)] == [Phase.DONE, Phase.DONE]


@pytest.mark.slow
def test_who_runs_in_a_folder_that_is_removed_leaves(tmp_path: Path, full: Path) -> None:
    """And does not keep the turn for ever."""
    queue = LocalQueue(tmp_path / "queue")
    first = queue.submit(job(f"touch {full}; sleep 0.3; mv ../../{'case-1'} {tmp_path}/away"))
    second = queue.submit(job("true"))
    pause = limited()
    while not (tmp_path / "away").exists():
        pause(queue.status(second))
    full.unlink()
    assert over(queue, second).phase is Phase.DONE
    assert [each.id for each in queue.jobs()] == [second] != [first]


@pytest.mark.slow
def test_one_that_waits_looks_at_no_other_job_while_one_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be thousands, and whoever runs needs the CPU."""
    lines = "looks = pathlib.Path(sys.argv[3], 'looks').open('a', buffering=1)\n"
    lines += "def noted(what, real):\n    return lambda *given: (print(what, file=looks), real(*given))[1]\n"
    lines += "runner.list_own_jobs = noted('at others', runner.list_own_jobs)\n"
    lines += "runner._Runner._has_turn = noted('for its turn', runner._Runner._has_turn)"
    begun_by_another(tmp_path, monkeypatch, lines)
    queue = LocalQueue(tmp_path / "queue")
    first = queue.submit(job("while [ ! -e end ]; do sleep 0.1; done"))
    until(queue, first, lambda found, log: found.phase is Phase.RUNNING)
    second, pause = queue.submit(job("true")), limited()
    looks = tmp_path / "queue" / second / "looks"
    while not looks.exists() or looks.read_text().count("for its turn") < 4:
        pause(queue.status(second))
    assert "at others" not in looks.read_text()
    (tmp_path / "queue" / first / "run" / "end").touch()
    assert over(queue, second).phase is Phase.DONE
    assert "at others" in looks.read_text()


@pytest.mark.slow
def test_what_drops_its_variables_and_its_parent_ends_with_the_job(tmp_path: Path) -> None:
    queue = LocalQueue(tmp_path / "queue")
    left = f"env -i setsid sh -c 'echo $$ >{tmp_path}/pid; while :; do sleep 0.1; done' & "
    job_id = queue.submit(job(f"(({left})); while [ ! -s {tmp_path}/pid ]; do sleep 0.05; done"))
    assert over(queue, job_id).phase is Phase.DONE
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


@pytest.mark.slow
def test_children_that_end_are_no_zombies(tmp_path: Path) -> None:
    queue = LocalQueue(tmp_path / "queue")
    job_id = queue.submit(job("for i in 1 2 3; do (setsid sleep 0.1 &); done; sleep 1; echo slept; sleep 600"))
    until(queue, job_id, lambda found, log: "slept" in log)
    (runner,) = (each for each in processes_of(tmp_path / "queue") if "gangway.jobs.local.runner" in each.cmdline())
    pause = limited()
    while any(each.status() == psutil.STATUS_ZOMBIE for each in runner.children(recursive=True)):
        pause(queue.status(job_id))
    queue.cancel(job_id)
    assert over(queue, job_id).phase is Phase.CANCELLED


UNREADABLE = {
    "job.json": json.dumps({"name": "case", "command": ["true"], "max_hours": 1, "key_of_tomorrow": 1}),
    "stretches": "1 2\n",
    "state.json": "{}",
    "spent.json": "[]",
    "environment": "HOME",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", UNREADABLE)
def test_one_that_cannot_be_read_is_a_row_and_stops_nobody(tmp_path: Path, name: str) -> None:
    queue = LocalQueue(tmp_path / "queue")
    first = queue.submit(job("while [ ! -e end ]; do sleep 0.1; done"))
    until(queue, first, lambda found, log: found.phase is Phase.RUNNING)
    odd = queue.submit(job("touch begun"))
    waits = queue.submit(job("true"))
    for process in processes_of(tmp_path / "queue" / odd):
        process.kill()
    until(queue, odd, lambda found, log: "gone" in found.reason)
    (tmp_path / "queue" / odd / name).write_text(UNREADABLE[name])
    assert "before it" in queue.status(waits).reason
    assert not queue.room(job("true")).now
    last = queue.submit(job("true"))
    (tmp_path / "queue" / first / "run" / "end").touch()
    assert [over(queue, each).phase for each in (first, waits, last)] == [Phase.DONE] * 3
    row = {each.id: each for each in queue.jobs()}[odd]
    assert row.phase is Phase.UNREADABLE
    assert name in row.reason
    with pytest.raises(UnreadableError) as refused:
        queue.status(odd)
    assert refused.value.fix
    assert not (tmp_path / "queue" / odd / "run" / "begun").exists()


def test_a_key_of_another_release_is_named(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(UNREADABLE["job.json"])
    with pytest.raises(UnreadableError, match="key_of_tomorrow"):
        read_job(JobFolder(tmp_path))


@pytest.mark.slow
def test_one_that_is_being_cancelled_says_so(tmp_path: Path) -> None:
    queue = LocalQueue(tmp_path / "queue")
    job_id = queue.submit(
        job("trap 'touch told' TERM; echo begun; while [ ! -e end ]; do sleep 0.1; done", grace_sec=60)
    )
    until(queue, job_id, lambda found, log: "begun" in log)
    queue.cancel(job_id)
    found = queue.status(job_id)
    assert (found.phase, "60 s" in found.reason) == (Phase.RUNNING, True)
    (tmp_path / "queue" / job_id / "run" / "end").touch()
    assert over(queue, job_id).phase.is_over


def test_a_team_is_told_to_be_no_more_than_a_word(tmp_path: Path) -> None:
    queue = LocalQueue(tmp_path / "queue")
    assert list(queue.findings(job("true"))) == []
    (warning,) = queue.findings(job("true", team="vision"))
    assert (warning.path, warning.severity) == ("team", "warning")


def test_a_full_disk_at_submit_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each file that a submit writes."""
    queue = LocalQueue(tmp_path / "queue")
    opened, left = os.open, 0

    def full(path: str, flags: int, *rest: int, **named: int) -> int:
        nonlocal left
        if flags & os.O_CREAT:
            left -= 1
            if left < 0:
                raise OSError(28, "No space left on device")
        return opened(path, flags, *rest, **named)

    told = list[InputError]()
    while not queue.jobs():
        left = len(told)
        with monkeypatch.context() as disk, suppress(_TakenError):
            disk.setattr(os, "open", full)
            with pytest.raises(InputError) as refused:
                submitted(queue)
            told.append(refused.value)
            assert list(tmp_path.iterdir()) == []
    assert len(told) >= 3, "the job file, the state, the log"
    assert all("No space left" in each.problem and "space" in each.fix for each in told)
    (taken,) = queue.jobs()
    assert over(queue, taken.id).phase is Phase.DONE


class _TakenError(Exception):
    """There was room for all of it."""


def submitted(queue: LocalQueue) -> None:
    queue.submit(job("true"))
    raise _TakenError


@pytest.mark.slow
def test_a_command_that_ends_as_interrupted_again_and_again_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would keep the turn for ever, for it is next to no time on nodes."""
    begun_by_another(tmp_path, monkeypatch, "from gangway.jobs import base; base._LEAST_INTERRUPTIONS = 2")
    queue = LocalQueue(tmp_path / "queue")
    script = "echo x >>runs; [ $(wc -l <runs) != 2 ] || exit 1; [ $(wc -l <runs) -lt 9 ] || exit 0; exit 75"
    job_id = queue.submit(job(script, max_restarts=1, max_hours=0.1))
    found = over(queue, job_id)
    assert (found.phase, found.exit_code, found.starts) == (Phase.FAILED, 5, 4), "a failure and two interruptions"
    assert "3 times" in found.reason
    assert queue.get_stored_job(job_id).failures == 1
    assert over(queue, queue.submit(job("true"))).phase is Phase.DONE


@pytest.mark.slow
def test_hours_do_not_follow_the_wall_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which goes on by a day at every look."""
    lines = "import itertools; days = itertools.count(); now = time.time_ns\n"
    begun_by_another(tmp_path, monkeypatch, f"{lines}time.time_ns = lambda: now() + next(days) * 86_400 * 10**9")
    queue = LocalQueue(tmp_path / "queue")
    job_id = queue.submit(job("test -e again && exit 0; touch again; exit 75", max_hours=0.1))
    assert over(queue, job_id).phase is Phase.DONE
    assert queue.get_usage(job_id).sec < 360


@pytest.mark.slow
def test_a_job_whose_folder_is_removed_is_ended_and_gives_its_turn_back(tmp_path: Path) -> None:
    queue = LocalQueue(tmp_path / "queue")
    told = tmp_path / "told"
    script = f"trap 'touch {told}; exit' TERM; echo begun; while :; do sleep 0.1; done"
    removed = queue.submit(job(script, max_hours=100))
    until(queue, removed, lambda found, log: "begun" in log)
    (tmp_path / "queue" / removed).rename(tmp_path / "removed")
    assert over(queue, queue.submit(job("true"))).phase is Phase.DONE
    assert told.exists()


def test_who_waits_for_a_removed_job_is_told(tmp_path: Path) -> None:
    queue = LocalQueue(tmp_path / "queue")
    (tmp_path / "queue").mkdir()
    with Turn(tmp_path / "queue") as turn:
        turn.take()
        assert "removed" in queue.room(job("true")).reason


def test_what_a_killed_submit_has_left_goes_with_the_next(tmp_path: Path) -> None:
    """With its environment; but not what a submit that is at work fills, and nothing that is no folder."""
    (queue := tmp_path / "queue").mkdir()
    names = {"killed": 3600, "killed-early": 3600, "fresh": 0, "at-work": 3600}
    for name, age_sec in names.items():
        folder = OwnJobFolder.make(queue / f".new-{name}")
        folder.write("environment", b"TOKEN=x\0", 0o600)
        if name != "killed-early":
            folder.touch("submitting")
        then = time.time() - age_sec
        os.utime(folder.path, (then, then))
    (queue / ".new-link").symlink_to(tmp_path)
    with (queue / ".new-at-work/submitting").open("ab") as held:
        lock(held)
        LocalQueue(queue).submit(job("true"))
    assert sorted(path.name for path in queue.glob(".new-*")) == [".new-at-work", ".new-fresh", ".new-link"]
