"""What Slurm is asked for, without one: minutes and its own way of writing them; and what a node's part hands on."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.images.render import TEMPLATES
from gangway.jobs.slurm.script import (
    NODE_SCRIPT,
    OWN_JOB,
    get_max_hours,
    get_minutes,
    node_env,
    parse_minutes,
    without_allocation,
)
from gangway.stacks.config.job_file import JobFile

OWN = {
    "HOME": "/root", "MY_SLURM_NOTES": "a", "SBATCH_ACCOUNT": "vision", "SBATCH_PARTITION": "gpu", "SALLOC_QOS": "low",
    "SLURM_CONF": "/own/slurm.conf", "SLURM_CONF_SERVER": "head", "SLURM_JWT": "s3cr3t", "SLURM_CLUSTERS": "lab",
}  # fmt: skip
GIVEN = {
    "SLURM_JOB_ID": "7", "SLURM_MEM_PER_NODE": "100", "SLURM_GPUS_PER_NODE": "1", "SLURMD_NODENAME": "n1",
    "SLURM_STEP_GPUS": "0", "CUDA_VISIBLE_DEVICES": "0", "SBATCH_MEM_BIND_TYPE": "none",
}  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "minutes"),
    [
        ("infinite", None),
        ("30:00", 30),
        ("4:30:00", 270),
        ("1-02:30:00", 1590),
        ("2-00:00:00", 2880),
        ("UNLIMITED", None),
    ],
)
def test_a_limit_is_read_as_slurm_writes_it(limit: str, minutes: int | None) -> None:
    assert parse_minutes(limit) == minutes


@given(st.integers(1, 60 * 24 * 28), st.integers(1, 3600))
def test_the_hours_that_are_proposed_fit(minutes: int, grace_sec: int) -> None:
    job = JobFile(name="a", command=("true",), max_hours=1, grace_sec=grace_sec)
    hours = get_max_hours(job, minutes)
    if hours > 0:
        assert get_minutes(job.model_copy(update={"max_hours": hours})) <= minutes
        assert get_minutes(job.model_copy(update={"max_hours": hours + 0.02})) > minutes - 1


def names_of_shells() -> list[str]:
    """Variables that a shell has by itself, or makes something of."""
    known = set[str]()
    for words in (["bash"], ["bash", "--posix"]):
        said = subprocess.run([*words, "-c", "compgen -v"], env={"PATH": os.environ["PATH"]}, capture_output=True)
        known |= set(said.stdout.decode().split())
    return sorted(known | {"RANDOM", "SRANDOM", "SECONDS", "IFS", "PATH", "CDPATH", "ENV", "BASH_ENV", "TMOUT", "HOME"})


def accepted() -> dict[str, str]:
    """Of these what a job may set."""
    found = {}
    for name in names_of_shells():
        try:
            JobFile(name="a", command=("true",), max_hours=1, env={name: "7"})
        except ValueError:
            continue
        found[name] = "7"
    return found


def test_names_that_shells_compute_are_refused() -> None:
    assert set(names_of_shells()) - set(accepted()) >= {"RANDOM", "OPTIND", "GROUPS", "UID", "PWD", "_"}
    assert {"PATH", "HOME", "IFS"} & set(accepted()) == {"PATH", "HOME"}


@pytest.mark.parametrize("shell", [["/bin/sh"], ["/bin/bash", "--posix"]])
def test_a_command_finds_the_variables_of_its_job(
    pretended: Callable[[str, str], None], tmp_path: Path, shell: list[str]
) -> None:
    """Through the scripts of a node; on many machines sh is bash."""
    pretended("scontrol", "echo NodeAddr=127.0.0.1")
    (tmp_path / "codes").mkdir()
    (tmp_path / OWN_JOB).write_text(f'#!/bin/sh\nexec {" ".join(shell)} "{TEMPLATES}/job/{OWN_JOB}" "$@"\n')
    job = JobFile(
        name="a",
        command=("/usr/bin/env", "-0"),
        max_hours=1,
        workdir=str(tmp_path),
        env={"LINES": "a\nb", **accepted()},
    )
    (tmp_path / "node.env").write_text(node_env(job, tmp_path, sys.executable))
    slurms = {"SLURM_JOB_NODELIST": "n1", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURMD_NODENAME": "n1"}
    done = subprocess.run(
        ["/bin/bash", TEMPLATES / "job" / NODE_SCRIPT, tmp_path], env={**os.environ, **slurms}, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
    found = dict(each.split("=", 1) for each in done.stdout.decode().split("\0") if each)
    assert {name: found.get(name) for name in job.env} == job.env


def test_what_an_allocation_has_given_stays_there() -> None:
    assert without_allocation({**OWN, **GIVEN}) == OWN


def test_outside_of_one_all_are_somebodys_own() -> None:
    own = {**OWN, "SLURM_MPI_TYPE": "pmix", "CUDA_VISIBLE_DEVICES": "0"}
    assert without_allocation(own) == own
