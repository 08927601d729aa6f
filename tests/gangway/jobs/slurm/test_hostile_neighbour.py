"""Another user of the same cluster, who knows a job's number: torchrun runs no code of his, and a preset's nodes do not
hear him at all. With a real Slurm.
"""

import sys
import time
from pathlib import Path

import pytest

from gangway.jobs.base import Phase
from gangway.jobs.slurm.engine import SlurmEngine
from gangway.jobs.slurm.script import MEMBER_KEY
from gangway.stacks.config.job_file import JobFile
from tests.gangway.jobs.test_contract import over, until
from tests.hostile_store import attack_store
from tests.slurm_cluster import SlurmCluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.slurm,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.attack("a user of the same cluster", "code in another's queued job, or its end"),
]
WORKER = """
import os, sys, time
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
print("together", dist.get_world_size(), flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
dist.destroy_process_group()
"""


def attacked(port: int, number: str, mark: Path) -> str:
    """What comes of the attack: `in` where the store takes the state."""
    return attack_store(mark, [port], [f"torch.rendezvous.{each}" for each in (number, "gangway")])


def get_number(engine: SlurmEngine, folder: Path, job_id: str, says: str) -> str:
    until(engine, job_id, lambda found, log: says in log)
    return (folder / job_id / "slurm-id").read_text().strip()


def test_a_command_of_two_nodes_runs_nobody_elses_code(cluster: SlurmCluster, tmp_path: Path) -> None:
    script, go, mark = tmp_path / "worker.py", tmp_path / "go", tmp_path / "mark"
    script.write_text(WORKER)
    engine = SlurmEngine(tmp_path / "queue", "gpu")
    command = (sys.executable, str(script), str(go))
    nodes = {"min": 2, "max": 2}
    job = {"name": "own", "command": command, "nodes": nodes, "processes_per_node": 1, "max_hours": 1}
    job_id = engine.submit(JobFile.model_validate(job))
    number = get_number(engine, tmp_path / "queue", job_id, "together 2")
    try:
        assert attacked(20000 + int(number) * 7 % 10000, number, mark) == "in", "as the finding at submit says"
        time.sleep(5)  # torchrun would read a state some times a second
    finally:
        go.touch()
    assert over(engine, job_id).phase is Phase.DONE
    assert not mark.exists()


def test_a_presets_nodes_hear_nobody_without_their_key(cluster: SlurmCluster, tmp_path: Path) -> None:
    engine = SlurmEngine(tmp_path / "queue", "gpu")
    job = {"name": "digits", "preset": "dcgan-digits", "kimg": 1, "processes_per_node": 1, "max_hours": 1}
    file = JobFile.model_validate({**job, "nodes": {"min": 2, "max": 2}, "max_restarts": 0})
    job_id = engine.submit(file)
    folder = tmp_path / "queue" / job_id
    number = get_number(engine, tmp_path / "queue", job_id, "enough nodes have met")
    said = attacked(20000 + int(number) * 7 % 10000, number, tmp_path / "mark")
    assert said != "in"
    end = over(engine, job_id)
    log = engine.log(job_id)[0]
    assert (end.phase, end.starts) == (Phase.DONE, 1), log
    assert not (tmp_path / "mark").exists()
    assert "whoever reaches the rendezvous" not in log
    key = folder / MEMBER_KEY
    assert [path.stat().st_mode & 0o777 for path in (folder, key.parent, key)] == [0o700, 0o700, 0o600]
    secret = key.read_text().splitlines()[1]
    assert [path for path in folder.rglob("*") if path.is_file() and secret in path.read_text(errors="replace")] == [
        key
    ]
    assert secret not in cluster.run("scontrol", "show", "job", "--details", number)
