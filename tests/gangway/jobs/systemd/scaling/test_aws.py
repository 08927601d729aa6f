"""Auto Scaling's own: in moto."""

from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from gangway.components.core.findings import InputError
from gangway.jobs.systemd.scaling.aws import AwsScaler
from gangway.jobs.systemd.scaling.base import Change, since_change_sec

NAMES = ["demo-0-on-demand", "demo-1-spot"]
NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.slow
def test_why_stands_on_the_group_and_on_no_node(aws_world: Any) -> None:
    aws_world.scaler.carry_out(Change(NAMES[0], 4, 2, "2 nodes: enough; 468 of 400 images/s (±5 %)"), NOW)
    first = aws_world.scaler.get_groups(NAMES)[0]
    assert first.in_service == 2
    assert first.last_change == "last changed 2030-01-01 00:00 UTC: 4 to 2: 2 nodes: enough 468 of 400 images/s 5"
    (group,) = aws_world.cloud.describe_auto_scaling_groups(AutoScalingGroupNames=[NAMES[0]])["AutoScalingGroups"]
    assert not any(tag["PropagateAtLaunch"] for tag in group["Tags"])


@pytest.mark.slow
def test_what_is_refused_is_tried_no_sooner_than_what_was_done(aws_world: Any) -> None:
    aws_world.refuse()
    with pytest.raises(InputError, match="cannot be set to 2 nodes"):
        aws_world.scaler.carry_out(Change(NAMES[0], 4, 2, "why"), NOW)
    assert since_change_sec(aws_world.scaler.get_groups(NAMES), NOW) == 0


def test_a_group_that_cannot_be_read_is_told(aws_world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_right(**_: Any) -> Any:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "DescribeAutoScalingGroups")

    monkeypatch.setattr(aws_world.cloud, "describe_auto_scaling_groups", no_right)
    monkeypatch.setattr(AwsScaler, "_client", lambda _: aws_world.cloud)
    with pytest.raises(InputError, match="cannot be read") as told:
        aws_world.scaler.get_groups(NAMES)
    assert told.value.fix


def test_a_block_that_has_not_begun_has_no_room(aws_world: Any) -> None:
    aws_world.cloud.update_auto_scaling_group(AutoScalingGroupName=NAMES[0], MaxSize=0, DesiredCapacity=0)
    first = aws_world.scaler.get_groups(NAMES)[0]
    assert (first.most, first.asked) == (0, 0)
