"""How far a trainer is, put while it trains: without it nobody outside knows before its first stop."""

import json
from pathlib import Path
from typing import Any

import pytest

from gangway.images.specs import FileSystem

BEGUN = {"event": "start", "images": 0, "time": 1_767_268_800.25, "session": 0}
TICK = {"images": 4096, "time": 1_767_268_860.75, "session": 0, "loss_g": 0.5}
FIRST = {"version": 1, "images": 4096, "time": 1_767_268_860}


@pytest.fixture
def training(job_node: Any, tmp_path: Path) -> Any:
    """A worker without a file system whose trainer runs; its `aws s3 cp` copies files into a folder."""
    job_node.plan(run_dir=f"{tmp_path}/run", file_system=None)
    job_node.fake("systemctl", "echo active")
    job_node.fake(
        "aws",
        f'[ "$1" = s3 ] || exit 0; target={tmp_path}/bucket/${{@: -1}}; mkdir -p "$(dirname "$target")"; '
        'cp "${@: -2:1}" "$target"',
    )
    job_node.started_trainer(3600)
    (tmp_path / "run").mkdir()
    write(job_node, BEGUN, TICK)
    return job_node


def write(node: Any, *lines: object) -> None:
    with (node.root / "run/stats.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def put(node: Any) -> dict[str, Any]:
    """What the bucket has, by names."""
    root = node.root / "bucket/s3:/gangway-records/runs/dcgan-celeba64"
    return {path.name: json.loads(path.read_text()) for path in root.rglob("*") if path.is_file()}


def minutes_pass(node: Any, minutes: float) -> None:
    """Since progress was put."""
    up_sec = float((node.root / "uptime").read_text().split()[0])
    node.state("progress-due").write_text(f"{round(up_sec + 600 - 60 * minutes)}\n")


def looks(node: Any) -> None:
    done = node.run("watch-node.sh")
    assert done.returncode == 0, done.stderr


def test_a_trainer_that_does_not_stop_tells_how_far_it_is(training: Any) -> None:
    """And nothing else: what a record says is of a state that is saved."""
    (training.root / "run/run.json").write_text("{}")
    looks(training)
    assert put(training) == {"progress.json": FIRST}


def test_it_does_so_every_ten_minutes_while_something_changes(training: Any) -> None:
    looks(training)
    minutes_pass(training, 11)
    looks(training)
    assert len(training.asked("s3")) == 1
    write(training, {**TICK, "images": 8192})
    minutes_pass(training, 9)
    looks(training)
    assert put(training) == {"progress.json": FIRST}
    minutes_pass(training, 11)
    looks(training)
    assert put(training) == {"progress.json": {**FIRST, "images": 8192}}
    assert len(training.asked("s3")) == 2


def test_a_line_that_is_half_written_or_no_trainers_is_passed_over(training: Any) -> None:
    with (training.root / "run/stats.jsonl").open("ab") as file:
        for line in (
            b"[1]",
            b"\xff",
            b'{"images": 1, "time": NaN}',
            b'{"images": [], "time": 1}',
            b"[" * 100_000,
            b'{"time": 1e400}',
        ):
            file.write(line + b"\n")
        file.write(b'{"images": 99, "ti')
    looks(training)
    assert put(training) == {"progress.json": FIRST}


def test_a_node_without_statistics_tells_nothing(training: Any) -> None:
    (training.root / "run/stats.jsonl").unlink()
    looks(training)
    assert training.asked("s3") == []


@pytest.mark.attack("a job (uid 10001)", "has root read another's file as its statistics")
def test_a_link_is_not_followed(training: Any, tmp_path: Path) -> None:
    stats = tmp_path / "run/stats.jsonl"
    stats.rename(tmp_path / "of-root")
    stats.symlink_to(tmp_path / "of-root")
    looks(training)
    assert training.asked("s3") == []


def test_a_bucket_that_refuses_stops_no_trainer_and_rings_for_no_record(training: Any) -> None:
    training.fake("aws", "[ $1 != s3 ] || { echo AccessDenied >&2; exit 254; }")
    looks(training)
    assert training.events() == []
    assert ["stop", "gangway-trainer.service"] not in training.calls("systemctl")
    training.fake("aws")
    asked = len(training.asked("s3"))
    looks(training)
    assert len(training.asked("s3")) == asked + 1


def test_a_node_that_leaves_waits_for_no_progress(training: Any) -> None:
    training.plan(file_system=FileSystem("lustre", "fs.example@tcp:/x", "/fsx"))
    training.fake("aws", "[ $1 != s3 ] || { echo AccessDenied >&2; exit 254; }")
    assert training.run("upload-record.sh").returncode == 0
    assert training.asked("s3")
    assert training.events() == []


def test_on_a_file_system_the_head_node_tells_it_and_a_record_in_its_place(training: Any) -> None:
    training.plan(file_system=FileSystem("lustre", "fs.example@tcp:/x", "/fsx"))
    looks(training)
    assert training.asked("s3") == []
    assert training.run("upload-record.sh").returncode == 0
    assert put(training) == {"progress.json": FIRST}
    write(training, {**TICK, "images": 8192})
    (training.root / "run/run.json").write_text("{}")
    minutes_pass(training, 11)
    assert training.run("upload-record.sh").returncode == 0
    assert put(training) == {"progress.json": FIRST, "run.json": {}}
    assert training.run("upload-record.sh").returncode == 0
    assert put(training)["progress.json"]["images"] == 8192


def test_on_google_it_is_an_object_beside_the_record(gcp_machine: Any, tmp_path: Path) -> None:
    gcp_machine.plan(run_dir=f"{tmp_path}/run", file_system=None, data=None)
    (tmp_path / "run").mkdir()
    write(gcp_machine, BEGUN, TICK)
    done = gcp_machine.run("upload-record.sh")
    assert done.returncode == 0, done.stderr
    told = gcp_machine.gce.objects["gangway-records/demo/dcgan-celeba64/progress.json"]
    assert json.loads(told) == FIRST
