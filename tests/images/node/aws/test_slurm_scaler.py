"""The scaler against Auto Scaling and EC2 as moto has them, and a Slurm that notes what it is told."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from gangway.images.node.aws import slurm_scaler
from gangway.images.node.aws.slurm_scaler import NODE_TAG, AwsGroups, Slurm, read_memory, run
from gangway.images.node.slurm_plan import Memory, Node, read_nodes

REGION = "us-east-2"
NODES = ["spot-n1", "spot-n2", "spot-n3"]
OFF, WAITS, UP = "IDLE+CLOUD+POWERED_DOWN", "ALLOCATED+CLOUD+POWERING_UP", "ALLOCATED+CLOUD"


class NotingSlurm(Slurm):
    """Says what it is given, and keeps what it is told."""

    def __init__(self) -> None:
        self.states = dict.fromkeys(NODES, OFF)
        self.told: list[tuple[str, ...]] = []
        self.refuses = ""

    def nodes(self) -> dict[str, Node]:
        return read_nodes("".join(f"NodeName={name} State={state}\n" for name, state in self.states.items()))

    def update(self, node: str, *words: str) -> None:
        if node == self.refuses:
            raise OSError("scontrol: refused")
        self.told.append((node, *words))


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        ec2, scaling = (boto3.client(service, region_name=REGION) for service in ("ec2", "autoscaling"))
        ec2.create_launch_template(
            LaunchTemplateName="spot", LaunchTemplateData={"ImageId": "ami-12c6146b", "InstanceType": "t3.micro"}
        )
        scaling.create_auto_scaling_group(
            AutoScalingGroupName="demo-0-spot",
            LaunchTemplate={"LaunchTemplateName": "spot", "Version": "$Latest"},
            MinSize=0,
            MaxSize=3,
            DesiredCapacity=0,
            AvailabilityZones=["us-east-2a"],
        )
        yield ec2, scaling


@pytest.fixture
def slurm() -> NotingSlurm:
    return NotingSlurm()


def look(slurm: Slurm, folder: Path, said: list[str] | None = None) -> None:
    config = {
        "most": 3,
        "patience_sec": 300,
        "given_up": 4,
        "given_up_sec": 3600,
        "rest_sec": 900,
        "rungs": [{"name": "spot", "count": len(NODES), "nodes_up": 0}],
    }
    groups = AwsGroups(REGION, {"spot": "demo-0-spot"})
    run(config, folder / "state.json", slurm, groups, (said if said is not None else []).append)


def machines(ec2: Any) -> dict[str, str]:
    """Of each that runs, the node that it is."""
    pages = ec2.describe_instances(Filters=[{"Name": "instance-state-name", "Values": ["running"]}])["Reservations"]
    found = [one for page in pages for one in page["Instances"]]
    return {
        one["InstanceId"]: next((tag["Value"] for tag in one.get("Tags", []) if tag["Key"] == NODE_TAG), "")
        for one in found
    }


def group(scaling: Any) -> tuple[int, int]:
    found = scaling.describe_auto_scaling_groups()["AutoScalingGroups"][0]
    return found["DesiredCapacity"], len(found["Instances"])


@pytest.mark.slow
def test_nodes_become_machines_and_go_again(aws: Any, slurm: NotingSlurm, tmp_path: Path) -> None:
    ec2, scaling = aws
    look(slurm, tmp_path)
    assert group(scaling) == (0, 0)
    slurm.states |= {"spot-n1": WAITS, "spot-n3": WAITS}
    look(slurm, tmp_path)
    assert group(scaling) == (2, 2)
    look(slurm, tmp_path)
    assert sorted(machines(ec2).values()) == ["spot-n1", "spot-n3"]
    addresses = {
        one["PrivateIpAddress"] for page in ec2.describe_instances()["Reservations"] for one in page["Instances"]
    }
    assert {word.partition("=")[2] for _, *words in slurm.told for word in words} == addresses
    slurm.states |= {"spot-n1": UP, "spot-n3": "IDLE+CLOUD+POWERING_DOWN"}
    look(slurm, tmp_path)
    assert list(machines(ec2).values()) == ["spot-n1"]
    assert group(scaling) == (1, 1)


@pytest.mark.slow
def test_a_machine_that_was_taken_back_gives_its_job_back(aws: Any, slurm: NotingSlurm, tmp_path: Path) -> None:
    ec2, scaling = aws
    slurm.states["spot-n1"] = WAITS
    look(slurm, tmp_path)
    look(slurm, tmp_path)
    slurm.states["spot-n1"] = UP
    scaling.suspend_processes(AutoScalingGroupName="demo-0-spot", ScalingProcesses=["Launch"])
    scaling.terminate_instance_in_auto_scaling_group(
        InstanceId=next(iter(machines(ec2))), ShouldDecrementDesiredCapacity=True
    )
    slurm.told.clear()
    for _ in range(2):
        look(slurm, tmp_path)
    assert [words[-1] for words in slurm.told] == ["reason=gangway: its machine is gone", "state=power_down_force"]


@pytest.mark.slow
def test_what_is_refused_is_said_and_holds_up_nothing_else(aws: Any, slurm: NotingSlurm, tmp_path: Path) -> None:
    ec2, _ = aws
    slurm.states |= {"spot-n1": WAITS, "spot-n2": WAITS}
    look(slurm, tmp_path)
    slurm.refuses = "spot-n1"
    said: list[str] = []
    look(slurm, tmp_path, said)
    events = [json.loads(line) for line in said]
    assert [(one["node"], "error" in one) for one in events] == [("spot-n1", True), ("spot-n2", False)]
    assert sorted(machines(ec2).values()) == ["", "spot-n2"], "a node that Slurm has no address of has no machine"


def test_what_it_knew_is_there_at_the_next_look(aws: Any, slurm: NotingSlurm, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    assert read_memory(state) == Memory()
    slurm.states["spot-n2"] = UP
    look(slurm, tmp_path)
    assert read_memory(state).missing == {"spot-n2"}
    state.write_text('{"asked"')
    assert read_memory(state) == Memory()


def test_a_scontrol_that_fails_says_what_it_was_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text('#!/bin/sh\necho "no such node" >&2\nexit 1\n')
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(OSError, match="update nodename=x state=down: no such node"):
        slurm_scaler.Slurm().update("x", "state=down")
