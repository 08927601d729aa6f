"""A job's image in Slurm: what Apptainer is asked for, and, where it is installed, a container in a real Slurm."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from gangway.images.render import TEMPLATES
from gangway.jobs.base import Phase
from gangway.jobs.job_folders import RUN_FOLDER
from gangway.jobs.slurm.engine import SlurmEngine
from gangway.jobs.slurm.script import NODE_SCRIPT, OWN_JOB, image_findings, node_env
from gangway.stacks.config.job_file import JobFile
from tests.gangway.jobs.test_contract import job, over, until
from tests.registry_standin import registry
from tests.slurm_cluster import SlurmCluster

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
    job = JobFile(name="a", command=words, max_hours=1, image=image, env=env, workdir="/work here", outputs=OUTPUTS)
    (tmp_path / "node.env").write_text(node_env(job, tmp_path, sys.executable))
    slurms = {"SLURM_JOB_NODELIST": "n1", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURMD_NODENAME": "n1"}
    done = subprocess.run(
        ["/bin/bash", TEMPLATES / "job" / NODE_SCRIPT, tmp_path], env={**os.environ, **slurms}, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
    said = (tmp_path / "words").read_text().splitlines()
    assert said[-1] == f"docker://{image}"
    assert said[said.index("--home") + 1] == f"{tmp_path}/home:/root/of mine"
    assert [mount for word, mount in pairwise(said) if word == "--bind"] == [
        str(tmp_path),
        *(f"{tmp_path}/{RUN_FOLDER}/outputs{each}:{each}" for each in OUTPUTS),
    ]
    assert said[said.index("--pwd") + 1] == "/work here"
    found = dict(each.split("=", 1) for each in done.stdout.decode().split("\0") if each)
    assert {name: found.get(name) for name in env} == env
    assert found["GANGWAY_RUN_DIR"] == str(tmp_path / RUN_FOLDER)
    assert not {name for name in found if name.startswith(("SLURM", "APPTAINER"))}


def test_a_node_without_apptainer_fails_the_job_once_and_says_what_to_install(
    pretended: Callable[[str, str], None], tmp_path: Path
) -> None:
    pretended("scontrol", "echo NodeAddr=127.0.0.1")
    for name in ("bash", "cut", "dirname", "echo", "grep", "head", "mv", "sleep"):  # all that a node has
        found = shutil.which(name)
        assert found is not None
        (tmp_path / "programs" / name).unlink(missing_ok=True)
        (tmp_path / "programs" / name).symlink_to(found)
    for name in ("codes", RUN_FOLDER):
        (tmp_path / name).mkdir()
    image = f"registry.example.com/mine@sha256:{'0' * 64}"
    job = JobFile(name="a", command=("true",), max_hours=1, image=image)
    (tmp_path / "node.env").write_text(node_env(job, tmp_path, sys.executable))
    env = {
        "PATH": str(tmp_path / "programs"), "SLURM_JOB_NODELIST": "n1", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0",
        "SLURMD_NODENAME": "n1",
    }  # fmt: skip
    done = subprocess.run(
        ["/bin/bash", TEMPLATES / "job" / NODE_SCRIPT, tmp_path], env=env, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (2, "")
    assert "install Apptainer" in done.stdout
    assert "n1" in done.stdout
    assert (tmp_path / "codes" / "n1").read_text() == "2\n", "bad input, which is not tried again"


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


OUTPUTS = ("/mnt/results", "/mnt/more")


@pytest.mark.parametrize(
    ("folder", "keys", "wrong"),
    [
        ("/jobs", {"outputs": OUTPUTS}, []),
        ("/jobs", {"outputs": OUTPUTS, "image": None}, ["outputs"]),
        ("/mnt/results/jobs", {"outputs": OUTPUTS}, ["outputs"]),
        ("/jobs", {"outputs": OUTPUTS, "env": {"HOME": "/mnt"}}, ["outputs", "outputs"]),
        ("/jobs", {"env": {"HOME": "/mine:ro"}}, ["env.HOME"]),
        ("/jobs,of mine", {}, ["--on slurm"]),
        ("/a:b", {}, ["--on slurm"]),
    ],
)
def test_mounts_that_apptainer_cannot_make_are_refused(
    pretended: Callable[[str, str], None], folder: str, keys: Mapping[str, object], wrong: list[str]
) -> None:
    pretended("apptainer", "")
    image = f"registry.example.com/mine@sha256:{'0' * 64}"
    job = JobFile.model_validate({"name": "a", "command": ["true"], "max_hours": 1, "image": image, **keys})
    assert [each.path for each in image_findings(job, Path(folder))] == wrong


BUSYBOX = Path("/bin/busybox")


@pytest.mark.slurm
@pytest.mark.xdist_group("slurm")
@pytest.mark.skipif(
    shutil.which("apptainer") is None or not BUSYBOX.exists(), reason="no apptainer and static busybox here"
)
def test_a_command_runs_in_its_image_and_is_told_to_end(
    cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real: Slurm, Apptainer and its fetching of the image; pretended: the registry."""
    for name in ("queue", "cache"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("APPTAINER_NOHTTPS", "1")
    monkeypatch.setenv("APPTAINER_CACHEDIR", str(tmp_path / "cache"))
    engine = SlurmEngine(tmp_path / "queue", "gpu")
    waits = 'echo "begun $MINE in $PWD"; trap "touch saved; exit 75" TERM; while :; do sleep 0.1; done'
    script = f"cat /etc/only-in-the-image || exit 3; test -e saved && exit 0; {waits}"
    with registry(BUSYBOX) as image:
        job_id = engine.submit(job(script, image=image, env={"MINE": "a, b"}, grace_sec=20))
        until(engine, job_id, lambda found, log: "begun a, b in " in log)
        number = (tmp_path / "queue" / job_id / "slurm-id").read_text().strip()
        cluster.run("scancel", "--signal=TERM", f"{number}.0")
        found = over(engine, job_id)
        assert (found.phase, found.starts) == (Phase.DONE, 2), engine.log(job_id)[0]
        assert (tmp_path / "queue" / job_id / RUN_FOLDER / "saved").exists()
        again = engine.submit(job(waits, image=image, grace_sec=20))
        until(engine, again, lambda found, log: "begun" in log)
        engine.cancel(again)
        assert over(engine, again).phase is Phase.CANCELLED
        assert (tmp_path / "queue" / again / RUN_FOLDER / "saved").exists()
        writes = job("cd /mnt/results; test -e seen || { touch seen; exit 75; }", image=image, outputs=["/mnt/results"])
        found = over(engine, kept := engine.submit(writes))
        assert (found.phase, found.starts) == (Phase.DONE, 2), engine.log(kept)[0]
        assert (tmp_path / "queue" / kept / RUN_FOLDER / "outputs" / "mnt" / "results" / "seen").exists()
