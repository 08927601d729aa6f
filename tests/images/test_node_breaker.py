"""Nodes that give themselves up one after the other, on each cloud: real bash and Python, the bucket in small."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from gangway.images.specs import Breaker

CLOUDS = ["aws", "gcp", "azure"]
S3 = """
folder='{folder}'
case "$1 $2" in
"s3 cp") mkdir -p "$folder"; cp "$5" "$folder/$(basename "$6")" ;;
"s3 ls") for file in "$folder"/*; do echo "2026-11-25 00:00:00 12 $(basename "$file")"; done ;;
*describe-auto-scaling-groups) echo demo-0-spot demo-1-on-demand ;;
esac
"""
"""A bucket in a folder, as far as AWS's command line is asked for it here."""


class Node:
    """One node after another of a stack, on one cloud.

    Args:
        machine: of that cloud; its bucket outlives the nodes.
        cloud: its name.
    """

    def __init__(self, machine: Any, cloud: str) -> None:
        self.machine, self.cloud = machine, cloud
        self._bucket = machine.root / "bucket"
        if cloud == "aws":
            machine.fake("aws", S3.format(folder=self._bucket))

    def gives_up(self, reason: str = "no GPU") -> str:
        """What it says meanwhile."""
        done = self.machine.give_up(reason)
        assert done.returncode == 1
        said: str = done.stderr
        return said

    def put(self, name: str, content: bytes = b"") -> None:
        """An object of the run, in `breaker/`."""
        if self.cloud == "aws":
            self._bucket.mkdir(exist_ok=True)
            (self._bucket / name).write_bytes(content)
        elif self.cloud == "gcp":
            self.machine.gce.objects[f"gangway-records/demo/dcgan-celeba64/breaker/{name}"] = content
        else:
            self.machine.vm.blobs[f"gwdemo/runs/demo/dcgan-celeba64/breaker/{name}"] = content

    def names(self) -> list[str]:
        """What is there."""
        if self.cloud == "aws":
            return sorted(path.name for path in self._bucket.glob("*"))
        every = self.machine.gce.objects if self.cloud == "gcp" else self.machine.vm.blobs
        return sorted(key.rpartition("/")[2] for key in every if "/breaker/" in key)

    def held(self) -> dict[str, Any]:
        """What held.json says."""
        if self.cloud == "aws":
            content = (self._bucket / "held.json").read_bytes()
        else:
            every = self.machine.gce.objects if self.cloud == "gcp" else self.machine.vm.blobs
            (content,) = [every[key] for key in every if key.endswith("/dcgan-celeba64/breaker/held.json")]
        found: dict[str, Any] = json.loads(content)
        return found

    def suspended(self) -> list[list[str]]:
        """Processes that were suspended, of which group."""
        calls = [call for call in self.machine.said_to_group() if call[0] == "suspend-processes"]
        return [[call[4], *call[6:]] for call in calls]

    def events(self) -> list[str]:
        """Of its log."""
        return [line["event"] for line in self.machine.events()]


@pytest.fixture(params=CLOUDS)
def worker(request: pytest.FixtureRequest) -> Node:
    machine: Any = request.getfixturevalue("machine" if request.param == "aws" else f"{request.param}_machine")
    return Node(machine, request.param)


def earlier(worker: Node, count: int, minutes_ago: int = 10) -> None:
    """So many nodes before this one."""
    for number in range(count):
        worker.put(f"{int(time.time()) - 60 * minutes_ago - number}-node-{number}", b"$(touch /tmp/owned)")


def test_one_that_is_too_many_has_nothing_launched_any_more_and_says_why(worker: Node) -> None:
    earlier(worker, 3)
    reason = 'no "image"\n$HOME'
    said = worker.gives_up(reason)
    held = worker.held()
    assert held["reason"] == reason
    assert (held["given_up"], held["within_minutes"], held["stack"], held["version"]) == (4, 180, "demo", 1)
    assert held["nodes"][:3] == ["node-2", "node-1", "node-0"]
    assert "until gangway breaker reset demo" in said
    assert worker.events() == ["node-given-up", "launches-held"]
    if worker.cloud == "aws":
        both = ["Launch", "AlarmNotification"]
        assert worker.suspended() == [["demo-0-spot", *both], ["demo-1-on-demand", *both]]
        # It goes all the same; its group is not told to become smaller.
        assert worker.machine.said_to_group()[-1] == worker.machine.UNHEALTHY[1:]
    elif worker.cloud == "gcp":
        assert worker.machine.verbs() == ["deleteInstances"]
    else:
        assert worker.machine.verbs() == ["DELETE 3"]


def test_one_that_is_not_is_replaced(worker: Node) -> None:
    earlier(worker, 2)
    earlier(worker, 5, minutes_ago=181)
    worker.gives_up()
    assert len(worker.names()) == 8, "and counts from now on"
    assert "held.json" not in worker.names()
    assert worker.events() == ["node-given-up"]
    if worker.cloud == "aws":
        assert worker.suspended() == []
        assert worker.machine.said_to_group() == [worker.machine.UNHEALTHY[1:]]
    elif worker.cloud == "gcp":
        assert worker.machine.verbs() == ["recreateInstances"]


@pytest.mark.slow
def test_one_after_the_other_comes_to_it(worker: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them writes what the next one counts."""
    for number in range(4):
        monkeypatch.setenv("HOSTNAME", f"node-{number}")
        worker.machine.env["HOSTNAME"] = f"node-{number}"
        assert "held.json" not in worker.names()
        worker.gives_up()
    assert worker.held()["nodes"] == [f"node-{number}" for number in range(4)]


def test_what_is_held_stays_held_for_those_that_come_later(worker: Node) -> None:
    first = b'{"reason": "the first"}'
    worker.put("held.json", first)
    worker.gives_up("another")
    assert worker.held() == {"reason": "the first"}
    if worker.cloud == "aws":
        assert worker.suspended()
    elif worker.cloud == "gcp":
        assert worker.machine.verbs() == ["deleteInstances"]


def test_names_of_nobody_open_nothing(worker: Node) -> None:
    for number in range(9):
        worker.put(f"x{int(time.time())}-{number}")
    worker.gives_up()
    assert "held.json" not in worker.names()


def test_nobody_counts_where_the_stack_has_no_breaker(worker: Node) -> None:
    worker.machine.plan(breaker=None)
    worker.gives_up()
    assert worker.names() == []


@pytest.mark.slow
def test_a_limit_of_its_own(worker: Node) -> None:
    worker.machine.plan(breaker=Breaker(2, 30))
    earlier(worker, 1)
    worker.gives_up()
    assert worker.held()["within_minutes"] == 30


def test_a_bucket_that_cannot_be_read_holds_nobody(machine: Any) -> None:
    machine.fake("aws", "[ $1 != s3 ]")
    done = machine.give_up("no GPU")
    assert "cannot count the nodes that gave up: replacing this one" in done.stderr
    assert machine.said_to_group() == [machine.UNHEALTHY[1:]]


def test_on_google_cloud_one_that_may_not_leave_stops(gcp_machine: Any, gce: Any) -> None:
    worker = Node(gcp_machine, "gcp")
    worker.put("held.json", b"{}")
    gce.denied.add("deleteInstances")
    assert "set the group's size to 0" in worker.gives_up()
    assert ["poweroff"] in gcp_machine.calls("systemctl")


def test_what_stands_in_objects_is_nobodys_word(worker: Node) -> None:
    """Whoever may write the bucket: its names have one form, its contents are not read."""
    earlier(worker, 3)
    worker.gives_up()
    assert not Path("/tmp/owned").exists()
