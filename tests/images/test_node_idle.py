"""A node whose GPUs are idle: real bash, with a fake nvidia-smi and a clock that the test sets."""

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangway.images.aws import user_data_base64gzip
from gangway.images.specs import IdleStop

NOW = 1_800_000_000
SMI = "printf '%b' '{}'"
BUCKET = """
folder='{folder}'
case "$1 $2" in
"s3 cp") mkdir -p "$folder"; cp "$5" "$folder/$(basename "$6")" ;;
"s3 ls") [ -e "$folder" ] || exit 1; ls "$folder" | sed 's/^/2026-11-25 00:00:00 12 /' ;;
*describe-auto-scaling-groups) echo demo-0-spot demo-1-on-demand ;;
esac
"""


class Node:
    """A node with eight GPUs, which is looked at each minute; `minutes` is its clock."""

    def __init__(self, machine: Any) -> None:
        self.machine, self.minutes, self.bucket = machine, 0, machine.root / "bucket"
        machine.plan(idle_stop=IdleStop(10, 5), terminate_when_done=False)
        machine.fake("aws", BUCKET.format(folder=self.bucket))
        self.state("active")
        self.gpus("0", "4", "0", "0", "0", "0", "0", "0")

    def gpus(self, *used: str) -> None:
        self.machine.fake("nvidia-smi", SMI.format("".join(f"{each}\\n" for each in used)))

    def state(self, trainer: str, prepare: str = "active") -> None:
        """What systemd says of two units. Once stopped, the trainer is inactive."""
        stopped = f"{self.machine.root}/stopped"
        self.machine.fake(
            "systemctl",
            f'case "$1" in is-system-running) echo running ;; stop) touch {stopped} ;; '
            f"*) if [ -e {stopped} ]; then trainer=inactive; else trainer={trainer}; fi; "
            f"printf '%s\n' {prepare} inactive $trainer; exit 3 ;; esac",
        )

    def look(self, minutes: int = 1, every: int = 1) -> None:
        for _ in range(minutes):
            self.minutes += every
            self.machine.up_for(1000.0 + 60 * self.minutes)
            clock = f'[ "$*" != +%s ] || {{ echo {NOW + 60 * self.minutes}; exit; }}; exec /usr/bin/date "$@"'
            self.machine.fake("date", clock)
            done = self.machine.run("watch-idle.sh", IDLE_READ_SEC="0")
            assert done.returncode == 0 or self.is_stopped, done.stderr

    @property
    def is_stopped(self) -> bool:
        return ["stop", "gangway-trainer.service"] in self.machine.calls("systemctl")

    def says(self) -> list[tuple[str, str]]:
        return [(event["event"], event["reason"]) for event in self.machine.events()]


@pytest.fixture
def idle(job_node: Any) -> Node:
    """One of two to four nodes."""
    return Node(job_node)


@pytest.fixture
def alone(idle: Node) -> Node:
    """The only node of its job."""
    idle.machine.plan(job=idle.machine.spec.job.model_copy(update={"num_nodes_min": 1, "num_nodes_max": 1}))
    return idle


def test_a_node_whose_gpus_are_idle_saves_ends_the_job_and_leaves(alone: Node) -> None:
    alone.look(10)
    assert not alone.is_stopped
    alone.look()
    assert alone.is_stopped
    assert alone.says() == [
        ("idle-stop", "all GPUs below 5 % for 10 minutes"),
        ("job-ended", "idle"),
    ]
    assert alone.machine.left()
    ended = (alone.bucket / "ended.json").read_text()
    assert '"code": 75, "reason": "idle"' in ended
    suspended = [call for call in alone.machine.said_to_group() if call[0] == "suspend-processes"]
    assert suspended, "its group must not fill up again"


@pytest.mark.parametrize(
    "used",
    [["0"] * 7 + ["5"], ["0"] * 7, ["0"] * 7 + ["[N/A]"], ["0"] * 7 + ["[Unknown Error]"], []],
    ids=["one works", "one is missing", "MIG", "broken", "none"],
)
def test_a_gpu_that_works_or_is_unknown_is_active(alone: Node, used: list[str]) -> None:
    alone.gpus(*used)
    alone.look(15)
    assert not alone.is_stopped


def test_a_driver_that_fails_is_active(alone: Node) -> None:
    alone.machine.fake("nvidia-smi", "echo 0; exit 9")
    alone.look(15)
    assert not alone.is_stopped


def test_any_work_begins_the_time_anew(alone: Node) -> None:
    alone.look(9)
    alone.gpus("0", "0", "0", "90", "0", "0", "0", "0")
    alone.look()
    alone.gpus(*["0"] * 8)
    alone.look(10)
    assert not alone.is_stopped
    alone.look()
    assert alone.is_stopped


def test_a_machine_that_slept_is_not_idle_meanwhile(alone: Node) -> None:
    alone.look(3)
    alone.look(1, every=60)
    assert not alone.is_stopped


@pytest.mark.parametrize(("trainer", "prepare"), [("active", "activating"), ("deactivating", "active")])
def test_preparing_and_saving_are_no_idleness(alone: Node, trainer: str, prepare: str) -> None:
    alone.state(trainer, prepare)
    alone.look(15)
    assert not alone.is_stopped


def test_a_job_that_says_that_it_works_is_active_while_it_says_so(alone: Node) -> None:
    """As the trainer does while it compiles or prepares data."""
    folder = Path(alone.machine.spec.run_dir)
    folder.mkdir()
    (folder / ".busy").touch()
    alone.look(15)
    assert not alone.is_stopped
    old = time.time() - 300
    os.utime(folder / ".busy", (old, old))
    alone.look(11)
    assert alone.is_stopped


def test_after_the_jobs_end_an_idle_node_leaves_once_all_is_uploaded(alone: Node) -> None:
    alone.state("inactive")
    alone.machine.state("ended").write_text("0 done\n")
    alone.look(15)
    assert not alone.machine.left()
    alone.machine.state("kept").touch()
    alone.look(11)
    assert alone.machine.left()
    assert [event for event, _ in alone.says()] == ["idle-stop"]
    assert not (alone.bucket / "ended.json").exists(), "it was done"


def test_a_node_that_cannot_leave_tries_again(alone: Node) -> None:
    alone.look(10)
    alone.machine.fake("aws", "[ $2 != terminate-instance-in-auto-scaling-group ]")
    alone.look()
    alone.machine.fake("aws")
    alone.look()
    assert alone.machine.said_to_group().count(alone.machine.LEFT) == 2
    assert [event for event, _ in alone.says()].count("idle-stop") == 1


def test_one_idle_node_waits_for_the_others(idle: Node) -> None:
    idle.bucket.mkdir()
    (idle.bucket / str(NOW // 150 * 150)).touch()
    idle.look(11)
    assert not idle.is_stopped, "another was active within the last ten minutes"
    (idle.bucket / str((NOW + 660) // 150 * 150)).touch()
    idle.look(10)
    assert not idle.is_stopped
    idle.look(3)
    assert idle.is_stopped


def test_an_active_node_tells_the_others_once_a_quarter(idle: Node) -> None:
    idle.gpus(*["99"] * 8)
    idle.look(6)
    names = sorted(int(path.name) for path in idle.bucket.iterdir())
    assert names == [NOW // 150 * 150 + 150 * number for number in range(3)]
    puts = [call for call in idle.machine.asked("s3") if call[1] == "cp"]
    assert len(puts) == 3
    assert puts[0][-1].startswith("s3://gangway-records/runs/dcgan-celeba64/active/")


def test_a_bucket_that_does_not_answer_stops_nobody(idle: Node) -> None:
    idle.machine.fake("aws", "[ $1 != s3 ]")
    idle.look(15)
    assert not idle.is_stopped


@pytest.mark.parametrize("cloud", ["gcp", "azure"])
def test_nodes_of_other_clouds_leave_as_well(cloud: str, request: pytest.FixtureRequest) -> None:
    machine: Any = request.getfixturevalue(f"{cloud}_machine")
    marks = f"{NOW // 150 * 150}"
    if cloud == "gcp":
        machine.gce.objects[f"gangway-records/demo/dcgan-celeba64/active/{marks}"] = b""
    else:
        machine.vm.blobs[f"gwdemo/runs/demo/dcgan-celeba64/active/{marks}"] = b""
    node = Node(machine)
    node.look(11)
    assert not node.is_stopped
    node.look(2)
    assert node.is_stopped
    assert machine.verbs()[-1] == ("deleteInstances" if cloud == "gcp" else "DELETE 3")


def test_only_nodes_with_the_setting_watch_their_gpus(
    node: Any, gcp_node: Any, azure_node: Any, machines: Any, unit: Any
) -> None:
    for spec in (node, gcp_node, azure_node):
        assert "watch-idle.sh" not in machines.rendered(spec)
        watched = replace(spec, idle_stop=IdleStop(60, 5))
        assert "/opt/gangway/bin/watch-idle.sh" in machines.files_of(machines.rendered(watched))
        commands = [f"/opt/gangway/bin/{name}.sh" for name in ("watch-node", "watch-idle")]
        assert unit(watched, "gangway-watch.service", "ExecStart") == commands
    user_data_base64gzip(machines.rendered(replace(node, idle_stop=IdleStop(60, 5))))
