"""The batch script by itself, with pretended commands of Slurm: what a start finds that another one has left."""

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gangway.images.render import TEMPLATES
from gangway.jobs.base import Usage, restart_limit
from gangway.jobs.slurm.script import batch_env
from tests.gangway.jobs.test_contract import job


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a job whose steps are done at once."""
    (tmp_path / "programs").mkdir()
    (folder := tmp_path / "case-1").mkdir()
    program(folder, "scontrol", '[ "$1" = ping ] && echo "Slurmctld(primary) at n1 is UP" || echo n1')
    program(folder, "srun", f"echo x >>{folder}/steps")
    program(folder, "scancel", "")
    (folder / "batch.env").write_text(batch_env(job("true"), "case-1", "gpu", Usage()))
    return folder


def program(folder: Path, name: str, script: str) -> None:
    (path := folder.parent / "programs" / name).write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def begun(folder: Path, script: Path = TEMPLATES / "job" / "slurm-batch.sh", **slurms: Any) -> None:
    """Once more, by Slurm, which has the script's output in the job's log."""
    variables = {
        **os.environ, "GANGWAY_SLURM_SEC": "0.1", "PATH": f"{folder.parent / 'programs'}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "7", "SLURM_NNODES": "1", "SLURM_JOB_NODELIST": "n1", **slurms,
    }  # fmt: skip
    words = ["/bin/bash", str(script), str(folder)]
    with (folder / "log").open("a") as log:
        done = subprocess.run(words, env=variables, stdout=log, stderr=subprocess.PIPE, text=True, timeout=60)
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


def test_an_srun_that_fails_again_and_again_ends_the_job_in_its_own_word(folder: Path) -> None:
    said = "srun: error: Unable to create step for job 7: Invalid account"
    program(folder, "srun", f'echo x >>{folder}/steps; echo "{said}"; exit 2')
    begun(folder)
    word, code, _, *why = (folder / "end").read_text().split()
    assert (word, code) == ("failed", "2")
    assert " ".join(why).endswith(said)
    assert (folder / "steps").read_text() == "x\n" * 5
    assert (folder / "starts").read_text() == "0\n"
    assert not (folder / "failures").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("left", "end"), [(1, ["done", "0"]), (0, ["failed", "5"])])
@pytest.mark.parametrize("failures", [0, 3])
def test_what_is_interrupted_again_and_again_ends(folder: Path, failures: int, left: int, end: list[str]) -> None:
    """Failures and interruptions together."""
    interruptions = restart_limit(job("true")) - left - failures
    (folder / "failures").write_text(f"{failures}\n")
    (folder / "interruptions").write_text(f"{interruptions}\n")
    once = f"echo x >>{folder}/steps; [ $(wc -l <{folder}/steps) = 1 ] || exit 0; echo 75 >{folder}/codes/n1; exit 75"
    program(folder, "srun", once)
    begun(folder)
    assert (folder / "end").read_text().split()[:2] == end
    assert (folder / "interruptions").read_text() == f"{interruptions + 1}\n"


def test_a_job_is_handed_over_once_the_controller_answers(folder: Path) -> None:
    """Without it no node would seem to be left."""
    up, pings = folder / "up", folder / "pings"
    ping = f"echo x >>{pings}; [ $(wc -l <{pings}) -lt 3 ] || touch {up}; [ ! -e {up} ] || echo it is UP"
    program(folder, "scontrol", f'[ "$1" != ping ] || {{ {ping}; exit; }}; echo n1')
    program(folder, "srun", f"echo 4 >{folder}/codes/n1; exit 4")
    program(folder, "sinfo", f"[ -e {up} ] && echo n2")
    program(folder, "sbatch", f'[ -e {up} ] && printf "%s\\n" "$@" >{folder}/handed && echo 8')
    (folder / "sbatch.words").write_text("case-1\n")
    begun(folder)
    assert (folder / "handed").read_text() == "--parsable\n--exclude=n1\ncase-1\n"
    assert (folder / "slurm-id").read_text() == "8\n"
    assert not (folder / "end").exists()


def test_the_next_job_is_given_nothing_of_this_ones_allocation(folder: Path) -> None:
    program(folder, "srun", f"echo 4 >{folder}/codes/n1; exit 4")
    program(folder, "sinfo", "echo n2")
    program(folder, "sbatch", f"env >{folder}/given; echo 8")
    (folder / "sbatch.words").write_text("case-1\n")
    kept: dict[str, Any] = {"SLURM_CONF": "/own/slurm.conf", "SBATCH_ACCOUNT": "vision"}
    begun(folder, SLURM_MEM_PER_CPU="100", SLURMD_NODENAME="n1", CUDA_VISIBLE_DEVICES="0", MINE="a\nSLURM_X=b", **kept)
    names = {line.partition("=")[0] for line in (folder / "given").read_text().splitlines()}
    assert {name for name in names if name.startswith(("SLURM", "SBATCH", "CUDA", "MINE"))} == {
        *kept,
        "MINE",
        "SLURM_X",
    }
    assert (folder / "slurm-id").read_text() == "8\n"


def test_one_that_is_cancelled_while_the_controller_is_away_ends(folder: Path) -> None:
    """Which cannot be told of that, and need not."""
    program(folder, "scontrol", f'[ "$1" = ping ] && touch {folder}/cancel || echo n1')
    program(folder, "srun", f"touch {folder}/tried; exit 1")
    begun(folder)
    assert (folder / "tried").exists()
    assert (folder / "end").read_text().startswith("cancelled 0 ")


@pytest.mark.parametrize(
    ("code", "before", "end"),
    [
        (0, Usage(sec=3600.0), "over-hours 0"),
        (1, Usage(failures=1), "failed 1"),
        (75, Usage(interruptions=restart_limit(job("true", max_restarts=1))), "failed 5"),
        (75, Usage(failures=1, interruptions=restart_limit(job("true", max_restarts=1)) - 1), "failed 5"),
    ],
)
def test_what_the_job_had_used_on_engines_before_counts(folder: Path, code: int, before: Usage, end: str) -> None:
    (folder / "batch.env").write_text(batch_env(job("true", max_restarts=1), "case-1", "gpu", before))
    program(folder, "srun", f"echo x >>{folder}/steps; echo {code} >{folder}/codes/n1; exit {code}")
    begun(folder)
    word, number, _ = (folder / "end").read_text().split(maxsplit=2)
    assert f"{word} {number}" == end
    assert (folder / "steps").exists() == (code != 0)
    if code:
        assert (folder / "steps").read_text() == "x\n"


@pytest.mark.parametrize(
    ("first", "of_job", "each", "asked"),
    [
        ("", "gpu:h100:2", ["(null)", "gpu:h100:2(IDX:0-1)"], ""),
        ("2", "", [], "--gres=gpu:2"),
        ("2", "gpu:h100:4", ["gpu:h100:2(IDX:0-1)"], "--gres=gpu:2"),
        ("2", "gpu:a100:2,nic:4,gpu:h100:2", ["gpu:a100:1,gpu:h100:1"], "--gres=gpu:2"),
        ("2", "gpu:3", ["gpu:2(IDX:0-1)", "gpu:1(IDX:0)"], "--gpus=3"),
        ("8", "gpu:h100:8", ["gpu:h100:8(IDX:0-7)", "(null)"], ""),
    ],
)
def test_a_step_asks_for_all_gpus_of_its_nodes(
    folder: Path, first: str, of_job: str, each: list[str], asked: str
) -> None:
    """Slurm refuses more on a node than that has, and any on one that has none; it may not answer just then."""
    lines = [f"JOB_GRES={of_job}", *(f"Nodes=n1 CPU_IDs=0 Mem=500 GRES={one}" for one in each)]
    says = f"printf '  %s\\n' {shlex.join(lines)}" if of_job else "exit 1"
    program(folder, "scontrol", f'[ "$2" = job ] || {{ echo n1; exit; }}; {says}')
    program(folder, "srun", f'printf "%s\\n" "$@" >{folder}/asked')
    given: dict[str, Any] = {"SLURM_GPUS_ON_NODE": first} if first else {}
    begun(folder, SLURM_NNODES="2", **given)
    words = (folder / "asked").read_text().splitlines()
    assert [word for word in words if word.startswith("--g")] == ([asked] if asked else [])
    assert words[-3:] == ["/bin/bash", f"{folder}/slurm-node.sh", str(folder)]


@pytest.mark.slow
def test_a_clock_that_is_set_ends_no_job_and_bills_none(folder: Path) -> None:
    """By a year at each look, forward and back; interrupted twice, so that its hours are looked at."""
    for year in (1, -1):
        count = f"n=$(cat {folder}/n 2>/dev/null || echo 0); echo $((n + 1)) >{folder}/n"
        program(folder, "date", f"{count}; echo $((1700000000000 + n * {year} * 31536000000))")
        steps = f"echo x >>{folder}/steps; n=$(($(wc -l <{folder}/steps) % 3))"
        program(folder, "srun", f"{steps}; [ $n = 0 ] || {{ echo 75 >{folder}/codes/n1; exit 75; }}")
        begun(folder)
        assert (folder / "end").read_text().startswith("done 0 ")
        lengths = [
            int(end) - int(began) for began, end, _ in map(str.split, (folder / "stretches").read_text().splitlines())
        ]
        assert len(lengths) == 3
        assert all(0 <= length < 60_000 for length in lengths), lengths
        for name in ("end", "stretches", "n", "interruptions"):
            (folder / name).unlink()


@pytest.mark.parametrize(("up", "length"), [("130.00", 30_000), ("90100.00", 0)])
def test_hours_in_which_the_machine_slept_do_not_count(folder: Path, up: str, length: int) -> None:
    """`nap`, by which the script says that it lives, stands still meanwhile."""
    (clock := folder / "uptime").write_text("100.00 1.00\n")
    program(folder, "srun", f"echo '{up} 1.00' >{clock}")
    begun(folder, template(folder, clock))
    began, end, _ = map(int, (folder / "stretches").read_text().split())
    assert end - began == length


def template(folder: Path, clock: Path) -> Path:
    (script := folder.parent / "slurm-batch.sh").write_text(
        (TEMPLATES / "job" / "slurm-batch.sh").read_text().replace("/proc/uptime", str(clock))
    )
    return script
