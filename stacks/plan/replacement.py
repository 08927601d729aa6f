"""What an update from an earlier plan does to each resource: updates it in place, changes the template of new nodes,
replaces it, restarts nodes or loses data. Reads `gangway.components.catalog.replaces`. As in the engine, replacing a
resource changes all inputs that reference its outputs.
"""

import gzip
import re
import zlib
from base64 import b64decode
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from gangway.components.catalog.replaces import Changed, load
from gangway.components.core.pinned import STASH
from gangway.stacks.base.provider import Provider
from gangway.stacks.base.rule import kind
from gangway.stacks.recording import PlannedResource

_REFERENCE = re.compile(r"\$\{(\w+\.[^.}]+)\.([^}]+)\}")
_ALWAYS_NEW = {
    "aws:ec2:LaunchTemplate": frozenset({"latestVersion"}),
    "docker-build:index:Image": frozenset({"contextHash", "digest", "ref"}),
}
"""Outputs that change with every update."""
_GZIPPED = "H4sI"
"""The first bytes of gzip in base64, as in user data."""
_SECRET = "[secret]"
_NOT_IN_CLOUD = ("gangway:", "pulumi:")
"""Prefixes of types that are in no cloud: components, and the engine's own."""
_REGION, _MOVED = "region", "another region"


class Effect(IntEnum):
    """What a change does, mildest first. Printed as in docs/reference/changing-settings.md."""

    IN_PLACE = 0
    NEW_NODES = 1
    UNKNOWN = 2
    REPLACED = 3
    HEAD_REPLACED = 4
    NODES_RESTARTED = 5
    DATA_LOST = 6

    def __str__(self) -> str:
        return _EFFECTS[self]


_EFFECTS = {
    Effect.IN_PLACE: "in place",
    Effect.NEW_NODES: "new nodes",
    Effect.UNKNOWN: "not known",
    Effect.REPLACED: "replaced",
    Effect.HEAD_REPLACED: "replaces the head",
    Effect.NODES_RESTARTED: "restarts nodes",
    Effect.DATA_LOST: "loses data",
}


@dataclass(frozen=True)
class PropertyChange:
    """A changed input, its effect, and why it replaces the resource, if it does."""

    path: str
    effect: Effect
    reason: str = ""

    def to_json(self) -> dict[str, str]:
        """Plain JSON data."""
        return {"path": self.path, "effect": str(self.effect), "reason": self.reason}


class Update:
    """An update from one plan's resources to the next plan's.

    Args:
        provider: the stack's.
        before: resources of the earlier plan by URN, as `gangway plan --json` prints them.
        now: the same of this plan.
        planned: this plan's resources, for their options.
        moves: whether the stack's region or provider is another one.
    """

    def __init__(
        self,
        provider: Provider,
        before: Mapping[str, Mapping[str, Any]],
        now: Mapping[str, Mapping[str, Any]],
        planned: Sequence[PlannedResource] = (),
        *,
        moves: bool = False,
    ) -> None:
        self._provider, self._before, self._now = provider, before, now
        self._options = {one.urn: one for one in planned}
        self._tags = provider.tags.inputs()
        self._replaced: set[str] = set()
        self._causes: dict[tuple[str, str], str] = {}
        self._by_tags: set[tuple[str, str]] = set()
        self._changes = {urn: self._direct_changes(urn) for urn in before.keys() & now.keys()}
        if moves:
            for urn, changes in self._changes.items():
                if not str(now[urn]["type"]).startswith(_NOT_IN_CLOUD):
                    changes.setdefault(_REGION, Changed(_REGION, None, None))
                    self._causes[urn, _REGION] = _MOVED
        self._renew_secrets()
        self._follow_replacements()

    def changed(self) -> Iterator[str]:
        """The URNs of changed resources that exist before and now."""
        return (urn for urn in sorted(self._changes) if self._changes[urn])

    def properties(self, urn: str) -> tuple[PropertyChange, ...]:
        """The changed inputs of a resource."""
        found = {}
        for place, changed in self._changes[urn].items():
            reason = self._reason(urn, place, changed)
            found[place] = PropertyChange(place, self._effect(urn, bool(reason), changed.path), reason)
        return tuple(found[place] for place in sorted(found))

    def effect_of_removal(self, urn: str) -> Effect:
        """What the removal of a resource does."""
        effect = self._effect(urn, True, "")
        if effect in (Effect.HEAD_REPLACED, Effect.NODES_RESTARTED):
            return Effect.NODES_RESTARTED
        return effect if effect is Effect.DATA_LOST else Effect.IN_PLACE

    def is_tags_only(self, urn: str) -> bool:
        """Whether nothing but its tags changes, and no node restarts."""
        type_, changes = kind(self._now[urn]["type"]), self._changes[urn].items()
        return urn not in self._replaced and all(
            self._is_tag(type_, changed.path)
            or ((urn, place) in self._by_tags and self._effect(urn, False, changed.path) is Effect.IN_PLACE)
            for place, changed in changes
        )

    def _is_tag(self, type_: str, path: str) -> bool:
        """Whether an input is for tags of the resource or of what it starts."""
        return _matches(path, (self._tags.get(type_, ""), *self._provider.tags.started_inputs))

    def _direct_changes(self, urn: str) -> dict[str, Changed]:
        """Changed leaves by their place, without those in `ignore_changes`."""
        option = self._options.get(urn)
        ignored = option.ignore_changes if option else ()
        places = _places(self._before[urn]["inputs"], self._now[urn]["inputs"], "")
        return {
            place: Changed(_without_indices(place), before, now)
            for place, before, now in places
            if not any(place == one or place.startswith((f"{one}.", f"{one}[")) for one in ignored)
        }

    def _follow_replacements(self) -> None:
        """Adds changes of inputs that reference replaced resources, until nothing more is replaced."""
        users = self._users()
        waiting = [urn for urn in sorted(self._changes) if self._changes[urn]]
        while waiting:
            urn = waiting.pop(0)
            if any(self._reason(urn, place, changed) for place, changed in self._changes[urn].items()):
                self._replaced.add(urn)
            type_ = kind(self._now[urn]["type"])
            for user, place, output in users.get(urn, ()):
                fresh = urn in self._replaced or output in _ALWAYS_NEW.get(type_, ())
                if fresh and place not in self._changes[user]:
                    self._add(user, place, self._now[urn]["name"])
                    waiting.append(user)
                    if self.is_tags_only(urn):
                        self._by_tags.add((user, place))

    def _add(self, urn: str, place: str, followed: str) -> None:
        self._changes[urn][place] = Changed(_without_indices(place), None, None)
        self._causes[urn, place] = f"follows {followed}"

    def _renew_secrets(self) -> None:
        """Plans do not contain secrets. A secret has changed if the resource that stores it has a new name."""
        new = {urn for urn in self._now.keys() - self._before.keys() if self._now[urn]["type"] == STASH}
        for urn in self._changes:
            kept = self._options[urn].dependencies & new if urn in self._options else ()
            for stash in sorted(kept):
                for place, value in _leaves(self._now[urn]["inputs"], ""):
                    if value == _SECRET:
                        self._add(urn, place, self._now[stash]["name"])

    def _users(self) -> dict[str, list[tuple[str, str, str]]]:
        """By URN, references to its outputs: the user's URN, the place and the output."""
        labels = {f"{one['type'].rpartition(':')[2]}.{one['name']}": urn for urn, one in self._now.items()}
        found: dict[str, list[tuple[str, str, str]]] = {}
        for user in self._changes:
            for place, value in _leaves(self._now[user]["inputs"], ""):
                for label, output in _REFERENCE.findall(value):
                    if label in labels:
                        found.setdefault(labels[label], []).append((user, place, output))
        return found

    def _reason(self, urn: str, place: str, changed: Changed) -> str:
        """Why this change replaces the resource; empty if it does not."""
        cause = self._causes.get((urn, place), "")
        if cause == _MOVED:
            return cause
        option = self._options.get(urn)
        also = option.replace_on_changes if option else ()
        one = self._now[urn]
        reason = load().replaces(kind(one["type"]), changed, one["inputs"], also)
        return reason and (cause or reason)

    def _effect(self, urn: str, replaced: bool, path: str) -> Effect:
        one = self._now.get(urn) or self._before[urn]
        type_, nodes, retention = kind(one["type"]), self._provider.nodes, self._provider.retention
        restarted = Effect.HEAD_REPLACED if "head" in one["name"] else Effect.NODES_RESTARTED
        if replaced and type_ in retention.guarded:
            return Effect.REPLACED if retention.is_disposable(urn, one["inputs"]) else Effect.DATA_LOST
        if type_ in nodes.machines and (replaced or _matches(path, nodes.restarting.get(type_, ()))):
            return restarted
        if type_ in nodes.templates and (replaced or path.partition(".")[0] != self._tags.get(type_)):
            return Effect.NEW_NODES
        if replaced:
            return Effect.REPLACED
        known = load().knows(type_) or one["type"].startswith(_NOT_IN_CLOUD)
        return Effect.IN_PLACE if known else Effect.UNKNOWN


def _matches(path: str, inputs: Collection[str]) -> bool:
    return "*" in inputs or any(path == one or path.startswith(f"{one}.") for one in inputs)


def _without_indices(place: str) -> str:
    return re.sub(r"\[\d+\]", "", place)


def _places(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Differences between two values: place, value before, value now."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            yield from _places(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, now) in enumerate(zip(old, new, strict=True)):
            yield from _places(before, now, f"{path}[{index}]")
    elif old != new:
        yield path, old, new


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """The strings in inputs, with their places."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _leaves(one, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _leaves(one, f"{path}[{index}]")
    elif isinstance(value, str):
        yield path, _decompress(value)


def _decompress(text: str) -> str:
    """The text of gzipped user data; other texts unchanged."""
    if not text.startswith(_GZIPPED):
        return text
    try:
        return gzip.decompress(b64decode(text)).decode()
    except (ValueError, OSError, EOFError, zlib.error):  # a user's text with the same beginning
        return text
