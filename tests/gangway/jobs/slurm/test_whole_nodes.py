"""A job has all that its nodes have: GPUs and memory, whatever was around its submit; with a real one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gangway.jobs.base import Phase
from gangway.jobs.job_folder import JobFolder
from gangway.jobs.job_folders import get_environment
from gangway.jobs.slurm.engine import SlurmEngine
from tests.gangway.jobs.slurm.test_hard_ends import SUBMIT
from tests.gangway.jobs.test_contract import job, over
from tests.slurm_cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]
SAYS = 'echo "$SLURMD_NODENAME has $CUDA_VISIBLE_DEVICES of $SLURM_STEP_GPUS"'
STEPS = "scontrol show step $SLURM_JOB_ID | grep -o ' TRES=.*'"


@pytest.fixture
def engine(cluster: SlurmCluster, tmp_path: Path) -> SlurmEngine:
    (tmp_path / "queue").mkdir()
    return SlurmEngine(tmp_path / "queue", "h100")


def said(engine: SlurmEngine, job_id: str) -> list[str]:
    """By a job that is done."""
    assert over(engine, job_id).phase is Phase.DONE
    return [line for line in engine.log(job_id)[0].splitlines() if re.match(r"[gn][0-9] has ", line)]


@pytest.mark.slow
def test_processes_see_all_gpus_of_their_node_at_each_start(engine: SlurmEngine) -> None:
    again = (
        'test -e again-$SLURM_PROCID && exit; touch again-$SLURM_PROCID; [ "$SLURM_PROCID" = 1 ] && exit 1; sleep 60'
    )
    job_id = engine.submit(job(f"{SAYS}; {again}", nodes={"min": 2, "max": 2}))
    assert sorted(said(engine, job_id)) == ["g1 has 0,1 of 0,1"] * 2 + ["g2 has 0,1 of 0,1"] * 2
    assert engine.status(job_id).starts == 2


@pytest.mark.slow
def test_ranks_on_a_node_see_its_gpus(engine: SlurmEngine) -> None:
    job_id = engine.submit(job(SAYS, nodes={"min": 2, "max": 2}, processes_per_node=2))
    assert sorted(said(engine, job_id)) == ["g1 has 0,1 of 0,1"] * 2 + ["g2 has 0,1 of 0,1"] * 2


def test_where_there_is_no_gpu_none_is_asked_for(cluster: SlurmCluster, tmp_path: Path) -> None:
    engine = SlurmEngine(tmp_path / "queue", "one")
    assert said(engine, engine.submit(job(SAYS))) == ["n1 has  of "]


def test_a_step_has_the_memory_of_its_nodes(engine: SlurmEngine) -> None:
    """More than Slurm gives who asks for none."""
    job_id = engine.submit(job(STEPS, nodes={"min": 1, "max": 1}))
    assert over(engine, job_id).phase is Phase.DONE
    assert "mem=500M" in engine.log(job_id)[0]


@pytest.mark.slow
def test_an_allocation_around_the_submit_is_not_the_jobs(
    engine: SlurmEngine, cluster: SlurmCluster, tmp_path: Path
) -> None:
    """What it asked for stays its own, and so do the GPUs that it shows."""
    folder = tmp_path / "queue"
    script = f"{SAYS}; {STEPS}; printenv SLURM_CPUS_PER_TASK && exit 1; exit 0"
    submit = [sys.executable, "-c", SUBMIT, str(folder), job(script).model_dump_json(exclude_unset=True), "h100"]
    outer = ["salloc", "--quiet", "--partition=one", "--nodes=1", "--mem=100", "--cpus-per-task=1"]
    env = {**os.environ, "SBATCH_COMMENT": "kept", "SBATCH_MEM_PER_CPU": "10"}
    done = subprocess.run([*outer, *submit], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert said(engine, "case-1")[0].endswith("has 0,1 of 0,1")
    assert "mem=500M" in engine.log("case-1")[0]
    kept = get_environment(JobFolder(folder / "case-1"))
    assert {name for name in kept if name.startswith("SLURM")} == {"SLURM_CONF"}
    assert kept["SBATCH_COMMENT"] == "kept"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nodes", "env", "expected"),
    [
        (2, {}, "AWS Libfabric, AWS Libfabric, 800."),
        (2, {"NCCL_NET": "Socket"}, "Socket, "),
        (1, {}, "none, none, none."),
    ],
)
def test_several_nodes_are_told_which_network_nccl_has_to_take(
    engine: SlurmEngine, nodes: int, env: dict[str, str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a node of Gangway's own Slurm has it in a file; the job's own metric comes first."""
    (tmp_path / "job-fabric").write_text("NCCL_NET=AWS Libfabric\nGANGWAY_FABRIC_MIN_GBPS=800\n")
    monkeypatch.setenv("GANGWAY_FABRIC", str(tmp_path / "job-fabric"))
    monkeypatch.delenv("NCCL_NET", raising=False)
    says = 'echo "net ${NCCL_NET-none}, ${APPTAINERENV_NCCL_NET-none}, ${GANGWAY_FABRIC_MIN_GBPS-none}."'
    job_id = engine.submit(job(says, nodes={"min": nodes, "max": nodes}, env=env))
    assert over(engine, job_id).phase is Phase.DONE
    assert engine.log(job_id)[0].count(f"net {expected}") == nodes
