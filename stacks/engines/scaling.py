"""A job's nodes brought to the number that `job.autoscale` wants: what is asked of the groups now, the one change that
follows, and the provider's own call for it.

On AWS the first rung's group has between the job's least and most nodes, and the rungs below it make up for the least
alone (`components.aws.fallback`): another number asked of the first never pulls against them.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from components.core.findings import InputError
from components.schedule.autoscale import Decision

AT_TAG, WHY_TAG = "gangway-scaled-at", "gangway-scaled-why"
"""On the group whose number was changed: when, and why. Nothing that a job may write says when a change may come."""
_NOT_IN_A_TAG = re.compile(r"[^\w .:/=+@-]+", re.ASCII)
_TAG_CHARACTERS = 256
_FIX = "run it with the rights that docs/controller-stacks.md lists, on the stack's account"


class GroupState(NamedTuple):
    """A rung's group, as the provider has it.

    Attributes:
        name: of the group.
        most: that it may have now; 0 while its capacity block has not begun, or is over.
        asked: that it is to have.
        in_service: that it has.
        is_held: whether it launches nothing: the circuit breaker, or a person.
        changed_at: when its number was last changed from here; None for never. `changed_why`: the reason then.
    """

    name: str
    most: int
    asked: int
    in_service: int
    is_held: bool = False
    changed_at: datetime | None = None
    changed_why: str = ""

    @property
    def last_change(self) -> str:
        """In words; empty for none."""
        when = "" if self.changed_at is None else f"{self.changed_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        return f"last changed {when}: {self.changed_why}" if when else ""


class Change(NamedTuple):
    """Of one group's number."""

    group: str
    was: int
    nodes: int
    why: str


def nodes_of(groups: Sequence[GroupState]) -> int | None:
    """Nodes that the job has; None before the first."""
    return sum(group.in_service for group in groups) or None


def since_change_sec(groups: Sequence[GroupState], now: datetime) -> float:
    """Since the first group's number was changed."""
    at = groups[0].changed_at
    return float("inf") if at is None else max(0.0, (now - at).total_seconds())


def change_of(
    groups: Sequence[GroupState], wanted: Decision, least: int, hold_sec: float, now: datetime
) -> Change | str:
    """The change that brings the job to the wanted number, or why there is none. `groups`: in the ladder's order;
    `least`: that the ladder keeps up.
    """
    first = groups[0]
    if first.most == 0:
        return f"{first.name} is closed: its capacity has not begun, or is over"
    if first.asked == 0:
        return f"{first.name} was emptied: its job or its budget is over, or a person did it; `pulumi up --refresh`"
    nodes = min(max(wanted.nodes, least), first.most)
    if nodes == first.asked:
        return f"{first.name} is to have {first.asked} already"
    since = since_change_sec(groups, now)
    if since < hold_sec:
        return f"{since / 60:.0f} min after the last change nothing is changed: hold_minutes is {hold_sec / 60:g}"
    if nodes > first.asked and first.is_held:
        return f"{first.name} launches nothing now: see `gangway breaker show`"
    return Change(first.name, first.asked, nodes, wanted.reason)


def groups_of(region: str, names: Sequence[str]) -> list[GroupState]:
    """As AWS has them, in this order. InputError: they cannot be read, or one is not there."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        answer = _client(region).describe_auto_scaling_groups(AutoScalingGroupNames=list(names))
    except (BotoCoreError, ClientError) as error:
        raise InputError(", ".join(names), f"cannot be read: {error}", fix=_FIX) from None
    found = {group["AutoScalingGroupName"]: _state_of(group) for group in answer["AutoScalingGroups"]}
    if lacking := [name for name in names if name not in found]:
        raise InputError(
            f"Auto Scaling group {lacking[0]}",
            "is not there",
            fix="`pulumi up --refresh`; and look whether region and account are the stack's",
        )
    return [found[name] for name in names]


def carry_out(region: str, change: Change, now: datetime) -> None:
    """Asks the group for the number, once. InputError: AWS refuses; then nothing has changed."""
    from botocore.exceptions import BotoCoreError, ClientError

    client, why = _client(region), f"{change.was} to {change.nodes}: {change.why}"
    said = {AT_TAG: now.astimezone(UTC).isoformat(timespec="seconds"), WHY_TAG: why}
    tags = [
        {
            "ResourceId": change.group,
            "ResourceType": "auto-scaling-group",
            "Key": key,
            "Value": " ".join(_NOT_IN_A_TAG.sub(" ", value).split())[:_TAG_CHARACTERS],
            "PropagateAtLaunch": False,
        }
        for key, value in said.items()
    ]
    try:
        # First what holds the next change back: one that is not made costs its time, one too many might cost nodes.
        client.create_or_update_tags(Tags=tags)
        client.set_desired_capacity(
            AutoScalingGroupName=change.group, DesiredCapacity=change.nodes, HonorCooldown=False
        )
    except (BotoCoreError, ClientError) as error:
        raise InputError(
            f"Auto Scaling group {change.group}", f"cannot be asked for {change.nodes} nodes: {error}", fix=_FIX
        ) from None


def _client(region: str) -> Any:
    import boto3

    return boto3.client("autoscaling", region_name=region)


def _state_of(group: Any) -> GroupState:
    tags = {tag["Key"]: tag.get("Value", "") for tag in group.get("Tags", [])}
    return GroupState(
        name=group["AutoScalingGroupName"],
        most=group["MaxSize"],
        asked=group["DesiredCapacity"],
        in_service=sum(each["LifecycleState"] == "InService" for each in group.get("Instances", [])),
        is_held=any(each["ProcessName"] == "Launch" for each in group.get("SuspendedProcesses", [])),
        changed_at=_time(tags.get(AT_TAG, "")),
        changed_why=tags.get(WHY_TAG, ""),
    )


def _time(text: str) -> datetime | None:
    """Of a tag that a person may have written anew: what is no time with its zone counts as none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
