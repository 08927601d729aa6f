"""`gangway reproduce` as a person types it: bit-equal here, also of an interrupted run; refusals say what is wrong."""

import json
import os
import shutil
import subprocess
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
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import RunRecord

Gangway = Callable[..., "subprocess.CompletedProcess[str]"]
DIGEST = f"sha256:{'d' * 64}"


@pytest.mark.slow
def test_the_same_machine_gives_the_same_bits(run_dir: Path, gangway: Gangway, tmp_path: Path) -> None:
    run_id = RunRecord.read(run_dir / "run.json").id
    done = gangway(run_id, "--runs", run_dir.parent, "--out", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["run"], found["bit_equal"], found["sealed"], found["reasons"]) == (run_id, True, True, [])
    assert (found["images"], found["windows"], found["states_equal"]) == (480, 3, 3)
    again = RunRecord.read(Path(found["path"]) / "run.json")
    assert again.state_sha256 == RunRecord.read(run_dir / "run.json").state_sha256
    assert again.id == found["again"] != run_id


@pytest.mark.slow
def test_an_interrupted_run_to_the_same_image(interrupted: Path, gangway: Gangway, tmp_path: Path) -> None:
    record = RunRecord.read(interrupted / "run.json")
    assert (record.status, record.state_sha256) == ("interrupted", {})
    done = gangway(interrupted, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"bit-equal, {record.images:,} images" in done.stdout
    assert "same bits" in done.stdout


@pytest.mark.slow
def test_another_seed_is_seen(
    run_dir: Path, gangway: Gangway, rewrite: Callable[..., RunRecord], tmp_path: Path
) -> None:
    config = RunRecord.read(run_dir / "run.json").config
    rewrite(run_dir, config={**config.model_dump(mode="json"), "seed": 1})
    done = gangway(run_dir, "--kimg", 0.16, "--out", tmp_path / "out")
    assert done.returncode == 1, done.stderr
    assert "differs, 160 images" in done.stdout
    assert "different bits" in done.stdout


def refused(*words: object) -> str:
    done = CliRunner().invoke(app, ["reproduce", *map(str, words)])
    assert isinstance(done.exception, InputError), done.output
    return str(done.exception)


def test_a_changed_record_is_refused(run_dir: Path) -> None:
    values = json.loads((run_dir / "run.json").read_text())
    (run_dir / "run.json").write_text(json.dumps({**values, "seed": 7}))
    said = refused(run_dir)
    assert f"{run_dir / 'run.json'}: was changed after it was written" in said
    assert values["digest"] in said


def test_a_run_that_is_not_there(run_dir: Path, tmp_path: Path) -> None:
    run_id = RunRecord.read(run_dir / "run.json").id
    assert f"did you mean {run_id!r}?" in refused(run_id[:-1] + "x", "--runs", run_dir.parent)
    assert "no such folder" in refused("nothing", "--runs", tmp_path / "none")


def test_a_damaged_checkpoint_is_named_before_anything_is_run(run_dir: Path, tmp_path: Path) -> None:
    manifest = min((run_dir / "checkpoints").glob("[0-9]*.json"))
    for content in (manifest.read_text()[:40], "[]", '{"images": 160, "identity": {}}'):
        manifest.write_text(content)
        said = refused(run_dir, "--out", tmp_path / "out")
        assert f"{manifest}: is not a checkpoint manifest" in said
        assert "remove this checkpoint's files" in said
    assert not (tmp_path / "out").exists()


def test_a_file_where_the_folder_goes_is_named(run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("in the way")
    said = refused(run_dir, "--out", tmp_path / "out")
    assert str(tmp_path / "out") in said
    assert "cannot be created: Not a directory" in said


def test_a_folder_of_several_runs(run_dir: Path, rewrite: Callable[..., RunRecord]) -> None:
    other = run_dir.parent / "b"
    shutil.copytree(run_dir, other)
    rewrite(other, id="another")
    assert "contains several runs" in refused(run_dir.parent)


def test_an_older_records_outcome_is_told_whole(
    run_dir: Path, rewrite: Callable[..., RunRecord], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A repetition with other weights, losses, quality and code; the record itself is from before digests."""
    absent = Quantity.absent("s", "test").model_dump(mode="json")

    def quality(value: float) -> dict[str, Any]:
        points = [{"name": "fd", "kimg": 0.48, "value": value}]
        return {"quality_in_training": {"points": points, "cost_sec": absent, "share_of_wall": absent}}

    def again(*given: Any) -> Path:
        out: Path = given[1]
        run_id, told, container = given[2], given[4], given[5]
        assert container is None
        told(480)
        shutil.copytree(run_dir, out)
        shutil.rmtree(out / "checkpoints")
        rewrite(out, id=run_id, image_digest="", state_sha256={}, code_sha256="b" * 64, **quality(4.5))
        lines = [json.loads(text) for text in (out / "stats.jsonl").read_text().splitlines()]
        changed = [{**line, "loss_g": 9.0} if line["images"] == 320 and "loss_g" in line else line for line in lines]
        (out / "stats.jsonl").write_text("".join(json.dumps(line) + "\n" for line in changed if line["images"] != 160))
        return out

    rewrite(run_dir, image_digest=DIGEST, **quality(5.0))
    values = json.loads((run_dir / "run.json").read_text())
    (run_dir / "run.json").write_text(json.dumps({**values, "digest": ""}))
    monkeypatch.setattr("gangway.bench.reproduce.execute", again)
    done = CliRunner().invoke(app, ["reproduce", str(run_dir), "--out", str(tmp_path / "out")])
    assert done.exit_code == 1, done.output
    assert "not sealed: its run.json has no digest" in done.stderr
    for words in (
        "differs, 480 images",
        "no common checkpoint or final state",
        "2 lines of the record have no counterpart",
        "fd at 0.48 kimg: 4.5 here, 5 recorded",
        "trainer's code: bbbbbbbbbbbb here",
        f"image    {DIGEST} was not started; this Python environment ran trainer code bbbbb",
        f"image: this Python environment, no image here, {DIGEST} then",
    ):
        assert words in done.stdout


Rewrite = Callable[..., RunRecord]
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
