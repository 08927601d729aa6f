"""Nodes asked of a group: the change that a decision means, and Auto Scaling's call for it, in moto."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st
from moto import mock_aws

from components.core.findings import InputError
from components.schedule.autoscale import Decision
from stacks.engines import scaling
from stacks.engines.scaling import Change, GroupState, carry_out, change_of, groups_of, nodes_of, since_change_sec

NOW = datetime(2030, 1, 1, tzinfo=UTC)
REGION = "us-east-2"
HOLD_SEC = 900.0


def wants(nodes: int) -> Decision:
    return Decision(nodes, f"{nodes} nodes: enough; 468 of 400 images/s (±5 %)", reached=True, possible=True)


groups = st.builds(
    GroupState,
    name=st.just("demo-0"),
    most=st.integers(0, 16),
    asked=st.integers(0, 16),
    in_service=st.integers(0, 16),
    is_held=st.booleans(),
    changed_at=st.none() | st.integers(0, 7200).map(lambda sec: NOW - timedelta(seconds=sec)),
)


@given(st.lists(groups, min_size=1, max_size=4), st.integers(1, 16), st.integers(1, 4))
def test_a_change_is_of_the_first_group_within_bounds_and_moves_something(
    states: Sequence[GroupState], nodes: int, least: int
) -> None:
    first = states[0]
    found = change_of(states, wants(nodes), least, HOLD_SEC, NOW)
    if isinstance(found, str):
        closed, early = first.most == 0 or first.asked == 0, since_change_sec(states, NOW) < HOLD_SEC
        same = first.asked == min(max(nodes, least), first.most)
        held = first.is_held and min(max(nodes, least), first.most) > first.asked
        assert closed or early or same or held, "else it is a change"
        return
    assert (found.group, found.was) == (first.name, first.asked)
    assert found.nodes != found.was
    assert found.was > 0, "what somebody has emptied stays empty"
    assert min(least, first.most) <= found.nodes <= first.most
    assert since_change_sec(states, NOW) >= HOLD_SEC
    assert not (first.is_held and found.nodes > found.was), "a breaker that is open lets none in, and some out"
    after = [first._replace(asked=found.nodes, changed_at=NOW), *states[1:]]
    assert isinstance(change_of(after, wants(nodes), least, HOLD_SEC, NOW), str), "and nothing more to do"


def test_a_rung_that_makes_up_for_others_counts_as_nodes_of_the_job() -> None:
    states = [GroupState("a", 4, 4, 1), GroupState("b", 2, 2, 2)]
    assert nodes_of(states) == 3
    assert nodes_of([GroupState("a", 4, 4, 0)]) is None


@pytest.fixture
def client() -> Iterator[Any]:
    """Two groups of a ladder, as the stack's program makes them."""
    with mock_aws():
        ec2, made = boto3.client("ec2", region_name=REGION), boto3.client("autoscaling", region_name=REGION)
        subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
        node = {"ImageId": "ami-12c6146b", "InstanceType": "t3.medium"}
        ec2.create_launch_template(LaunchTemplateName="node", LaunchTemplateData=node)
        for name, wanted, most in (("demo-0-spot", 3, 4), ("demo-1-on-demand", 0, 2)):
            made.create_auto_scaling_group(
                AutoScalingGroupName=name,
                LaunchTemplate={"LaunchTemplateName": "node", "Version": "1"},
                MinSize=0,
                MaxSize=most,
                DesiredCapacity=wanted,
                VPCZoneIdentifier=subnet,
            )
        yield made


NAMES = ["demo-0-spot", "demo-1-on-demand"]


def test_a_group_is_asked_once_and_says_when_and_why(client: Any) -> None:
    before = groups_of(REGION, NAMES)
    assert [(each.name, each.most, each.asked, each.in_service) for each in before] == [
        ("demo-0-spot", 4, 3, 3),
        ("demo-1-on-demand", 2, 0, 0),
    ]
    change = change_of(before, wants(2), 1, HOLD_SEC, NOW)
    assert isinstance(change, Change)
    carry_out(REGION, change, NOW)
    first, second = groups_of(REGION, NAMES)
    assert (first.asked, first.in_service, second) == (2, 2, before[1])
    assert first.changed_at == NOW
    assert first.last_change == "last changed 2030-01-01 00:00 UTC: 3 to 2: 2 nodes: enough 468 of 400 images/s 5"
    soon = change_of([first, second], wants(4), 1, HOLD_SEC, NOW + timedelta(minutes=14))
    assert isinstance(soon, str)
    assert "14 min" in soon
    later = change_of([first, second], wants(4), 1, HOLD_SEC, NOW + timedelta(minutes=15))
    assert isinstance(later, Change)


def test_one_that_is_held_lets_nodes_out_and_none_in(client: Any) -> None:
    client.suspend_processes(AutoScalingGroupName=NAMES[0], ScalingProcesses=["Launch"])
    states = groups_of(REGION, NAMES)
    out = change_of(states, wants(4), 1, HOLD_SEC, NOW)
    assert isinstance(out, str)
    assert "breaker" in out
    assert isinstance(change_of(states, wants(1), 1, HOLD_SEC, NOW), Change)


def test_what_the_cloud_refuses_changes_nothing_and_names_the_group(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_right(*_: object, **__: object) -> Any:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "SetDesiredCapacity")

    with pytest.raises(InputError, match="is not there"):
        groups_of(REGION, [*NAMES, "demo-2"])
    monkeypatch.setattr(client, "set_desired_capacity", no_right)
    monkeypatch.setattr(scaling, "_client", lambda region: client)
    with pytest.raises(InputError, match="cannot be asked for 2 nodes") as told:
        carry_out(REGION, Change(NAMES[0], 3, 2, "why"), NOW)
    assert told.value.fix
    (first, _) = groups_of(REGION, NAMES)
    assert first.asked == 3
    assert since_change_sec([first], NOW) == 0, "what is refused is tried no sooner than what was done"
    monkeypatch.setattr(client, "describe_auto_scaling_groups", no_right)
    with pytest.raises(InputError, match="cannot be read"):
        groups_of(REGION, NAMES)


@pytest.mark.parametrize("text", ["", "yesterday", "2030-01-01T00:00:00"])
def test_a_tag_that_is_no_time_holds_nothing_back(client: Any, text: str) -> None:
    tag = {"ResourceId": NAMES[0], "ResourceType": "auto-scaling-group", "PropagateAtLaunch": False}
    client.create_or_update_tags(Tags=[{**tag, "Key": scaling.AT_TAG, "Value": text}])
    assert groups_of(REGION, NAMES)[0].changed_at is None
