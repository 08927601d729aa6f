"""A job's nodes brought to the number that `job.autoscale` wants: what a group is asked for now, the one change that
follows, and what a provider has to give for it (`Scaler`; one file each beside this one).

The first rung's group has between the job's least and most nodes, and the rungs below it make up for the least alone:
another number asked of the first never pulls against them.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from components.estimate.autoscale import Decision

AT_TAG, WHY_TAG = "gangway-scaled-at", "gangway-scaled-why"
"""On the group whose number was changed, where it has tags: when, and why. Nothing that a job may write says when a
change may come.
"""
_NOT_IN_A_TAG = re.compile(r"[^\w .:/=+@-]+", re.ASCII)
_TAG_CHARACTERS = 256


class GroupState(NamedTuple):
    """A rung's group, as the provider has it.

    Attributes:
        name: of the group.
        most: that it may have now; 0 while its capacity block has not begun, or is over.
        asked: that it is to have.
        in_service: that it has.
        is_held: whether it launches nothing: the circuit breaker, or a person.
        changed_at: when its number was last changed from here; None for never. `changed_why`: the reason then.
        why_not_in: why nodes of it must not be sent away; empty where they hear of it in time to save.
    """

    name: str
    most: int
    asked: int
    in_service: int
    is_held: bool = False
    changed_at: datetime | None = None
    changed_why: str = ""
    why_not_in: str = ""

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


def find_nodes(groups: Sequence[GroupState]) -> int | None:
    """Nodes that the job has; None before the first."""
    return sum(group.in_service for group in groups) or None


def since_change_sec(groups: Sequence[GroupState], now: datetime) -> float:
    """Since the first group's number was changed."""
    at = groups[0].changed_at
    return float("inf") if at is None else max(0.0, (now - at).total_seconds())


def get_change(
    groups: Sequence[GroupState], wanted: Decision, least: int, hold_sec: float, now: datetime
) -> Change | str:
    """The change that brings the job to the wanted number, or why there is none. `groups`: in the ladder's order;
    `least`: that the ladder keeps up.
    """
    first = groups[0]
    if first.most == 0:
        return f"{first.name} is closed: its capacity has not begun, or is over"
    if first.asked == 0:
        return f"{first.name} is empty: its job or its budget is over, or a person did it; `pulumi up --refresh`"
    nodes = min(max(wanted.nodes, least), first.most)
    if nodes == first.asked:
        return f"{first.name} is to have {first.asked} already"
    since = since_change_sec(groups, now)
    if since < hold_sec:
        return f"{since / 60:.0f} min after the last change nothing is changed: hold_minutes is {hold_sec / 60:g}"
    if nodes > first.asked and first.is_held:
        return f"{first.name} launches nothing now: see `gangway breaker show`"
    if nodes < first.asked and first.why_not_in:
        return f"{nodes} nodes would do, and {first.name} keeps {first.asked}: {first.why_not_in}"
    return Change(first.name, first.asked, nodes, wanted.reason)


class Scaler(Protocol):
    """A provider's calls, as whoever runs the command may make them."""

    def get_groups(self, names: Sequence[str]) -> list[GroupState]:
        """The groups as the provider has them, in this order, which is the ladder's. InputError: they cannot be read,
        or one is not there.
        """
        ...

    def carry_out(self, change: Change, now: datetime) -> str:
        """Asks for the number, once; what happens next, in words, empty where it happens at once. InputError: the
        provider refuses.
        """
        ...


def get_tags(change: Change, now: datetime) -> dict[str, str]:
    """When a change is asked for, and why, as a group's tags."""
    why = f"{change.was} to {change.nodes}: {change.why}"
    said = {AT_TAG: now.astimezone(UTC).isoformat(timespec="seconds"), WHY_TAG: why}
    return {key: " ".join(_NOT_IN_A_TAG.sub(" ", value).split())[:_TAG_CHARACTERS] for key, value in said.items()}


def told_by(tags: Mapping[str, str]) -> tuple[datetime | None, str]:
    """When a group's number was last changed, and why, by its tags."""
    return find_time(tags.get(AT_TAG, "")), tags.get(WHY_TAG, "")


def find_time(text: str) -> datetime | None:
    """Of a tag that a person may have written anew: what is no time with its zone counts as none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
