"""The recorded image in a container: the whole command, what is refused, and a run under a stand-in for docker."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gangway.bench.reproduce import Container, container_job, find_container, start_argv
from gangway.cli.main import app
from gangway.components.core.findings import InputError
from gangway.components.core.job import JobSpec, Rendezvous, Training
from gangway.images.shell import CONTAINED
from gangway.trainer.records.run_record import RunRecord

Rewrite = Callable[..., RunRecord]
DIGEST = f"sha256:{'d' * 64}"
NAME = "registry.example.com:5000/gangway-trainer"
STAND_IN = """#!{python}
# Runs the trainer of this Python in place of the image's, after looking at what docker would look at.
import json, os, sys

words = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(json.dumps(words) + "\\n")
if words[0] != "run":
    sys.exit(0)
at = next(place for place, word in enumerate(words) if "@sha256:" in word)
options = list(zip(words[:at], words[1 : at + 1]))
for mount in (value for option, value in options if option == "--mount"):
    fields = dict(part.partition("=")[::2] for part in mount.split(","))
    assert fields["source"] == fields["target"] and os.path.isdir(fields["source"]), mount
os.chdir("/")
os.environ.update(value.split("=", 1) for option, value in options if option == "--env")
os.environ["PYTHONPATH"] = {repo!r}
os.execv(sys.executable, [sys.executable, "-m", "gangway.trainer.launch", *words[at + 1 :]])
"""


def job() -> JobSpec:
    return JobSpec(
        name="reproduce",
        backend="gloo",
        num_nodes_min=1,
        num_nodes_max=1,
        processes_per_node=2,
        rendezvous=Rendezvous(standalone=True),
        env={"OMP_NUM_THREADS": "1"},
        max_restarts=0,
        training=Training(config={}, config_file="/runs/new/train.json", run_dir="/runs/new"),
    )


def of(program: str) -> Container:
    return Container(Path("/usr/bin") / program, f"{NAME}@{DIGEST}", DIGEST)


def test_the_whole_command_of_docker() -> None:
    made = container_job(job(), of("docker"), Path("/runs/new"), Path("/data/digits"))
    assert start_argv(of("docker"), made, "again-1", on_gpus=False) == [
        *("/usr/bin/docker", "run", "--rm", "--init", "--name", "again-1"),
        *("--network", "host", "--ipc", "host", "--ulimit", "memlock=-1", "--ulimit", "nofile=131072", *CONTAINED),
        *("--pids-limit", "32768", "--env", "HOME=/tmp", "--user", f"{os.getuid()}:{os.getgid()}"),
        *("--env", "HOME=/tmp", "--env", "OMP_NUM_THREADS=1", "--env", "USER=gangway"),
        *("--mount", "type=bind,source=/runs/new,target=/runs/new"),
        *("--mount", "type=bind,source=/data/digits,target=/data/digits,readonly"),
        f"{NAME}@{DIGEST}",
        *("--standalone", "--nnodes=1", "--nproc-per-node=2", "--max-restarts=0", "--shutdown-timeout=25"),
        *("-m", "gangway.trainer", "train", "--config", "/runs/new/train.json", "--run-dir", "/runs/new"),
    ]


def test_gpus_and_podman_have_their_own_words() -> None:
    made = container_job(job(), of("docker"), Path("/runs/new"), Path("/runs/new/data"))
    assert [one.source for one in made.volumes] == ["/runs/new"], "shards inside the run's folder need no second mount"
    docker = start_argv(of("docker"), made, "x", on_gpus=True)
    assert docker[docker.index("--gpus") + 1] == "all"
    podman = start_argv(of("podman"), made, "x", on_gpus=True)
    assert podman[podman.index("--device") + 1] == "nvidia.com/gpu=all"
    assert podman[podman.index("--userns") + 1] == "keep-id"
    assert "--gpus" not in podman
    assert "--device" not in start_argv(of("podman"), made, "x", on_gpus=False)


def test_podman_raises_no_limit_where_its_user_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    made = container_job(job(), of("podman"), Path("/runs/new"), None)
    for user, asked in ((1000, False), (0, True)):
        monkeypatch.setattr(os, "getuid", lambda user=user: user)
        assert ("memlock=-1" in start_argv(of("podman"), made, "x", on_gpus=False)) is asked
        assert "memlock=-1" in start_argv(of("docker"), made, "x", on_gpus=False), "its service is root's"


@pytest.mark.parametrize(("said", "chosen"), [("podman version 5.4.0", "podman"), ("Docker version 29.1.0", "docker")])
def test_podman_called_docker_is_podman(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, chosen: str
) -> None:
    for program in ("docker", "podman"):
        (tmp_path / program).write_text(f"#!/bin/sh\necho {said}\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    record = RunRecord.read(run_dir / "run.json").model_copy(update={"image_digest": DIGEST})
    assert find_container(NAME, record).program == tmp_path / chosen


@pytest.mark.parametrize(
    ("folder", "called"), [("/a,b", "a comma"), ('/a"b', "a quotation mark"), ("/a\nb", "a line break")]
)
def test_a_folder_that_no_mount_can_say_is_refused(folder: str, called: str) -> None:
    with pytest.raises(InputError, match=f"{folder}: has {called}"):
        container_job(job(), of("docker"), Path(folder), None)


@pytest.fixture
def docker(tmp_path: Path, repo: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Puts a stand-in for docker on PATH; gives the file of its command lines."""

    def put(script: str = STAND_IN) -> Path:
        folder, log = tmp_path / "bin", tmp_path / "docker.jsonl"
        folder.mkdir()
        text = script.format(python=sys.executable, log=str(log), repo=str(repo))
        (folder / "docker").write_text(text)
        (folder / "docker").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        return log

    return put


@pytest.fixture
def of_image(run_dir: Path, rewrite: Rewrite) -> Path:
    """A run whose record names an image."""
    rewrite(run_dir, image_digest=DIGEST)
    return run_dir


@pytest.mark.parametrize(
    ("name", "digest", "message"),
    [
        (NAME, "", "its record has no image digest"),
        (NAME, "gangway:1.0", "its record has no image digest"),
        ("gangway-trainer:latest", DIGEST, "--container: not an image name"),
        ("--privileged", DIGEST, "--container: not an image name"),
        ("", DIGEST, "--container: not an image name"),
        (f"{NAME}@sha256:{'e' * 64}", DIGEST, "not the record's image"),
        (f"{NAME}@", DIGEST, "not the record's image"),
    ],
)
def test_names_and_records_that_will_not_do(
    run_dir: Path, docker: Callable[..., Path], name: str, digest: str, message: str
) -> None:
    docker()
    record = RunRecord.read(run_dir / "run.json").model_copy(update={"image_digest": digest})
    with pytest.raises(InputError, match=message):
        find_container(name, record)
    named = record.model_copy(update={"image_digest": DIGEST})
    for right in (NAME, f"{NAME}@{DIGEST}"):
        assert find_container(right, named).image == f"{NAME}@{DIGEST}"


def refused(*words: object) -> str:
    done = CliRunner().invoke(app, ["reproduce", *map(str, words)])
    assert isinstance(done.exception, InputError), done.output
    return str(done.exception)


def test_without_docker_there_is_a_way_out(of_image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    said = refused(of_image, "--container", NAME, "--out", tmp_path / "out")
    assert "--container: no container runtime found" in said
    assert "docker or podman on PATH" in said
    assert "remove --container to use this Python environment" in said
    assert not (tmp_path / "out").exists()


def test_what_docker_says_is_quoted(of_image: Path, docker: Callable[..., Path], tmp_path: Path) -> None:
    log = docker('#!/bin/sh\necho "$1" >> {log}\necho cannot pull it\nexit 125\n')
    said = refused(of_image, "--container", NAME, "--out", tmp_path / "out")
    assert "docker run ended with 125: cannot pull it" in said
    assert log.read_text().split() == ["run", "rm"], "a container that goes on is removed"


@pytest.mark.slow
def test_the_image_is_started_by_its_digest_and_gives_the_same_bits(
    of_image: Path, docker: Callable[..., Path], gangway: Callable[..., Any], tmp_path: Path
) -> None:
    log = docker()
    done = gangway(of_image, "--container", NAME, "--out", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["bit_equal"], found["reasons"]) == (True, [])
    assert found["image"] == {"recorded": DIGEST, "here": DIGEST, "started": True}
    started, removed = [json.loads(line) for line in log.read_text().splitlines()]
    assert started[0] == "run"
    assert f"{NAME}@{DIGEST}" in started
    assert removed == ["rm", "--force", started[started.index("--name") + 1]]
