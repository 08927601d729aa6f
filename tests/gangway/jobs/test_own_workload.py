"""A program that knows nothing of Gangway, stopped and gone on with unchanged, on each engine."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from gangway.jobs.base import Phase
from gangway.jobs.job_folders import FolderEngine
from gangway.jobs.local.engine import LocalQueue
from gangway.jobs.moves import move_job
from gangway.jobs.slurm.engine import SlurmEngine
from gangway.stacks.config.job_file import JobFile
from tests.conftest import REPO
from tests.gangway.jobs.test_contract import limited, over, until
from tests.slurm_cluster import SlurmCluster

EPOCHS = 8
"""So many that it trains on while it is being moved."""


def classifier(**keys: object) -> JobFile:
    command = [sys.executable, str(REPO / "examples/own-job/train.py"), "--epochs", str(EPOCHS)]
    given = {"name": "classifier", "command": command, "processes_per_node": 2, "max_hours": 1, "max_restarts": 0}
    return JobFile.model_validate({**given, **keys})


def trained(engine: FolderEngine, job_id: str) -> dict[str, Any]:
    """The last checkpoint."""
    folder = Path(engine.run_url(job_id).removeprefix("file://"))
    found: dict[str, Any] = torch.load(folder / "checkpoint.pt", weights_only=True)
    return found


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert (one["epoch"], one["step"]) == (other["epoch"], other["step"]) == (EPOCHS, 0)
    assert one["model"].keys() == other["model"].keys()
    assert all(torch.equal(one["model"][name], other["model"][name]) for name in one["model"])


@pytest.mark.slow
def test_moved_from_queue_to_queue_it_ends_in_the_same_bits(tmp_path: Path) -> None:
    source, target = LocalQueue(tmp_path / "a"), LocalQueue(tmp_path / "b")
    alone = target.submit(classifier())
    assert over(target, alone).phase is Phase.DONE
    job_id = source.submit(classifier())
    until(source, job_id, lambda found, log: "epoch 1:" in log)
    moved = move_job(source, job_id, target, limited(), lambda done, total: None)
    assert over(target, moved.job_id).phase is Phase.DONE
    assert "epoch 1:" not in target.log(moved.job_id)[0], "it goes on, and begins nothing anew"
    assert_same(trained(target, moved.job_id), trained(target, alone))


@pytest.mark.slow
@pytest.mark.slurm
@pytest.mark.xdist_group("slurm")
def test_requeued_by_slurm_and_moved_to_this_machine_it_ends_in_the_same_bits(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    engine, here = SlurmEngine(tmp_path / "slurm", "gpu"), LocalQueue(tmp_path / "here")
    alone = engine.submit(classifier())
    assert over(engine, alone).phase is Phase.DONE
    job_id = engine.submit(classifier())
    first = until(engine, job_id, lambda found, log: "epoch 1:" in log)
    number = (tmp_path / "slurm" / job_id / "slurm-id").read_text().strip()
    cluster.run("scontrol", "requeue", number)
    cluster.until_left(number)
    cluster.run("scontrol", "update", f"jobid={number}", f"ExcNodeList={','.join(first.nodes)}", "StartTime=now")
    until(engine, job_id, lambda found, log: found.starts == 2 and "epoch 2:" in log)
    assert not set(engine.status(job_id).nodes) & set(first.nodes)
    moved = move_job(engine, job_id, here, limited(), lambda done, total: None)
    assert engine.status(job_id).phase is Phase.CANCELLED
    again = move_job(engine, job_id, here, limited(), lambda done, total: None)
    assert (again.job_id, again.copied, len(here.jobs())) == (moved.job_id, None, 1)
    assert over(here, moved.job_id).phase is Phase.DONE
    assert_same(trained(here, moved.job_id), trained(engine, alone))


@pytest.mark.slow
def test_its_own_mistake_is_bad_input(tmp_path: Path) -> None:
    queue = LocalQueue(tmp_path)
    job_id = queue.submit(
        classifier(command=[sys.executable, str(REPO / "examples/own-job/train.py"), "--epochs", "0"])
    )
    found = over(queue, job_id)
    assert (found.phase, found.starts) == (Phase.BAD_INPUT, 1)
    assert "--epochs: at least 1" in queue.log(job_id)[0]
