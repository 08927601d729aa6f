"""Steps that Slurm does not make, or not at once: a job is told all the same, and counts nothing that it did not do."""

import os
import shutil
from pathlib import Path

import pytest

from gangway.jobs.base import Phase
from gangway.jobs.slurm.engine import SlurmEngine
from tests.gangway.jobs.test_contract import job, over, until
from tests.slurm_cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]
TOLD = "trap 'touch told; exit 75' TERM; echo begun; while :; do sleep 0.1; done"


def submitted(engine: SlurmEngine, tmp_path: Path, srun: str, script: str, **keys: object) -> str:
    """A job in which srun is that script, with its own as $real."""
    (own := tmp_path / "own" / "srun").parent.mkdir()
    own.write_text(f"#!/bin/sh\nreal={shutil.which('srun')}\n{srun}\n")
    own.chmod(0o755)
    with pytest.MonkeyPatch.context() as path:
        path.setenv("PATH", f"{own.parent}:{os.environ['PATH']}")  # which sbatch hands on
        return engine.submit(job(script, **keys))


def begun_after_a_failed_srun(engine: SlurmEngine, tmp_path: Path, max_restarts: int) -> str:
    """A job that runs, and whose first srun has failed before there was a step."""
    srun = f'mkdir {tmp_path}/failed && exit 1; exec "$real" "$@"'
    job_id = submitted(engine, tmp_path, srun, TOLD, max_restarts=max_restarts)
    until(engine, job_id, lambda found, log: "begun" in log)
    return job_id


@pytest.mark.slow
def test_an_srun_that_fails_by_itself_is_no_failure_of_the_job(engine: SlurmEngine, tmp_path: Path) -> None:
    job_id = begun_after_a_failed_srun(engine, tmp_path, max_restarts=0)
    assert (engine.status(job_id).starts, engine.get_stored_job(job_id).failures) == (1, 0)


@pytest.mark.slow
def test_a_job_is_told_of_a_cancel_though_an_srun_before_has_made_no_step(engine: SlurmEngine, tmp_path: Path) -> None:
    job_id = begun_after_a_failed_srun(engine, tmp_path, max_restarts=3)
    engine.cancel(job_id)
    assert over(engine, job_id).phase is Phase.CANCELLED
    assert (tmp_path / "queue" / job_id / "run" / "told").exists()


@pytest.mark.slow
def test_an_srun_that_waits_for_its_step_is_ended(engine: SlurmEngine, tmp_path: Path) -> None:
    """Its only core is taken by another step."""
    srun = f'"$real" true; "$real" --ntasks=1 sleep 100 & sleep 1; touch {tmp_path}/waits; exec "$real" "$@"'
    job_id = submitted(engine, tmp_path, srun, "touch ran")
    until(engine, job_id, lambda found, log: (tmp_path / "waits").exists())
    engine.cancel(job_id)
    assert over(engine, job_id).phase is Phase.CANCELLED
    assert not (tmp_path / "queue" / job_id / "run" / "ran").exists()


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_what_begins_while_the_controller_is_away_waits_for_it(
    engine: SlurmEngine, cluster: SlurmCluster, tmp_path: Path
) -> None:
    srun = f'touch {tmp_path}/waits; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; exec "$real" "$@"'
    job_id = submitted(engine, tmp_path, srun, "true", max_restarts=0)
    until(engine, job_id, lambda found, log: (tmp_path / "waits").exists())
    cluster.end_controller()
    (tmp_path / "go").touch()
    cluster.until(("tail", "-n", "2", str(tmp_path / "queue" / job_id / "log")), "controller")
    cluster.begin_controller()
    cluster.until(("scontrol", "ping"), "UP")
    # An srun that is earlier than the nodes' word asks again after minutes.
    found = over(engine, job_id, 280)
    assert (found.phase, found.starts, engine.get_stored_job(job_id).failures) == (Phase.DONE, 1, 0)


@pytest.mark.slow
def test_one_that_is_told_while_the_controller_is_away_hears_of_it_and_is_saved(
    engine: SlurmEngine, cluster: SlurmCluster, tmp_path: Path
) -> None:
    """As where its hours end."""
    job_id = engine.submit(job(TOLD, max_hours=8 / 3600))
    folder = tmp_path / "queue" / job_id
    until(engine, job_id, lambda found, log: "begun" in log)
    cluster.end_controller()
    cluster.until(("cat", str(folder / "notices.jsonl")), "stop")
    cluster.begin_controller()
    cluster.until(("scontrol", "ping"), "UP")
    assert over(engine, job_id).phase is Phase.OVER_HOURS
    assert (folder / "run" / "told").exists()
