"""Other people's jobs in the same Slurm, whatever their names and comments say; with a real one."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from stacks.engines.base import Phase
from stacks.engines.job_folder import OwnJobFolder
from stacks.engines.job_folders import read_status, write_status
from stacks.engines.slurm.engine import SlurmEngine
from tests.slurm_cluster import SlurmCluster
from tests.stacks.engines.test_contract import job, over, until

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]
RUNS_UNTIL_TOLD = "trap 'exit 75' TERM; echo begun; while :; do sleep 0.1; done"


@pytest.fixture
def engine(cluster: SlurmCluster, tmp_path: Path) -> SlurmEngine:
    (tmp_path / "queue").mkdir()
    return SlurmEngine(tmp_path / "queue", "gpu")


def submitted(cluster: SlurmCluster, *words: str) -> str:
    """A job that waits for ever."""
    return cluster.run("sbatch", "--parsable", "--hold", "--partition=gpu", *words, "--wrap=true").strip()


def test_names_that_squeue_cuts_within_a_letter_keep_nobody_out(engine: SlurmEngine, cluster: SlurmCluster) -> None:
    others = [submitted(cluster, f"--job-name={name}") for name in ("Vergrößerung", "eval-ab漢字")]
    try:
        room = engine.room(job("true"))
        assert not room.now
        assert "2 jobs waiting" in room.reason
        assert over(engine, engine.submit(job("true"))).phase is Phase.DONE
    finally:
        cluster.run("scancel", *others)


def test_a_comment_neither_hides_a_job_nor_speaks_for_one(
    engine: SlurmEngine, cluster: SlurmCluster, tmp_path: Path
) -> None:
    job_id = engine.submit(job(RUNS_UNTIL_TOLD))
    until(engine, job_id, lambda found, log: "begun" in log)
    number = (tmp_path / "queue" / job_id / "slurm-id").read_text().strip()
    forged = f"x\n{number}|{os.geteuid()}|CANCELLED|None|gangway:{tmp_path}/queue/{job_id}"
    others = [submitted(cluster, "--nice=200000", f"--comment={each}") for each in ("caf\udce9 z", forged)]
    try:
        (found,) = engine.jobs()
        assert found.phase is Phase.RUNNING
        engine.cancel(job_id)
        assert over(engine, job_id).phase is Phase.CANCELLED
    finally:
        cluster.run("scancel", *others)


@pytest.mark.attack("a user of a shared Slurm", "has somebody else's job cancelled by its number")
@pytest.mark.parametrize("forges_comment", [False, True])
def test_a_cancel_never_reaches_a_job_that_is_not_the_folders(
    engine: SlurmEngine, cluster: SlurmCluster, tmp_path: Path, forges_comment: bool
) -> None:
    """As root, who may cancel anything in Slurm. The number is one that Slurm has given to another user's job."""
    job_id = engine.submit(job("true"))
    assert over(engine, job_id).phase is Phase.DONE
    folder = tmp_path / "queue" / job_id
    comment = [f"--comment=gangway:{folder}"] if forges_comment else []
    other = submitted(cluster, "--uid=65534", "--gid=65534", "--chdir=/tmp", *comment)
    try:
        (folder / "slurm-id").write_text(f"{other}\n")
        (folder / "end").unlink()
        own = OwnJobFolder(folder)
        write_status(own, replace(read_status(own), phase=Phase.RUNNING, ended_at=None))
        engine.cancel(job_id)
        assert engine.status(job_id).phase is Phase.CANCELLED
        assert cluster.run("squeue", "--noheader", f"--jobs={other}", "--format=%T").strip() == "PENDING"
    finally:
        cluster.run("scancel", other)
