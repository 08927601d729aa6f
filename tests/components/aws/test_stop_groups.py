"""The stop function, run against moto: it empties the groups of its stack, keeps them empty, and touches no other."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from gangway.components.aws.stop_groups import handler

REGION = "us-east-2"


@pytest.fixture
def scaling(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Auto Scaling as moto has it, with two groups of the stack `demo` and one of `other`."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "sandbox")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("STACK", "demo")
    with mock_aws():
        ec2, client = boto3.client("ec2"), boto3.client("autoscaling")
        subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
        image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
        template = {"ImageId": image, "InstanceType": "p4d.24xlarge"}
        ec2.create_launch_template(LaunchTemplateName="node", LaunchTemplateData=template)
        for name, stack in (("demo-0", "demo"), ("demo-1", "demo"), ("demo-b-0", "other")):
            client.create_auto_scaling_group(
                AutoScalingGroupName=name,
                LaunchTemplate={"LaunchTemplateName": "node"},
                MinSize=1,
                MaxSize=3,
                DesiredCapacity=2,
                VPCZoneIdentifier=subnet,
                Tags=[{"Key": "gangway:stack", "Value": stack, "PropagateAtLaunch": False}],
            )
        yield client


def group(scaling: Any, name: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])[
        "AutoScalingGroups"
    ]
    return found[0]


@pytest.mark.slow
def test_the_stacks_groups_are_emptied_and_stay_so(scaling: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted(handler({}, None)) == ["demo-0", "demo-1"]
    for name in ("demo-0", "demo-1"):
        stopped = group(scaling, name)
        assert (stopped["MinSize"], stopped["DesiredCapacity"], stopped["MaxSize"]) == (0, 0, 3)
        assert stopped["Instances"] == []
        suspended = {process["ProcessName"] for process in stopped["SuspendedProcesses"]}
        assert suspended == {"Launch", "AlarmNotification", "ScheduledActions"}
    assert "demo-0 set to zero" in capsys.readouterr().out


@pytest.mark.slow
def test_other_stacks_go_on_and_a_second_alarm_changes_nothing(scaling: Any) -> None:
    handler({}, None)
    assert sorted(handler({}, None)) == ["demo-0", "demo-1"]
    other = group(scaling, "demo-b-0")
    assert (other["DesiredCapacity"], len(other["Instances"]), other["SuspendedProcesses"]) == (2, 2, [])
