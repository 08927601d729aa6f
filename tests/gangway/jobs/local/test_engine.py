"""The local queue where processes are killed, folders are odd and two submit at once."""

import os
import shutil
import signal
import stat
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from gangway.components.core.findings import InputError
from gangway.jobs.base import Phase
from gangway.jobs.job_folder import OwnJobFolder
from gangway.jobs.local.engine import LocalQueue, begin_runner
from gangway.jobs.moves import move_job
from gangway.stacks.config.job_file import Priority
from tests.conftest import REPO
from tests.gangway.jobs.test_contract import job, limited, over, until


def processes_of(folder: Path) -> list[psutil.Process]:
    """What runs of the queue's jobs: their own processes, and what those have begun."""
    found = []
    for each in psutil.process_iter(["cmdline", "environ"]):
        words, variables = each.info["cmdline"] or [], each.info["environ"] or {}
        if any(str(folder) in word for word in words) or str(folder) in variables.get("GANGWAY_RUN_DIR", ""):
            found.append(each)
    return found


@pytest.mark.slow
def test_a_killed_job_goes_on_with_the_next_submit(tmp_path: Path) -> None:
    queue = LocalQueue(tmp_path / "queue")
    first = queue.submit(job("test -e seen && exit 0; touch seen; echo begun; sleep 600", max_restarts=0))
    until(queue, first, lambda found, log: "begun" in log)
    for process in processes_of(tmp_path):
        process.kill()
    lost = until(queue, first, lambda found, log: found.phase is Phase.WAITING)
    assert "next submit" in lost.reason
    second = queue.submit(job("true"))
    assert over(queue, second).phase is Phase.DONE
    found = over(queue, first)
    assert (found.phase, found.starts) == (Phase.DONE, 2)


@pytest.mark.slow
def test_one_that_waits_says_for_whom(tmp_path: Path) -> None:
    queue = LocalQueue(tmp_path / "queue")
    first = queue.submit(job("while :; do sleep 0.1; done"))
    until(queue, first, lambda found, log: found.phase is Phase.RUNNING)
    second, third = queue.submit(job("true")), queue.submit(job("true", priority=Priority.HIGH))
    reasons = {each.id: each.reason for each in queue.jobs()}
    assert reasons == {first: "", third: f"{first} before it", second: f"{first}, {third} before it"}
    queue.cancel(first)
    assert [over(queue, each).phase for each in (second, third)] == [Phase.DONE, Phase.DONE]


@pytest.mark.slow
def test_the_time_of_a_killed_start_counts(tmp_path: Path) -> None:
    """Up to when it last said that it was at work; else killed often enough it would have no end."""
    queue = LocalQueue(tmp_path / "queue")
    first = queue.submit(job("echo begun; sleep 600", max_hours=1))
    until(queue, first, lambda found, log: "begun" in log)
    for process in processes_of(tmp_path):
        process.kill()
    until(queue, first, lambda found, log: found.phase is Phase.WAITING)
    said = tmp_path / "queue" / first / "on-nodes"
    began, nodes, length = map(int, said.read_text().split())
    earlier_ms = 2 * 3_600_000
    said.write_text(f"{began - earlier_ms} {nodes} {length + earlier_ms}\n")
    queue.submit(job("true"))
    found = over(queue, first)
    assert found.phase is Phase.OVER_HOURS
    assert found.stretches is not None
    lost, last = found.stretches
    assert lost.end is not None
    assert (lost.end - lost.start).total_seconds() >= 2 * 3600
    assert last.start >= lost.end


@pytest.mark.slow
def test_what_a_killed_process_has_left_is_told_and_ended_before_it_is_begun_again(tmp_path: Path) -> None:
    """Its own process alone is killed: the command trains on, and two of them must not write into one folder."""
    queue = LocalQueue(tmp_path / "queue")
    script = "test -e saved && exit 0; trap 'touch saved; exit 75' TERM; echo $$ >pid; echo begun; "
    script += "while :; do sleep 0.1; done"
    first = queue.submit(job(script))
    until(queue, first, lambda found, log: "begun" in log)
    for process in processes_of(tmp_path):
        if "gangway.jobs.local.runner" in process.info["cmdline"]:
            process.kill()
    until(queue, first, lambda found, log: found.phase is Phase.WAITING)
    queue.submit(job("true"))
    found = over(queue, first)
    assert (found.phase, found.starts) == (Phase.DONE, 2)
    assert not psutil.pid_exists(int((tmp_path / "queue" / first / "run" / "pid").read_text()))


@pytest.mark.slow
def test_one_whose_process_was_killed_can_be_cancelled(tmp_path: Path) -> None:
    """The command lives on, and is told."""
    queue = LocalQueue(tmp_path / "queue")
    job_id = queue.submit(job("trap 'touch told; exit 75' TERM; echo begun; while :; do sleep 0.1; done"))
    until(queue, job_id, lambda found, log: "begun" in log)
    for process in processes_of(tmp_path):
        if "gangway.jobs.local.runner" in process.info["cmdline"]:
            process.kill()
    until(queue, job_id, lambda found, log: found.phase is Phase.WAITING)
    queue.cancel(job_id)
    assert over(queue, job_id).phase is Phase.CANCELLED
    assert (tmp_path / "queue" / job_id / "run" / "told").exists()
    assert processes_of(tmp_path / "queue" / job_id / "run") == []


@pytest.mark.slow
def test_nothing_that_a_job_has_begun_outlives_it(tmp_path: Path) -> None:
    """A child in the background, one in a session of its own, one that ignores its end; done, cancelled, over."""
    queue = LocalQueue(tmp_path)
    left = "setsid sh -c 'trap \"\" TERM; echo x >up; while :; do sleep 0.1; done' & "
    left += "while [ ! -e up ]; do sleep 0.05; done; "
    done = queue.submit(job(left + "exit 0"))
    assert over(queue, done).phase is Phase.DONE
    cancelled = queue.submit(job(left + "echo begun; sleep 600", grace_sec=1))
    until(queue, cancelled, lambda found, log: "begun" in log)
    queue.cancel(cancelled)
    assert over(queue, cancelled).phase is Phase.CANCELLED
    words = [process.info["cmdline"] for process in processes_of(tmp_path)]
    alive = [each for each in words if "gangway.jobs.local.runner" not in each]
    assert alive == []


def test_what_is_over_is_begun_by_nobody(tmp_path: Path) -> None:
    queue = LocalQueue(tmp_path)
    job_id = queue.submit(job("echo ran"))
    over(queue, job_id)
    queue.ensure_begun(job_id)
    begin_runner(OwnJobFolder(tmp_path / job_id))
    queue.submit(job("true"))
    time.sleep(0.5)
    assert (queue.status(job_id).starts, queue.log(job_id)[0]) == (1, "ran\n")


@pytest.mark.slow
def test_a_state_that_cannot_be_read_hides_no_other_job(tmp_path: Path) -> None:
    queue = LocalQueue(tmp_path)
    first, second = queue.submit(job("true")), queue.submit(job("true"))
    over(queue, second)
    (tmp_path / first / "state.json").write_text("")
    third = queue.submit(job("true"))
    assert over(queue, third).phase is Phase.DONE
    assert next((each.id, bool(each.reason)) for each in queue.jobs()) == (first, True)
    assert {each.id for each in queue.jobs()} == {first, second, third}


@pytest.mark.slow
def test_a_process_that_is_told_to_leave_tells_the_job(tmp_path: Path) -> None:
    """The machine goes down in order."""
    queue = LocalQueue(tmp_path / "queue")
    script = "test -e saved && exit 0; trap 'touch saved; exit 75' TERM; echo begun; while :; do sleep 0.1; done"
    first = queue.submit(job(script))
    until(queue, first, lambda found, log: "begun" in log)
    for process in processes_of(tmp_path):
        if "gangway.jobs.local.runner" in process.info["cmdline"]:
            os.kill(process.pid, signal.SIGTERM)
    until(queue, first, lambda found, log: found.phase is Phase.WAITING)
    assert (tmp_path / "queue" / first / "run" / "saved").exists()
    queue.submit(job("true"))
    assert over(queue, first).phase is Phase.DONE


@pytest.mark.slow
def test_several_submit_at_once_and_each_runs_once(tmp_path: Path) -> None:
    queue, ids = LocalQueue(tmp_path / "queue"), list[str]()
    script = "mkdir ../../running || exit 9; echo x >>../../all; sleep 0.1; rmdir ../../running"
    threads = [threading.Thread(target=lambda: ids.append(queue.submit(job(script, max_restarts=0)))) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 5
    assert {over(queue, job_id).phase for job_id in ids} == {Phase.DONE}
    assert (tmp_path / "queue" / "all").read_text() == 5 * "x\n"


@pytest.mark.slow
def test_one_that_is_lost_while_it_waits_can_be_cancelled(tmp_path: Path) -> None:
    queue = LocalQueue(tmp_path / "queue")
    first = queue.submit(job("while [ ! -e end ]; do sleep 0.1; done"))
    until(queue, first, lambda found, log: found.phase is Phase.RUNNING)
    second = queue.submit(job("touch begun"))
    for process in processes_of(tmp_path):
        if str(tmp_path / "queue" / second) in process.info["cmdline"]:
            process.kill()
    until(queue, second, lambda found, log: "next submit" in found.reason)
    queue.cancel(second)
    assert over(queue, second).phase is Phase.CANCELLED
    (tmp_path / "queue" / first / "run" / "end").touch()
    assert over(queue, first).phase is Phase.DONE
    assert not (tmp_path / "queue" / second / "run" / "begun").exists()


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        ({"image": f"registry.example.com/mine@sha256:{'0' * 64}"}, "image"),
        ({"outputs": ["/work/results"]}, "outputs"),
        ({"nodes": {"min": 2, "max": 2}}, "nodes"),
    ],
)
def test_what_this_machine_cannot_do_is_refused(tmp_path: Path, keys: dict[str, object], place: str) -> None:
    with pytest.raises(InputError) as refused:
        LocalQueue(tmp_path / "queue").submit(job("true", **keys))
    assert refused.value.place.startswith(place)
    assert not (tmp_path / "queue").exists()


def test_a_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="the job's folder cannot be made"):
        LocalQueue(tmp_path / "file").submit(job("true"))


def test_a_workdir_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    queue = LocalQueue(tmp_path)
    job_id = queue.submit(job("true", workdir="/no/such/folder"))
    assert over(queue, job_id).phase is Phase.BAD_INPUT
    assert "/no/such/folder" in queue.log(job_id)[0]


def test_letters_that_are_there_by_half_wait_for_their_end(tmp_path: Path) -> None:
    queue = LocalQueue(tmp_path)
    job_id = queue.submit(job("printf '\\303'; touch half; while [ ! -e end ]; do sleep 0.1; done; printf '\\244'"))
    pause = limited()
    while not (tmp_path / job_id / "run" / "half").exists():
        pause(queue.status(job_id))
    text, offset = queue.log(job_id)
    (tmp_path / job_id / "run" / "end").touch()
    over(queue, job_id)
    rest, _ = queue.log(job_id, offset)
    assert text + rest == "ä"


def test_a_log_that_ends_by_half_a_letter_is_shown_to_its_last_byte(tmp_path: Path) -> None:
    queue = LocalQueue(tmp_path)
    job_id = queue.submit(job("printf 'caf\\303'"))
    over(queue, job_id)
    assert queue.log(job_id) == ("caf\ufffd", 4)


@pytest.mark.slow
def test_folders_of_old_jobs_may_be_removed_while_others_wait(tmp_path: Path) -> None:
    queue = LocalQueue(tmp_path / "queue")
    first = queue.submit(job("while [ ! -e end ]; do sleep 0.1; done"))
    until(queue, first, lambda found, log: found.phase is Phase.RUNNING)
    second, third = queue.submit(job("true")), queue.submit(job("true"))
    queue.cancel(second)
    over(queue, second)
    shutil.rmtree(tmp_path / "queue" / second)
    (tmp_path / "queue" / first / "run" / "end").touch()
    assert over(queue, third).phase is Phase.DONE
    assert [each.id for each in queue.jobs()] == [first, third]


@pytest.mark.slow
def test_a_job_that_a_job_has_submitted_outlives_it(tmp_path: Path) -> None:
    queue = LocalQueue(tmp_path / "queue")
    (tmp_path / "inner.yaml").write_text("name: inner\ncommand: [sleep, '1']\nmax_hours: 1\n")
    submit = f"{sys.executable} -m gangway.cli job submit {tmp_path}/inner.yaml --on local:{tmp_path}/queue"
    outer = queue.submit(job(f"cd '{REPO}'; {submit}"))
    assert over(queue, outer).phase is Phase.DONE
    (inner,) = (each.id for each in queue.jobs() if each.name == "inner")
    assert over(queue, inner).phase is Phase.DONE


class Cut(BaseException):
    """A signal, which finds a submit at work."""


class CutQueue(LocalQueue):
    """One that is cut off where its runner has begun."""

    def _begin(self, job_id: str) -> None:
        super()._begin(job_id)
        raise Cut


def test_a_submit_that_is_cut_off_after_its_process_has_begun_cancels_it(tmp_path: Path) -> None:
    queue = LocalQueue(tmp_path / "queue")
    with pytest.raises(Cut):
        CutQueue(tmp_path / "queue").submit(job("while :; do sleep 0.1; done"))
    (left,) = queue.jobs()
    assert over(queue, left.id).phase is Phase.CANCELLED


@pytest.mark.slow
def test_a_move_that_is_cut_off_there_is_found_again(tmp_path: Path) -> None:
    source, target = LocalQueue(tmp_path / "a"), LocalQueue(tmp_path / "b")
    job_id = source.submit(job("test -e seen && exit 0; touch seen; trap 'exit 75' TERM; sleep 600 & wait"))
    until(source, job_id, lambda found, log: found.phase is Phase.RUNNING)
    with pytest.raises(Cut):
        move_job(source, job_id, CutQueue(tmp_path / "b"), limited(), lambda *_: None)
    moved = move_job(source, job_id, target, limited(), lambda *_: None)
    assert moved.copied is None
    assert over(target, moved.job_id).phase is Phase.DONE
    assert len(target.jobs()) == 1


@pytest.mark.slow
def test_a_job_that_is_taken_up_runs_in_the_environment_of_its_submit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the submit of another, which has secrets of its own."""
    queue = LocalQueue(tmp_path / "queue")
    monkeypatch.setenv("MINE", "a b\nä=c")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    says = 'printf "%s;%s;%s" "$MINE" "$THEIRS" "${PATH%%:*}" >said'
    first = queue.submit(job(f"{says}; test -e begun && exit 0; touch begun; echo begun; sleep 600"))
    until(queue, first, lambda found, log: "begun" in log)
    for process in processes_of(tmp_path):
        process.kill()
    until(queue, first, lambda found, log: found.phase is Phase.WAITING)
    monkeypatch.delenv("MINE")
    monkeypatch.setenv("PATH", os.environ["PATH"].partition(":")[2])
    monkeypatch.setenv("THEIRS", "s3cr3t")
    other = queue.submit(job('printf "%s;%s" "$MINE" "$THEIRS" >said'))
    assert [over(queue, each).phase for each in (first, other)] == [Phase.DONE, Phase.DONE]
    assert (tmp_path / "queue" / first / "run" / "said").read_text() == f"a b\nä=c;;{tmp_path}"
    assert (tmp_path / "queue" / other / "run" / "said").read_text() == ";s3cr3t"
    kept = [path for path in (tmp_path / "queue" / first).iterdir() if path.is_file() and b"MINE=" in path.read_bytes()]
    assert [stat.S_IMODE(path.stat().st_mode) for path in kept] == [0o600]


def test_a_folder_with_packages_of_the_same_names_is_no_other_gangway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    for name in ("gangway", "random"):
        (project / name).mkdir(parents=True)
        (project / name / "__init__.py").write_text("raise SystemExit('not ours')\n")
    monkeypatch.chdir(project)
    queue = LocalQueue(tmp_path / "queue")
    assert over(queue, queue.submit(job("true"))).phase is Phase.DONE
