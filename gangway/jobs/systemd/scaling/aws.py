"""Resizes AWS's Auto Scaling groups: sets the desired capacity of the first rung's group, with tags for time and
reason.

A node that has to leave is notified by the group's lifecycle hook, with time to save.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from gangway.components.core.findings import InputError
from gangway.jobs.systemd.scaling.base import Change, GroupState, Scaler, get_tags, read_change_tags
from gangway.stacks.config.stack_config import StackConfig

SUSPENDS_LAUNCHES, AFTER_RESET = True, ""
_FIX = "run it with the rights that docs/controller.md lists, on the stack's account"


class AwsScaler:
    """The groups of one region."""

    def __init__(self, region: str) -> None:
        self._region = region

    def get_groups(self, names: Sequence[str]) -> list[GroupState]:
        """One request for all."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer = self._client().describe_auto_scaling_groups(AutoScalingGroupNames=list(names))
        except (BotoCoreError, ClientError) as error:
            raise InputError(", ".join(names), f"cannot be read: {error}", fix=_FIX) from None
        found = {group["AutoScalingGroupName"]: _get_state(group) for group in answer["AutoScalingGroups"]}
        if lacking := [name for name in names if name not in found]:
            raise InputError(
                f"Auto Scaling group {lacking[0]}",
                "does not exist",
                fix="`pulumi up --refresh`; check that region and account are the stack's",
            )
        return [found[name] for name in names]

    def carry_out(self, change: Change, now: datetime) -> str:
        """Sets tags, then the number; effective immediately."""
        from botocore.exceptions import BotoCoreError, ClientError

        client = self._client()
        tags = [
            {
                "ResourceId": change.group,
                "ResourceType": "auto-scaling-group",
                "Key": key,
                "Value": value,
                "PropagateAtLaunch": False,
            }
            for key, value in get_tags(change, now).items()
        ]
        try:
            # Tags first, which delay the next change: a missed change costs time, an extra one may cost nodes.
            client.create_or_update_tags(Tags=tags)
            client.set_desired_capacity(
                AutoScalingGroupName=change.group, DesiredCapacity=change.nodes, HonorCooldown=False
            )
        except (BotoCoreError, ClientError) as error:
            raise InputError(
                f"Auto Scaling group {change.group}", f"cannot be set to {change.nodes} nodes: {error}", fix=_FIX
            ) from None
        return ""

    def _client(self) -> Any:
        import boto3

        # A new session: status reads several stacks in threads, which must not share one.
        return boto3.Session().client("autoscaling", region_name=self._region)


def _get_state(group: Any) -> GroupState:
    changed_at, changed_why = read_change_tags({tag["Key"]: tag.get("Value", "") for tag in group.get("Tags", [])})
    return GroupState(
        name=group["AutoScalingGroupName"],
        most=group["MaxSize"],
        asked=group["DesiredCapacity"],
        in_service=sum(each["LifecycleState"] == "InService" for each in group.get("Instances", [])),
        is_held=any(each["ProcessName"] == "Launch" for each in group.get("SuspendedProcesses", [])),
        changed_at=changed_at,
        changed_why=changed_why,
    )


def open_scaler(config: StackConfig, outputs: Mapping[str, Any], names: Sequence[str], *, is_held: bool) -> Scaler:
    """For a stack that is up. InputError: not logged in."""
    return AwsScaler(config.region)


def resume(region: str, groups: Sequence[str], processes: Sequence[str]) -> None:
    """Lets Auto Scaling groups launch again. InputError: no credentials, no permission, or no such group."""
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    client = boto3.client("autoscaling", region_name=region)
    for group in groups:
        try:
            client.resume_processes(AutoScalingGroupName=group, ScalingProcesses=list(processes))
        except (BotoCoreError, ClientError) as error:
            raise InputError(
                f"Auto Scaling group {group}",
                f"{' and '.join(processes)} cannot be resumed: {error}",
                fix="run it as the account that runs `up`; nothing was removed, so you can repeat it",
            ) from None
