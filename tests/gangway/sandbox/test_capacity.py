"""Every shape of capacity on moto: mixed groups, hooks, a block's last action, fleets; and what moto refuses."""

import socket
from collections.abc import Callable
from typing import Any

import boto3
import pytest

from gangway.sandbox.cloud import MotoCloud
from gangway.sandbox.rows import SandboxRow, Status
from gangway.stacks.recording import record

REGION = "us-east-2"
GROUP, SCHEDULE = "aws:autoscaling/group:Group", "aws:autoscaling/schedule:Schedule"
BLOCK, FLEET, SPOT_FLEET = (
    "aws:ec2/capacityBlockReservation:CapacityBlockReservation",
    "aws:ec2/fleet:Fleet",
    "aws:ec2/spotFleetRequest:SpotFleetRequest",
)

PLACEMENT = "aws:ec2/placementGroup:PlacementGroup"


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the sandbox reached for the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture(scope="module")
def rows(every_capacity: Callable[[], dict[str, Any]]) -> dict[tuple[str, str], SandboxRow]:
    with MotoCloud(REGION) as cloud:
        record(every_capacity, cloud, "capacity")
        return {(row.type, row.name): row for row in cloud.read_back()}


@pytest.mark.slow
def test_everything_moto_knows_is_applied(rows: dict[tuple[str, str], SandboxRow]) -> None:
    special = {BLOCK: Status.VALIDATED, PLACEMENT: Status.VALIDATED, SPOT_FLEET: Status.ACCEPTED}
    for (type_token, name), row in rows.items():
        assert row.status is special.get(type_token, Status.READ_BACK_EQUAL), f"{name}: {row.note}"
        assert "not sent by the sandbox" not in row.note
    assert {BLOCK, FLEET, SPOT_FLEET, GROUP, SCHEDULE} < {type_token for type_token, _ in rows}


def test_a_mixed_group_is_read_back_with_each_types_template(rows: dict[tuple[str, str], SandboxRow]) -> None:
    policy = "MixedInstancesPolicy.LaunchTemplate"
    for name in ("ladder-2-spot", "ladder-3-on-demand", "mixed-0-spot"):
        compared = set(rows[GROUP, name].fields_compared)
        assert {
            f"{policy}.Overrides[{index}].{field}"
            for index in (0, 1)
            for field in ("InstanceType", "LaunchTemplateSpecification.LaunchTemplateId")
        } < compared
        assert "MixedInstancesPolicy.InstancesDistribution.OnDemandPercentageAboveBaseCapacity" in compared
        assert not any(path.startswith("LaunchTemplate.") for path in compared), "one or the other, never both"
    assert (
        "moto started 2 p4d.24xlarge with 1 of the template's 5 network interfaces" in rows[GROUP, "mixed-0-spot"].note
    )


def test_a_blocks_last_action_and_the_hooks_are_read_back(rows: dict[tuple[str, str], SandboxRow]) -> None:
    for name in ("ladder-0-capacity-block", "ladder-1-capacity-block"):
        assert {"StartTime", "MinSize", "MaxSize", "DesiredCapacity"} < set(rows[SCHEDULE, name].fields_compared)
    groups = [row for (type_token, _), row in rows.items() if type_token == GROUP]
    assert groups
    for row in groups:
        hook = {f"LifecycleHooks[0].{field}" for field in ("LifecycleTransition", "HeartbeatTimeout", "DefaultResult")}
        assert hook < set(row.fields_compared)


def test_a_group_has_its_hook_before_it_asks_for_nodes(rows: dict[tuple[str, str], SandboxRow]) -> None:
    """As the provider does it: a node that came first could leave without its last checkpoint."""
    for (type_token, _), row in rows.items():
        if type_token == GROUP:
            assert [call.partition(":")[2] for call in row.calls[:3]] == [
                "CreateAutoScalingGroup", "PutLifecycleHook", "UpdateAutoScalingGroup",
            ]  # fmt: skip


@pytest.mark.parametrize("name", ["spot", "cheap", "on-demand"])
def test_a_fleet_is_read_back_pool_by_pool(rows: dict[tuple[str, str], SandboxRow], name: str) -> None:
    compared = rows[FLEET, f"{name}-fleet"].fields_compared
    assert sum(path.endswith(".SubnetId") for path in compared) == 4, "two templates in two zones"
    assert "TargetCapacitySpecification.TotalTargetCapacity" in compared


def test_rows_tell_what_moto_cannot_show(rows: dict[tuple[str, str], SandboxRow]) -> None:
    purchase = rows[BLOCK, "ladder-cbo-0123456789abcdef0"]
    assert purchase.calls == ("ec2:PurchaseCapacityBlock",)
    assert "nothing was bought" in purchase.note
    assert "first override of each template, 2 more were sent" in rows[SPOT_FLEET, "old-fleet"].note


@pytest.mark.slow
def test_a_tampered_schedule_hook_and_mixed_group_are_found(every_capacity: Callable[[], dict[str, Any]]) -> None:
    with MotoCloud(REGION) as cloud:
        record(every_capacity, cloud, "capacity")
        scaling = boto3.client("autoscaling")
        actions = scaling.describe_scheduled_actions()["ScheduledUpdateGroupActions"]
        action = next(action for action in actions if action["ScheduledActionName"].endswith("-stop"))
        names = {key: action[key] for key in ("AutoScalingGroupName", "ScheduledActionName")}
        scaling.put_scheduled_update_group_action(
            **names, MinSize=0, MaxSize=5, DesiredCapacity=5, StartTime="2036-01-01"
        )
        hook = scaling.describe_lifecycle_hooks(**{"AutoScalingGroupName": names["AutoScalingGroupName"]})
        gone = hook["LifecycleHooks"][0]["LifecycleHookName"]
        scaling.delete_lifecycle_hook(LifecycleHookName=gone, AutoScalingGroupName=names["AutoScalingGroupName"])
        different = {row.type: row.note for row in cloud.read_back() if row.status is Status.DIFFERENT}
    assert set(different) == {SCHEDULE, GROUP}
    assert "MaxSize: declared 0, held 5" in different[SCHEDULE]
    assert "LifecycleHooks: declared '1 items', held '0 items'" in different[GROUP]


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (
        BLOCK,
        {"capacityBlockOfferingId": "cbo-0123456789abcdef0", "instancePlatform": "Linux/Unix"},
        "did you mean 'Linux/UNIX'?",
    ),
    (BLOCK, {"instancePlatform": "Linux/UNIX"}, "CapacityBlockOfferingId"),
    (
        FLEET,
        {
            "launchTemplateConfigs": [],
            "targetCapacitySpecification": {"totalTargetCapacity": 1},
            "spotOptions": {"allocationStrategy": "lowest"},
        },
        "did you mean 'lowest-price'?",
    ),
    (SCHEDULE, {"autoscalingGroupName": "x"}, "ScheduledActionName"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("type_token", "inputs", "words"), REFUSED)
def test_a_refused_request_is_a_row_with_the_reason(type_token: str, inputs: dict[str, Any], words: str) -> None:
    with MotoCloud(REGION) as cloud:
        cloud(type_token, "wrong", inputs)
        (row,) = cloud.read_back()
    assert row.status is Status.REFUSED
    assert words in row.note


@pytest.mark.slow
def test_moto_still_lacks_the_purchase_of_a_block() -> None:
    with MotoCloud(REGION):
        session: Any = boto3.Session()
        client = session.client("ec2", region_name=REGION)
        with pytest.raises(NotImplementedError):
            client.purchase_capacity_block(CapacityBlockOfferingId="cbo-0", InstancePlatform="Linux/UNIX")
