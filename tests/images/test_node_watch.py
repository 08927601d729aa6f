"""What a node does every minute: it leaves when the job's hours are over, or when nothing else has made it leave."""

import json
from pathlib import Path
from typing import Any

import pytest

from gangway.images.specs import FileSystem

TWO_GROUPS = "[ $2 != describe-auto-scaling-groups ] || printf 'demo-0-spot\\tdemo-1-on-demand\\n'"


@pytest.fixture
def idle_node(job_node: Any) -> Any:
    """A node whose trainer does not run, an hour after boot."""
    job_node.fake("aws", TWO_GROUPS)
    job_node.fake("systemctl", "echo inactive; exit 3")
    job_node.up_for(3600.25)
    return job_node


GRACE_SEC = 600


def minute_after_minute(node: Any, times: int = 2) -> None:
    for _ in range(times):
        done = node.run("watch-node.sh")
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("seconds", [7 * 3600, 8 * 3600 + GRACE_SEC - 1])
def test_a_node_that_is_needed_is_left_alone(idle_node: Any, seconds: float) -> None:
    idle_node.started_trainer(seconds)
    minute_after_minute(idle_node)
    assert idle_node.calls("aws") == []


def test_a_node_is_up_no_longer_than_the_jobs_hours(idle_node: Any) -> None:
    """What the job's own user writes is not looked at: this is by the machine's clock since its first start."""
    idle_node.started_trainer(8 * 3600 + GRACE_SEC)
    minute_after_minute(idle_node)
    assert [(event["exit_status"], event["reason"]) for event in idle_node.events()] == [(6, "max-hours")]
    assert idle_node.left()


def test_a_machine_that_slept_has_not_used_its_hours(idle_node: Any) -> None:
    """Its clock since boot goes on in sleep, and nobody looks."""
    idle_node.plan(terminate_when_done=False)
    idle_node.fake("systemctl", "echo active")
    idle_node.state("first-start").write_text("1000\n")
    for up in (1060, 1120 + 9 * 3600, 1180 + 9 * 3600):
        idle_node.up_for(up)
        minute_after_minute(idle_node, 1)
    assert ["stop", "gangway-trainer.service"] not in idle_node.calls("systemctl")
    assert idle_node.state("idle-sec").read_text() == f"{9 * 3600}\n"


@pytest.mark.parametrize(("max_hours", "ends"), [(0.8, True), (0.9, False)])
def test_a_node_on_which_no_job_began_counts_from_its_boot(idle_node: Any, max_hours: float, ends: bool) -> None:
    idle_node.plan(max_hours=max_hours)
    minute_after_minute(idle_node)
    assert idle_node.left() == ends


@pytest.mark.parametrize("tries_again", [True, False])
def test_a_machine_that_nobody_replaces_is_looked_at_again(idle_node: Any, tries_again: bool) -> None:
    idle_node.fake("systemctl", "[ $1 != is-active ] || { echo inactive; exit 3; }")
    idle_node.state("unfit").touch()
    idle_node.more_settings["TRIES_AGAIN"] = "yes" if tries_again else ""
    minute_after_minute(idle_node, 1)
    start = ["start", "--no-block", "gangway-trainer.service"]
    assert (start in idle_node.calls("systemctl")) == tries_again


def test_a_node_that_could_not_leave_tries_again(idle_node: Any) -> None:
    idle_node.state("ended").write_text("3 fabric-too-slow\n")
    assert idle_node.run("watch-node.sh").returncode == 0
    assert idle_node.left()
    assert idle_node.events() == []


def test_a_node_that_is_to_stay_is_not_told_to_leave_by_the_watch(idle_node: Any) -> None:
    idle_node.started_trainer(9 * 3600)
    idle_node.plan(terminate_when_done=False)
    minute_after_minute(idle_node, 3)
    assert (idle_node.left(), len(idle_node.events())) == (False, 1)


@pytest.mark.parametrize("state", ["active", "activating", "deactivating"])
def test_a_running_trainer_stops_itself_and_is_left_alone(idle_node: Any, state: str) -> None:
    idle_node.fake("systemctl", f"echo {state}")
    idle_node.started_trainer(8 * 3600 + 60)
    assert idle_node.run("watch-node.sh").returncode == 0
    assert idle_node.calls("systemctl") == [["is-active", "gangway-trainer.service"]]
    assert idle_node.calls("aws") == []


@pytest.mark.attack("a job (uid 10001)", "waits for somebody to empty the node's firewall")
@pytest.mark.parametrize("state", ["active", "activating"])
def test_a_firewall_that_was_emptied_is_closed_again_or_the_trainer_stops(idle_node: Any, state: str) -> None:
    idle_node.more_settings["TRAINER_UID"] = "10001"
    idle_node.fake("systemctl", f"[ $1 != is-active ] || echo {state}")
    minute_after_minute(idle_node, 1)
    assert ["--wait", "10", "--table", "filter", "--check", "OUTPUT"] in [
        call[:6] for call in idle_node.calls("iptables")
    ]
    assert ["stop", "gangway-trainer.service"] not in idle_node.calls("systemctl")
    idle_node.fake("setpriv")
    assert idle_node.run("watch-node.sh").returncode == 1
    assert ["stop", "gangway-trainer.service"] in idle_node.calls("systemctl")


def test_a_trainer_that_is_stuck_after_the_jobs_hours_is_stopped(idle_node: Any) -> None:
    idle_node.fake("systemctl", "echo active")
    idle_node.started_trainer(8 * 3600 + GRACE_SEC)
    minute_after_minute(idle_node, 1)
    assert ["stop", "gangway-trainer.service"] in idle_node.calls("systemctl")
    idle_node.fake("systemctl", "echo inactive; exit 3")
    minute_after_minute(idle_node, 1)
    assert idle_node.left()


def rested(node: Any, first: float, hours: float) -> None:
    """The trainer was started a while after the boot, ran an hour, and somebody stopped it for some hours, while the
    watch looked; then it was started again.
    """
    node.state("first-start").write_text(f"{int(first)}\n")
    node.fake("systemctl", "echo active")
    node.up_for(first + 3600)
    minute_after_minute(node, 1)
    node.fake("systemctl", "echo inactive; exit 3")
    for part in (0, 0.5, 1):
        node.up_for(first + 3600 + part * hours * 3600)
        minute_after_minute(node, 1)
    node.fake("systemctl", "echo active")


@pytest.mark.slow
@pytest.mark.parametrize("terminate", [True, False])
def test_a_machine_made_for_the_job_goes_alone_where_its_trainer_rested(idle_node: Any, terminate: bool) -> None:
    """The launcher counts the job's hours: they are not over, and others go on."""
    idle_node.plan(terminate_when_done=terminate)
    rested(idle_node, 1000, 7)
    idle_node.up_for(1000 + 8 * 3600 + GRACE_SEC)
    minute_after_minute(idle_node, 1)
    assert (["stop", "gangway-trainer.service"] in idle_node.calls("systemctl")) == terminate
    if terminate:
        idle_node.fake("systemctl", "echo inactive; exit 3")
    minute_after_minute(idle_node)
    assert idle_node.left() == terminate
    assert not idle_node.state("ended").exists()
    assert "suspend-processes" not in [call[0] for call in idle_node.said_to_group()], "others may come"
    assert [event["event"] for event in idle_node.events()] == ["node-outlived"] * terminate


def test_a_launcher_that_hangs_after_a_rest_ends_the_job_for_all(idle_node: Any) -> None:
    idle_node.plan(terminate_when_done=False)
    rested(idle_node, 1000, 7)
    over = 1000 + (7 + 8) * 3600 + GRACE_SEC
    idle_node.state("looked").write_text(f"{over - 61} \n")
    idle_node.up_for(over - 1)
    minute_after_minute(idle_node, 1)
    assert idle_node.events() == []
    idle_node.up_for(over)
    minute_after_minute(idle_node, 1)
    assert [(event["exit_status"], event["reason"]) for event in idle_node.events()] == [(6, "max-hours")]


def test_a_node_on_which_no_job_began_tells_nobody_of_an_end(idle_node: Any) -> None:
    idle_node.plan(max_hours=0.8)
    minute_after_minute(idle_node)
    assert idle_node.left()
    assert not idle_node.state("ended").exists()


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
