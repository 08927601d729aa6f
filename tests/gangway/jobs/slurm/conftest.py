"""Engines on a real Slurm, and a Slurm that is pretended: commands that say what a test wants to hear."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gangway.jobs.slurm.engine import SlurmEngine
from tests.slurm_cluster import SlurmCluster


@pytest.fixture
def pretended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Sets what a command of a Slurm does that has one partition of 3 nodes, no accounts and no jobs."""
    folder = tmp_path / "programs"
    folder.mkdir()

    def program(name: str, script: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\necho {name} >>{tmp_path}/calls\n{script}\n")
        (folder / name).chmod(0o755)

    program("sinfo", "echo 'gpu*|3|infinite'")
    program("scontrol", "echo 'AccountingStorageType = (null)'")
    program("squeue", "")
    program("scancel", "")
    program("sbatch", "echo 7")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return program


@pytest.fixture
def engine(cluster: SlurmCluster, tmp_path: Path) -> SlurmEngine:
    (tmp_path / "queue").mkdir()
    return SlurmEngine(tmp_path / "queue", "gpu")
