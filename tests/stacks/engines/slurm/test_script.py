"""What Slurm is asked for, without one: minutes and its own way of writing them; and what a node's part hands on."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from images.render import TEMPLATES
from stacks.config.job_file import JobFile
from stacks.engines.job_folders import RUN_FOLDER
from stacks.engines.slurm.container import image_findings
from stacks.engines.slurm.script import NODE_SCRIPT, OWN_JOB, max_hours_of, minutes_in, minutes_of, node_env


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
    assert minutes_in(limit) == minutes


@given(st.integers(1, 60 * 24 * 28), st.integers(1, 3600))
def test_the_hours_that_are_proposed_fit(minutes: int, grace_sec: int) -> None:
    job = JobFile(name="a", command=("true",), max_hours=1, grace_sec=grace_sec)
    hours = max_hours_of(job, minutes)
    if hours > 0:
        assert minutes_of(job.model_copy(update={"max_hours": hours})) <= minutes
        assert minutes_of(job.model_copy(update={"max_hours": hours + 0.02})) > minutes - 1


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


APPTAINER = """
[ "$1" = exec ] || exit 9
while [ "${1#docker://}" = "$1" ]; do echo "$1"; shift; done >FOLDER/words
echo "$1" >>FOLDER/words
shift
exec python3 - "$@" <<'PYTHON'
import os, sys
own = {n.removeprefix("APPTAINERENV_"): v for n, v in os.environ.items() if n.startswith("APPTAINERENV_")}
os.execve("/bin/sh", sys.argv[1:], own)
PYTHON
"""


def test_an_image_runs_the_job_by_apptainer_with_the_variables_of_its_job(
    pretended: Callable[[str, str], None], tmp_path: Path
) -> None:
    pretended("scontrol", "echo NodeAddr=127.0.0.1")
    pretended("apptainer", APPTAINER.replace("FOLDER", str(tmp_path)))
    for name in ("codes", RUN_FOLDER):
        (tmp_path / name).mkdir()
    shutil.copyfile(TEMPLATES / "job" / OWN_JOB, tmp_path / OWN_JOB)
    image = f"registry.example.com/mine@sha256:{'0' * 64}"
    env = {"LINES": "a\nb", "HOME": "/root/of mine", "PATH": "/bin:/usr/bin"}
    words = ("/usr/bin/env", "-0")
    job = JobFile(name="a", command=words, max_hours=1, image=image, env=env, workdir="/work here")
    (tmp_path / "node.env").write_text(node_env(job, tmp_path, sys.executable))
    slurms = {"SLURM_JOB_NODELIST": "n1", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURMD_NODENAME": "n1"}
    done = subprocess.run(
        ["/bin/bash", TEMPLATES / "job" / NODE_SCRIPT, tmp_path], env={**os.environ, **slurms}, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
    said = (tmp_path / "words").read_text().splitlines()
    assert said[-1] == f"docker://{image}"
    assert said[said.index("--home") + 1] == f"{tmp_path}/home:/root/of mine"
    assert said[said.index("--bind") + 1] == str(tmp_path)
    assert said[said.index("--pwd") + 1] == "/work here"
    found = dict(each.split("=", 1) for each in done.stdout.decode().split("\0") if each)
    assert {name: found.get(name) for name in env} == env
    assert found["GANGWAY_RUN_DIR"] == str(tmp_path / RUN_FOLDER)
    assert not {name for name in found if name.startswith(("SLURM", "APPTAINER"))}


@pytest.mark.parametrize(("has_it", "errors"), [(True, []), (False, ["job.image"])])
def test_an_image_takes_apptainer(
    pretended: Callable[[str, str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    has_it: bool,
    errors: list[str],
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    if has_it:
        pretended("apptainer", "")
    job = JobFile(name="a", command=("true",), max_hours=1, image=f"registry.example.com/mine@sha256:{'0' * 64}")
    assert [each.code for each in image_findings(job, tmp_path)] == errors
    assert not list(image_findings(job.model_copy(update={"image": None}), tmp_path))
    assert [each.code for each in image_findings(job, Path("/a:b"))][-1] == "job.folder-with-colon"
