"""A Slurm whose answers get lost: what it has taken is one job, and what it has not is told; with a real one where it
has to take a job, with pretended commands where it has not.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gangway.components.core.findings import InputError
from gangway.jobs.base import EngineAwayError, Phase, SubmitUnansweredError
from gangway.jobs.local.engine import LocalQueue
from gangway.jobs.moves import move_job
from gangway.jobs.slurm import engine as slurm_engine
from gangway.jobs.slurm.engine import SlurmEngine
from tests.gangway.jobs.test_contract import job, limited, over, until
from tests.slurm_cluster import SlurmCluster

LOST = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
LOOKED_SEC = slurm_engine._LOOKED_SEC


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangway.jobs.slurm.engine._LOOK_SEC", 0.1)
    monkeypatch.setattr("gangway.jobs.slurm.engine._LOOKED_SEC", 1.0)


@contextmanager
def instead(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str, script: str) -> Iterator[None]:
    """A command of Slurm's is that script meanwhile, in which $real is its own."""
    (own := folder / "instead").mkdir(exist_ok=True)
    (own / program).write_text(f"#!/bin/sh\nreal={shutil.which(program)}\n{script}\n")
    (own / program).chmod(0o755)
    with monkeypatch.context() as path:
        path.setenv("PATH", f"{own}:{os.environ['PATH']}")
        yield
    (own / program).unlink()


@pytest.mark.slurm
@pytest.mark.xdist_group("slurm")
def test_a_submit_whose_answer_is_lost_is_the_job_that_slurm_has_taken(
    cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = SlurmEngine(tmp_path / "queue", "gpu")
    with instead(tmp_path, monkeypatch, "sbatch", f'"$real" "$@" >/dev/null; echo "{LOST}" >&2; exit 1'):
        job_id = engine.submit(job('echo x >>"$GANGWAY_RUN_DIR/starts"'))
    assert over(engine, job_id).phase is Phase.DONE
    assert [each.id for each in engine.jobs()] == [job_id]
    assert (tmp_path / "queue" / job_id / "run" / "starts").read_text() == "x\n"


@pytest.mark.slow
@pytest.mark.slurm
@pytest.mark.xdist_group("slurm")
def test_one_that_slurm_takes_later_is_in_no_other_jobs_folder(
    cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, words = SlurmEngine(tmp_path / "queue", "gpu"), tmp_path / "words"
    late = f'printf "%s\\n" "$@" >{words}; echo "{LOST}" >&2; exit 1'
    with instead(tmp_path, monkeypatch, "sbatch", late), pytest.raises(SubmitUnansweredError, match="case-1") as lost:
        engine.submit(job('echo x >>"$GANGWAY_RUN_DIR/starts"'))
    assert "case-1" in lost.value.fix
    again = engine.submit(job('echo x >>"$GANGWAY_RUN_DIR/starts"'))
    cluster.run("sbatch", *words.read_text().splitlines())
    assert [over(engine, each).phase for each in ("case-1", again)] == [Phase.DONE, Phase.DONE]
    for each in ("case-1", again):
        assert (tmp_path / "queue" / each / "run" / "starts").read_text() == "x\n"


@pytest.mark.slow
def test_a_move_whose_submit_has_got_no_answer_goes_on_with_the_same_job(
    pretended: Callable[[str, str], None], tmp_path: Path
) -> None:
    here, there = LocalQueue(tmp_path / "here"), SlurmEngine(tmp_path / "queue")
    job_id = here.submit(job("echo kept >state; trap 'exit 75' TERM; echo begun; while :; do sleep 0.1; done"))
    until(here, job_id, lambda found, log: "begun" in log)
    pretended("sbatch", f'echo "{LOST}" >&2; exit 1')
    with pytest.raises(SubmitUnansweredError):
        move_job(here, job_id, there, limited(), lambda done, total: None)
    pretended("sbatch", f"touch {tmp_path}/again; echo 8")
    pretended("squeue", f"echo '7|{os.geteuid()}|PENDING|None|gangway:{tmp_path}/queue/case-1'")
    assert move_job(here, job_id, there, limited(), lambda done, total: None).job_id == "case-1"
    assert [(each.id, each.phase) for each in there.jobs()] == [("case-1", Phase.WAITING)]
    assert (tmp_path / "queue" / "case-1" / "run" / "state").read_text() == "kept\n"
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    "said", ["Connection refused", "Unable to contact slurm controller (connect failure)", "invalid partition"]
)
def test_what_slurm_has_surely_not_taken_leaves_nothing(
    pretended: Callable[[str, str], None], tmp_path: Path, said: str
) -> None:
    pretended("sbatch", f'echo "sbatch: error: {said}" >&2; exit 1')
    with pytest.raises(InputError, match="sbatch") as refused:
        SlurmEngine(tmp_path / "queue").submit(job("true"))
    assert not isinstance(refused.value, SubmitUnansweredError)
    assert list(tmp_path.glob("queue/*")) == []


def test_before_it_was_submitted_a_lost_answer_is_no_job(pretended: Callable[[str, str], None], tmp_path: Path) -> None:
    pretended("scontrol", f'echo "{LOST}" >&2; exit 1')
    with pytest.raises(EngineAwayError, match="scontrol"):
        SlurmEngine(tmp_path / "queue").submit(job("true"))
    assert list(tmp_path.glob("queue/*")) == []


def test_a_submit_that_is_at_work_still_has_not_failed(
    pretended: Callable[[str, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its calls may take its whole time."""
    pretended("sbatch", f'echo "{LOST}" >&2; exit 1')
    engine = SlurmEngine(tmp_path / "queue")
    with pytest.raises(SubmitUnansweredError):
        engine.submit(job("true"))
    called = set((tmp_path / "calls").read_text().split())
    folder, now = tmp_path / "queue" / "case-1", time.clock_gettime
    longest = len(called) * slurm_engine._TIMEOUT_SEC + LOOKED_SEC
    monkeypatch.setattr(time, "clock_gettime", lambda clock: now(clock) + longest)
    assert engine.status("case-1").phase is Phase.WAITING
    assert not (folder / "cancel").exists()
    monkeypatch.setattr(time, "clock_gettime", lambda clock: now(clock) + longest + 3600)
    assert engine.status("case-1").phase is Phase.FAILED
    assert (folder / "cancel").exists(), "if it is taken after all, it does nothing"
