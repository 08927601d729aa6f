"""What a job of the local queue has put into Slurm is not of that job, and outlives it."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gangway.jobs.base import Phase
from gangway.jobs.job_folders import MARK, RUNNER_MARK
from gangway.jobs.local.engine import LocalQueue
from gangway.jobs.slurm.engine import SlurmEngine
from tests.gangway.jobs.test_contract import job, over


@pytest.fixture
def marked(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Begins a process that has the first local job's variable, and is none of its children."""
    begun = []

    def begin(**variables: str) -> subprocess.Popen[bytes]:
        env = {**os.environ, MARK: str(tmp_path / "here" / "case-1"), **variables}
        begun.append(subprocess.Popen(["sleep", "600"], env=env))
        return begun[-1]

    yield begin
    for each in begun:
        each.kill()
        each.wait()


def test_the_end_of_a_local_job_is_not_that_of_what_runs_in_slurm(
    tmp_path: Path, marked: Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    in_slurm, own = marked(SLURM_JOB_ID="7"), marked()
    queue = LocalQueue(tmp_path / "here")
    assert over(queue, queue.submit(job("true"))).phase is Phase.DONE
    assert own.wait(10) != 0, "what it has left is ended"
    assert in_slurm.poll() is None


def test_a_local_queue_in_a_job_of_slurms_ends_its_own(
    tmp_path: Path, marked: Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As salloc has it: there everything has the variable."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    of_another, own = marked(SLURM_JOB_ID="8"), marked()
    queue = LocalQueue(tmp_path / "here")
    assert over(queue, queue.submit(job("true"))).phase is Phase.DONE
    assert own.wait(10) != 0
    assert of_another.poll() is None


def test_slurm_is_not_told_the_variables_of_the_local_job_that_submits(
    pretended: Callable[[str, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretended("sbatch", f"env >{tmp_path}/env; echo 7")
    for each in (MARK, RUNNER_MARK, "MINE"):
        monkeypatch.setenv(each, "/here/case-1")
    SlurmEngine(tmp_path / "queue").submit(job("true"))
    told = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert told & {MARK, RUNNER_MARK, "MINE"} == {"MINE"}
