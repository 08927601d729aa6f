"""A folder of jobs that several users share, and where the one who submits has no name or no folder to stand in."""

import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gangway.components.core.findings import InputError
from gangway.jobs.base import EngineAwayError, JobStatus, Phase
from gangway.jobs.job_folder import JobFolder, job_ids
from gangway.jobs.job_folders import FolderEngine, get_environment
from gangway.jobs.kubernetes.engine import KubernetesEngine
from gangway.jobs.local.engine import LocalQueue
from gangway.jobs.moves import MoveResult, move_job
from gangway.jobs.slurm.engine import SlurmEngine
from tests.conftest import REPO
from tests.gangway.jobs.test_contract import end_processes, job, limited, over, until
from tests.other_users import holds_lock
from tests.slurm_cluster import SlurmCluster

_NOBODY = 65534
_POWERS = "-dac_override,-dac_read_search"
"""Of root, by which no folder is closed to it."""
SAYS = 'printf "%s;%s" "$MINE" "$THEIRS" >said'
MOVES = (
    f"test -e begun && {{ {SAYS}; exit; }}; touch begun; trap 'exit 75' TERM; echo begun; while :; do sleep 0.1; done"
)


def given_to_another(*paths: Path) -> str:
    """Closes them to whoever runs the tests; the name of who has them."""
    for path in paths:
        if os.geteuid() == 0:
            os.chown(path, _NOBODY, -1)
            path.chmod(0o700 if path.is_dir() else 0o644)
        else:  # its own can be closed too
            path.chmod(0 if path.is_dir() else 0o444)
    return paths[0].owner()


def gangway(*words: str, file: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """The command line of a user who is not almighty."""
    plain = ["setpriv", f"--bounding-set={_POWERS}", f"--inh-caps={_POWERS}"] if os.geteuid() == 0 else []
    argv = [*plain, sys.executable, "-m", "gangway.cli", "job", *words]
    env = {**os.environ, "PYTHONPATH": str(REPO)}
    return subprocess.run([*argv, *([str(file)] if file else [])], capture_output=True, text=True, env=env)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder with a job of another user's, case-1, which is over, in a place where everybody may write."""
    folder = tmp_path / "queue"
    folder.mkdir()
    folder.chmod(0o1777)
    queue = LocalQueue(folder)
    assert over(queue, queue.submit(job("true"))).phase is Phase.DONE
    return folder


@pytest.mark.slow
def test_jobs_of_two_users_stand_in_one_folder(shared: Path, tmp_path: Path) -> None:
    owner = given_to_another(shared / "case-1")
    (tmp_path / "case.yaml").write_text("name: case\ncommand: [echo, ran]\nmax_hours: 1\n")
    on = f"--on=local:{shared}"
    try:
        submitted = gangway("submit", on, file=tmp_path / "case.yaml")
        assert (submitted.returncode, submitted.stdout) == (0, "case-2\n"), submitted.stderr
        waited = gangway("wait", "case-2", on)
        assert waited.returncode == 0, waited
        assert gangway("logs", "case-2", on).stdout == "ran\n"
        listed = gangway("list", "--json", on)
        rows = {row["id"]: row for row in json.loads(listed.stdout)}
        assert set(rows) == {"case-1", "case-2"}
        phase = "another user's" if os.geteuid() == 0 else "cannot be read"
        assert (rows["case-1"]["phase"], rows["case-1"]["user"]) == (phase, owner)
        assert owner in rows["case-1"]["reason"]
        for command in ("status", "logs", "cancel"):
            refused = gangway(command, "case-1", on)
            assert (refused.returncode, owner in refused.stderr) == (2, True), (command, refused)
            assert "Traceback" not in refused.stderr
    finally:
        (shared / "case-1").chmod(0o700)


@pytest.mark.slow
def test_another_users_job_that_runs_is_waited_for(shared: Path, tmp_path: Path) -> None:
    given_to_another(shared / "case-1")
    (tmp_path / "case.yaml").write_text("name: case\ncommand: [echo, ran]\nmax_hours: 1\n")
    on = f"--on=local:{shared}"
    try:
        with holds_lock(_NOBODY, shared):
            submitted = gangway("submit", on, file=tmp_path / "case.yaml")
            assert submitted.returncode == 0, submitted.stderr
            assert "another user's job" in gangway("status", "case-2", on).stdout
        assert gangway("wait", "case-2", on).returncode == 0
    finally:
        (shared / "case-1").chmod(0o700)


def test_a_folder_that_has_the_name_of_a_job_takes_its_number(tmp_path: Path) -> None:
    """Whatever is in it, such as what is left of one that somebody has removed by half."""
    (tmp_path / "case-7" / "run").mkdir(parents=True)
    queue = LocalQueue(tmp_path)
    job_id = queue.submit(job("true"))
    assert job_id == "case-8"
    assert over(queue, job_id).phase is Phase.DONE
    assert job_ids(tmp_path) == [job_id]


class Removed(LocalQueue):
    """One whose jobs of that name are removed while they are looked at."""

    def status(self, job_id: str) -> JobStatus:
        if job_id == "case-1":
            shutil.rmtree(self._folder / job_id)
        return super().status(job_id)


@pytest.mark.slow
def test_a_job_that_is_removed_during_a_look_is_left_out(tmp_path: Path) -> None:
    queue = LocalQueue(tmp_path)
    over(queue, queue.submit(job("true")))
    over(queue, kept := queue.submit(job("true")))
    assert [each.id for each in Removed(tmp_path).jobs()] == [kept]


@pytest.mark.slow
def test_a_job_that_is_removed_during_a_look_fails_nobodys_submit(tmp_path: Path) -> None:
    queue = LocalQueue(tmp_path)
    over(queue, queue.submit(job("true")))
    job_id = Removed(tmp_path).submit(job("true"))
    assert over(queue, job_id).phase is Phase.DONE


def test_an_engine_that_is_away_has_no_list(tmp_path: Path) -> None:
    queue = LocalQueue(tmp_path)
    over(queue, queue.submit(job("true")))

    class Away(LocalQueue):
        def status(self, job_id: str) -> JobStatus:
            raise EngineAwayError("--on", "no answer")

    with pytest.raises(EngineAwayError):
        Away(tmp_path).jobs()


def test_a_user_without_a_name_is_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(user: int) -> None:
        raise KeyError(user)

    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    KubernetesEngine("here", "default", "queue")
    queue = LocalQueue(tmp_path / "queue")
    assert over(queue, queue.submit(job("true"))).user == str(os.getuid())


def test_a_command_that_would_begin_in_a_removed_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    queue = LocalQueue(tmp_path / "queue")
    with pytest.raises(InputError, match="removed") as refused:
        queue.submit(job("true"))
    assert "workdir" in refused.value.place
    assert refused.value.fix
    assert not (tmp_path / "queue").exists()


def moved(source: FolderEngine, job_id: str, target: FolderEngine) -> MoveResult:
    return move_job(source, job_id, target, limited(), lambda done, total: None)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[LocalQueue]:
    queue = LocalQueue(tmp_path / "here")
    yield queue
    end_processes(queue)


@pytest.fixture
def there(tmp_path: Path) -> Iterator[LocalQueue]:
    queue = LocalQueue(tmp_path / "there")
    yield queue
    end_processes(queue)


@pytest.mark.slow
def test_twice_from_local_to_local(
    here: LocalQueue, there: LocalQueue, tmp_path: Path, by_another: Callable[[], None]
) -> None:
    """Of one that waits, the second time."""
    job_id = here.submit(job(MOVES))
    until(here, job_id, lambda found, log: "begun" in log)
    by_another()
    holds = there.submit(job("while [ ! -e end ]; do sleep 0.1; done"))
    until(there, holds, lambda found, log: found.phase is Phase.RUNNING)
    first = moved(here, job_id, there)
    assert first.is_as_of_submit
    last = moved(there, first.job_id, here)
    assert over(here, last.job_id).phase is Phase.DONE
    folder = tmp_path / "here" / last.job_id
    assert (folder / "run" / "said").read_text() == "a b\nä=c;"
    kept = [path for path in folder.iterdir() if path.is_file() and b"MINE=" in path.read_bytes()]
    assert [stat.S_IMODE(path.stat().st_mode) for path in kept] == [0o600]


def test_one_that_cannot_be_read_is_told_before_the_job_is_stopped(
    here: LocalQueue, there: LocalQueue, tmp_path: Path
) -> None:
    job_id = here.submit(job(MOVES))
    until(here, job_id, lambda found, log: "begun" in log)
    (tmp_path / "here" / job_id / "environment").write_text("HOME")
    with pytest.raises(InputError, match="not a job's environment"):
        moved(here, job_id, there)
    assert here.status(job_id).phase is Phase.RUNNING
    assert there.jobs() == []


@pytest.mark.slow
@pytest.mark.slurm
@pytest.mark.xdist_group("slurm")
def test_in_a_slurm_and_from_there(
    cluster: SlurmCluster, here: LocalQueue, there: LocalQueue, tmp_path: Path, by_another: Callable[[], None]
) -> None:
    (tmp_path / "queue").mkdir()
    slurm = SlurmEngine(tmp_path / "queue", "gpu")
    twice = (
        f"{SAYS}-$(ls -d begun* | wc -l); test -e begun-2 && exit; test -e begun-1 && touch begun-2; touch begun-1; "
    )
    job_id = here.submit(job(f"{twice} trap 'exit 75' TERM; echo begun; while :; do sleep 0.1; done"))
    until(here, job_id, lambda found, log: "begun" in log)
    by_another()
    middle = moved(here, job_id, slurm)
    until(slurm, middle.job_id, lambda found, log: "begun" in log)
    assert get_environment(JobFolder(tmp_path / "queue" / middle.job_id))["MINE"] == "a b\nä=c"
    last = moved(slurm, middle.job_id, there)
    assert (over(there, last.job_id).phase, last.is_as_of_submit) == (Phase.DONE, True)
    run = tmp_path / "there" / last.job_id / "run"
    assert [path.read_text() for path in sorted(run.glob("said-*"))] == ["a b\nä=c;"] * 3
