"""Resizes a job to the number of nodes that `job.autoscale` wants: the groups' present numbers, the one change that
follows, and the interface of a provider (`Scaler`, one file each in this folder). Each file also says of a reset of the
circuit breaker: SUSPENDS_LAUNCHES, whether the breaker suspends launches of the groups themselves, which a reset
resumes; AFTER_RESET, why `up --refresh` is needed after it, empty if it is not.

The first rung's group holds between the job's least and most nodes; lower rungs only make up for the least, so they
never counteract a change of the first.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from gangway.components.core.findings import InputError
from gangway.components.core.http_session import Session
from gangway.components.estimate.autoscale import Decision

AT_TAG, WHY_TAG = "gangway-scaled-at", "gangway-scaled-why"
"""On the resized group, if it has tags: time and reason. A job cannot write them, so it cannot influence when the next
change may come.
"""
_NOT_IN_A_TAG = re.compile(r"[^\w .:/=+@-]+", re.ASCII)
_TAG_CHARACTERS = 256
TIMEOUT_SEC = 60.0
_GONE = "`pulumi up --refresh`; check that the account is the stack's"
_MOST_SHOWN = 300
"""Characters of a refusal to quote."""


class GroupState(NamedTuple):
    """A rung's group, as the provider reports it.

    Attributes:
        most: its limit now; 0 before or after its capacity block.
        is_held: launches are suspended, by the circuit breaker or a person.
        changed_at: last change made from here; None for never. `changed_why`: its reason.
        why_not_in: why it must not shrink; empty if nodes are notified in time to save.
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
        """For display; empty for none."""
        when = "" if self.changed_at is None else f"{self.changed_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        return f"last changed {when}: {self.changed_why}" if when else ""


class Change(NamedTuple):
    """Of one group's number."""

    group: str
    was: int
    nodes: int
    why: str


def find_nodes(groups: Sequence[GroupState]) -> int | None:
    """Present nodes of the job; None if there are none."""
    return sum(group.in_service for group in groups) or None


def since_change_sec(groups: Sequence[GroupState], now: datetime) -> float:
    """Since the last change of the first group."""
    at = groups[0].changed_at
    return float("inf") if at is None else max(0.0, (now - at).total_seconds())


def get_change(
    groups: Sequence[GroupState], wanted: Decision, least: int, hold_sec: float, now: datetime
) -> Change | str:
    """The change towards the wanted number, or why there is none; `groups` in the ladder's order."""
    first = groups[0]
    if first.most == 0:
        return f"{first.name} is closed: its capacity has not started or has ended"
    if first.asked == 0:
        return f"{first.name} is empty: its job or budget has ended, or a person emptied it; `pulumi up --refresh`"
    nodes = min(max(wanted.nodes, least), first.most)
    if nodes == first.asked:
        return f"{first.name} already has {first.asked} as its target"
    since = since_change_sec(groups, now)
    if since < hold_sec:
        return f"the last change was {since / 60:.0f} min ago, and hold_minutes is {hold_sec / 60:g}"
    if nodes > first.asked and first.is_held:
        return f"launches of {first.name} are held: see `gangway breaker show`"
    if nodes < first.asked and first.why_not_in:
        return f"{nodes} nodes would be enough, but {first.name} keeps {first.asked}: {first.why_not_in}"
    return Change(first.name, first.asked, nodes, wanted.reason)


class Scaler(Protocol):
    """A provider's calls, with the caller's permissions."""

    def get_groups(self, names: Sequence[str]) -> list[GroupState]:
        """The groups' states, in the ladder's order. InputError: they cannot be read, or one is missing."""
        ...

    def carry_out(self, change: Change, now: datetime) -> str:
        """Requests the number, once; what happens next. InputError: the provider refuses."""
        ...


def get_tags(change: Change, now: datetime) -> dict[str, str]:
    """Time and reason of a change, as a group's tags."""
    why = f"{change.was} to {change.nodes}: {change.why}"
    tags = {AT_TAG: now.astimezone(UTC).isoformat(timespec="seconds"), WHY_TAG: why}
    return {key: " ".join(_NOT_IN_A_TAG.sub(" ", value).split())[:_TAG_CHARACTERS] for key, value in tags.items()}


def read_change_tags(tags: Mapping[str, str]) -> tuple[datetime | None, str]:
    """Time and reason of a group's last change, from its tags."""
    return find_time(tags.get(AT_TAG, "")), tags.get(WHY_TAG, "")


def find_time(text: str) -> datetime | None:
    """None for a text without time or zone: people may edit tags."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


class Rest:
    """A REST API with the caller's login, below the address `root`. `fix`: for refused calls, which quote the cloud."""

    def __init__(self, session: Session, root: str, fix: str) -> None:
        self._session, self._root, self._fix = session, root, fix

    def call(
        self, what: str, method: str, path: str, params: Mapping[str, str] | None = None, body: Any = None
    ) -> dict[str, Any]:
        """The answer's JSON. `what`: names the object, and the action, in errors. InputError: a refusal, no answer, or
        no such object.
        """
        try:
            reply = self._session.request(
                method, f"{self._root}{path}", params=dict(params or {}), json=body, timeout=TIMEOUT_SEC
            )
        except OSError as error:  # every exception of requests is one
            raise InputError(what, f"no answer: {type(error).__name__}", fix=self._fix) from None
        if reply.status_code == 404:
            raise InputError(what, "does not exist", fix=_GONE)
        try:
            answer = reply.json()
        except ValueError:
            answer = None
        if reply.status_code not in (200, 201, 202) or not isinstance(answer, dict):
            text = " ".join(reply.text[:_MOST_SHOWN].split())
            raise InputError(what, f"{method} was refused", value=f"{reply.status_code}: {text}", fix=self._fix)
        return answer
