"""A job's resource limits are its node's, whatever its submitter's shell has: read in jobs of each engine."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangway.components.core.job import OPEN_FILES
from gangway.jobs.local.engine import LocalQueue
from gangway.jobs.slurm.engine import SlurmEngine
from tests.gangway.jobs.test_contract import job, over
from tests.slurm_cluster import SlurmCluster

LOW_BYTES, LOW_FILES = 64 * 1024, 300
SAY = 'echo "limits $(ulimit -S -l) $(ulimit -S -n)."'


@pytest.fixture
def low_limits() -> Iterator[tuple[int, int]]:
    """Those of a login shell; gives the hard ones."""
    kinds = (resource.RLIMIT_MEMLOCK, resource.RLIMIT_NOFILE)
    before = [resource.getrlimit(kind) for kind in kinds]
    for kind, low, (_, hard) in zip(kinds, (LOW_BYTES, LOW_FILES), before, strict=True):
        resource.setrlimit(kind, (low, hard))
    yield before[0][1], before[1][1]
    for kind, pair in zip(kinds, before, strict=True):
        resource.setrlimit(kind, pair)


def said(memory_bytes: int, files: int) -> str:
    """By a job."""
    memory = "unlimited" if memory_bytes == resource.RLIM_INFINITY else str(memory_bytes // 1024)
    return f"limits {memory} {files}."


def test_on_this_machine_a_job_has_all_that_its_user_may(low_limits: tuple[int, int], tmp_path: Path) -> None:
    engine = LocalQueue(tmp_path / "queue")
    job_id = engine.submit(job(SAY))
    over(engine, job_id)
    memory, files = low_limits
    assert said(memory, min(files, OPEN_FILES)) in engine.log(job_id)[0]


@pytest.mark.slurm
@pytest.mark.xdist_group("slurm")
def test_in_slurm_both_the_step_and_its_nodes_have_those_of_slurmd(
    cluster: SlurmCluster, low_limits: tuple[int, int], tmp_path: Path
) -> None:
    """That cluster's slurm.conf leaves Slurm's default, which is the submitter's limits."""
    (tmp_path / "queue").mkdir()
    engine = SlurmEngine(tmp_path / "queue", "gpu")
    job_id = engine.submit(job(SAY, nodes={"min": 2, "max": 2}))
    over(engine, job_id)
    pid = cluster.processes["slurmd-n1"].pid
    of_slurmd = Path(f"/proc/{pid}/limits").read_text().splitlines()
    memory, files = (next(line.split()[3] for line in of_slurmd if name in line) for name in ("locked", "open files"))
    expected = said(resource.RLIM_INFINITY if memory == "unlimited" else int(memory), int(files))
    assert engine.log(job_id)[0].count(expected) == 2
    assert int(files) > LOW_FILES
