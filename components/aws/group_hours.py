"""When the groups of a ladder may hold nodes: from the start of a capacity block, until shortly before its end.

Scheduled actions of Auto Scaling, so that it works with nobody watching. Before its block begins a group is closed:
EC2 would refuse every launch, and after a day of refusals Auto Scaling suspends the group's launches until somebody
resumes them. What stands behind the block is closed as long, for the alarm that fills it cannot tell a block that fails
from one that has not begun. Not the alarm itself: that is `components.aws.fallback`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pulumi
from pulumi_aws import autoscaling

from components.aws.capacity import opening_times
from components.capacity import RungPlan

__all__ = ["START_MARGIN", "GroupSize", "declare_hours", "plan_sizes"]

START_MARGIN = timedelta(minutes=30)
"""Nearer to the start than this, a group is declared open, and EC2 may refuse its launches until then.

AWS refuses an action for the past, and between the program's clock and the action's turn lies the rest of an `up`.
"""


@dataclass(frozen=True)
class GroupSize:
    """How many nodes one group may hold.

    Attributes:
        most: at most so many, once it is open.
        wanted: so many as soon as it is open; None where the fill alarm decides.
        opens_at: closed until then; None where it is open.
    """

    most: int
    wanted: int | None
    opens_at: datetime | None

    @property
    def most_now(self) -> int:
        """What to declare as the group's maximum."""
        return self.most if self.opens_at is None else 0

    @property
    def wanted_now(self) -> int | None:
        """What to declare as the group's desired number."""
        return self.wanted if self.opens_at is None or self.wanted is None else 0


def plan_sizes(
    rungs: Sequence[RungPlan], num_nodes_min: int, num_nodes_max: int, now: datetime
) -> tuple[GroupSize, ...]:
    """The size of each rung's group: the first holds all nodes, the others wait empty and may grow to the minimum."""
    return tuple(
        GroupSize(
            most=num_nodes_min if position else num_nodes_max,
            # Below the first rung the scaling policy owns the number: a declared one would empty the rung on each `up`.
            wanted=None if position else num_nodes_max,
            opens_at=opens_at if opens_at is not None and now + START_MARGIN < opens_at else None,
        )
        for position, opens_at in enumerate(opening_times(rungs))
    )


def declare_hours(
    name: str,
    group: autoscaling.Group,
    size: GroupSize,
    stops_at: datetime | None,
    opts: pulumi.ResourceOptions,
) -> None:
    """The actions that open a group at its time, and empty it at `stops_at`. Without a recurrence each runs once."""

    def act(resource: str, action: str, time: datetime, most: int, wanted: int) -> None:
        autoscaling.Schedule(
            resource,
            scheduled_action_name=action,
            # Its name, and what the bill knows the group by.
            autoscaling_group_name=group.id,
            start_time=time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            # All three: the provider takes 0 for what is left out.
            min_size=0,
            max_size=most,
            desired_capacity=wanted,
            opts=opts,
        )

    if size.opens_at is not None:
        act(f"{name}-start", f"{name}-start", size.opens_at, size.most, size.wanted or 0)
    if stops_at is not None:
        # A maximum of 0 too, so that nothing asks for nodes of a block that is over.
        act(name, f"{name}-stop", stops_at, 0, 0)
