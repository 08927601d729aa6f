"""The batch script by itself, with pretended commands of Slurm: what a start finds that another one has left."""

import os
import subprocess
from pathlib import Path

import pytest

from images.render import TEMPLATES
from stacks.engines.slurm.script import batch_env
from tests.stacks.engines.test_contract import job


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a job whose steps are done at once."""
    (programs := tmp_path / "programs").mkdir()
    (folder := tmp_path / "case-1").mkdir()
    for name, script in (("scontrol", "echo n1"), ("srun", f"echo x >>{folder}/steps"), ("scancel", "")):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    (folder / "batch.env").write_text(batch_env(job("true"), "case-1", "gpu"))
    return folder


def begun(folder: Path) -> None:
    """Once more, by Slurm."""
    variables = {
        **os.environ, "PATH": f"{folder.parent / 'programs'}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "7", "SLURM_NNODES": "1", "SLURM_JOB_NODELIST": "n1",
    }  # fmt: skip
    words = ["/bin/bash", str(TEMPLATES / "job" / "slurm-batch.sh"), str(folder)]
    done = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("noted", "begins"),
    [("", ["1000"]), ("1000 2000 1\n", ["1000"]), ("500 900 1\n1000 2000 1\n", ["500", "1000"])],
)
def test_a_start_that_was_killed_is_noted_once(folder: Path, noted: str, begins: list[str]) -> None:
    """A kill between the two steps of noting it leaves it in both files, or in the first alone."""
    (folder / "stretches").write_text(noted)
    (folder / "on-nodes").write_text("1000 1\n")
    os.utime(folder / "on-nodes", (3, 3))
    begun(folder)
    lines = (folder / "stretches").read_text().splitlines()
    assert [line.split()[0] for line in lines[:-1]] == begins
    assert int(lines[-1].split()[0]) > 1000, "this start's own"
    assert not (folder / "on-nodes").exists()


def test_a_job_whose_end_is_known_begins_no_more(folder: Path) -> None:
    (folder / "end").write_text("failed 1 1000 its word\n")
    begun(folder)
    assert not (folder / "steps").exists()
    assert (folder / "end").read_text() == "failed 1 1000 its word\n"


def test_one_whose_end_is_not_known_does(folder: Path) -> None:
    begun(folder)
    assert (folder / "steps").read_text() == "x\n"
    assert (folder / "end").read_text().startswith("done 0 ")
