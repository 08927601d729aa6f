"""Compares a plan with an earlier one (`gangway plan --json`): resources, dollars, energy, carbon."""

import gzip
import json
import re
import zlib
from base64 import b64decode
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from gangway.components.catalog.replaces import Changed, load
from gangway.components.core.findings import Finding, InputError
from gangway.components.core.lookup import STASH
from gangway.components.core.retention import refusal
from gangway.components.core.safe_text import all_visible
from gangway.components.estimate.cost import foreign_note
from gangway.stacks.base.ownership import check_addresses
from gangway.stacks.base.provider import Provider
from gangway.stacks.base.registry import get_provider
from gangway.stacks.base.rule import kind
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan
from gangway.stacks.recording import PlannedResource
from gangway.trainer.core.regular_files import read_text_file
from gangway.trainer.core.validation import first_mistake

_REFERENCE = re.compile(r"\$\{(\w+\.[^.}]+)\.([^}]+)\}")
_ALWAYS_NEW = {
    "aws:ec2:LaunchTemplate": frozenset({"latestVersion"}),
    "docker-build:index:Image": frozenset({"contextHash", "digest", "ref"}),
}  # outputs that change with every update
_GZIPPED = "H4sI"  # the first bytes of gzip in base64, as in user data
_SECRET = "[secret]"
_REGION, _MOVED = "region", "another region"
_NOT_IN_CLOUD = ("gangway:", "pulumi:")  # prefixes of types that are in no cloud: components, and the engine's own


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


_EFFECTS = ("in place", "new nodes", "not known", "replaced", "replaces the head", "restarts nodes", "loses data")


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
    """An update from one plan's resources, by URN, to the next plan's. `moves`: to another region or provider."""

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
        return _matches(path, (self._tags.get(type_, ""), *self._provider.tags.started_inputs))

    def _direct_changes(self, urn: str) -> dict[str, Changed]:
        places = _places(self._before[urn]["inputs"], self._now[urn]["inputs"], "")
        return {
            place: Changed(_without_indices(place), before, now)
            for place, before, now in places
            if not self._ignores(urn, place)
        }

    def _ignores(self, urn: str, place: str) -> bool:
        option = self._options.get(urn)
        ignored = option.ignore_changes if option else ()
        return any(place == one or place.startswith((f"{one}.", f"{one}[")) for one in ignored)

    def _follow_replacements(self) -> None:
        users = self._users()
        waiting = [urn for urn in sorted(self._changes) if self._changes[urn]]
        while waiting:
            urn = waiting.pop(0)
            if any(self._reason(urn, place, changed) for place, changed in self._changes[urn].items()):
                self._replaced.add(urn)
            type_ = kind(self._now[urn]["type"])
            for user, place, output in users.get(urn, ()):
                renewed = output in _ALWAYS_NEW.get(type_, ()) and place not in self._before[user].get("kept", ())
                fresh = urn in self._replaced or renewed
                if fresh and place not in self._changes[user]:
                    self._add(user, place, self._now[urn]["name"])
                    waiting.append(user)
                    if self.is_tags_only(urn):
                        self._by_tags.add((user, place))

    def _add(self, urn: str, place: str, followed: str) -> None:
        if self._ignores(urn, place):
            return
        self._changes[urn][place] = Changed(_without_indices(place), None, None)
        self._causes[urn, place] = f"follows {followed}"

    def _renew_secrets(self) -> None:
        """Plans do not contain secrets. A secret has changed if the resource that stores it has a new name."""
        new = {urn for urn in self._now.keys() - self._before.keys() if self._now[urn]["type"] == STASH}
        for urn in self._changes:
            kept = self._options[urn].dependencies & new if urn in self._options else ()
            for stash in sorted(kept):
                for place, value in leaves(self._now[urn]["inputs"]):
                    if value == _SECRET:
                        self._add(urn, place, self._now[stash]["name"])

    def _users(self) -> dict[str, list[tuple[str, str, str]]]:
        labels = {f"{one['type'].rpartition(':')[2]}.{one['name']}": urn for urn, one in self._now.items()}
        found: dict[str, list[tuple[str, str, str]]] = {}
        for user in self._changes:
            for place, value in leaves(self._now[user]["inputs"]):
                for label, output in _REFERENCE.findall(value):
                    if label in labels:
                        found.setdefault(labels[label], []).append((user, place, output))
        return found

    def _reason(self, urn: str, place: str, changed: Changed) -> str:
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


@dataclass(frozen=True)
class Change:
    """A changed resource with its most severe effect, None for a new one; if `is_retained`, the old one stays."""

    urn: str
    type: str
    name: str
    properties: tuple[PropertyChange, ...] = ()
    effect: Effect | None = None
    is_retained: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        effect = None if self.effect is None else str(self.effect)
        names = {"urn": self.urn, "type": self.type, "name": self.name}
        return {**names, "effect": effect, "properties": [one.to_json() for one in self.properties]}


class Basis(StrEnum):
    """The basis of a figure: rates, the expected run, or the longest run."""

    RATE = ""
    EXPECTED = "expected"
    AT_MOST = "at most"


@dataclass(frozen=True)
class Delta:
    """A figure before and now; None if it is unknown, or not in the earlier plan."""

    what: str
    basis: Basis
    unit: str
    before: float | None
    now: float | None

    @property
    def label(self) -> str:
        """`a run, at most, USD`."""
        return ", ".join(filter(None, (self.what, self.basis, self.unit)))

    @property
    def change(self) -> float | None:
        """Now minus before; None if either is unknown."""
        return None if self.before is None or self.now is None else self.now - self.before


@dataclass(frozen=True)
class Difference:
    """The difference between two plans of a stack. `tags_only`: resources with changed tags only."""

    added: tuple[Change, ...]
    removed: tuple[Change, ...]
    changed: tuple[Change, ...]
    tags_only: tuple[Change, ...]
    figures: tuple[Delta, ...]
    findings_new: tuple[str, ...]
    findings_gone: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        groups = {name: getattr(self, name) for name in ("added", "removed", "changed", "tags_only")}
        return {
            **{name: [change.to_json() for change in changes] for name, changes in groups.items()},
            "figures": [{**asdict(figure), "change": figure.change} for figure in self.figures],
            "findings_new": list(self.findings_new),
            "findings_gone": list(self.findings_gone),
        }

    def data_losses(self, allowed: Sequence[str]) -> tuple[Finding, ...]:
        """An error for each resource whose data the update loses, except those `allowed` by `gangway:allow_replace`."""
        lost = [("replace", one) for one in self.changed if one.effect is Effect.DATA_LOST]
        lost += [("remove", one) for one in self.removed if one.effect is Effect.DATA_LOST]
        return tuple(_loss(action, one) for action, one in lost if one.name not in allowed)


class _Lenient(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, defer_build=True)


class _Resource(_Lenient):
    urn: str
    type: str
    name: str
    inputs: dict[str, Any]


class _Line(_Lenient):
    name: str
    unit: str
    quantity: float
    price: float | None
    hourly: float | None
    standby: bool


class _Most(_Lenient):
    usd: float


class _Cost(_Lenient):
    currency: str
    hourly: float
    monthly: float
    run_most: _Most | None = None
    components: list[_Line]


class _Band(_Lenient):
    mid: float


class _Run(_Lenient):
    usd: _Band | None = None


class _Energy(_Lenient):
    kwh: float | None
    kwh_most: float | None = None


class _Carbon(_Lenient):
    gco2e: float | None
    gco2e_most: float | None = None


class _Finding(_Lenient):
    code: str
    path: str


class _Plan(_Lenient):
    stack: str
    provider: str
    region: str
    resources: list[_Resource]
    findings: list[_Finding]
    cost: _Cost
    expected_run: _Run | None = None
    energy: _Energy
    carbon: _Carbon


def read_plan(path: Path, stack: str) -> dict[str, Any]:
    """An earlier plan of `stack`. InputError: the file cannot be read, is not a plan, or is another stack's."""
    fix = f"write one with `gangway plan {stack} --json > previous.json`"
    try:
        data = all_visible(json.loads(read_text_file(path)))
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}", fix=fix) from None
    except (ValueError, RecursionError) as error:
        place = f"{path}:{error.lineno}" if isinstance(error, json.JSONDecodeError) else str(path)
        raise InputError(place, "not JSON", allowed="the output of `gangway plan --json`", fix=fix) from None
    try:
        plan = _Plan.model_validate(data)
    except ValidationError as error:
        wrong = first_mistake(error)
        raise InputError(
            wrong.within(str(path)),
            f"not a plan: {wrong.summary}",
            value=wrong.value,
            allowed="the output of `gangway plan --json`",
            fix=fix,
        ) from None
    if plan.stack != stack:
        raise InputError(f"{path}: stack", "the plan of another stack", value=plan.stack, allowed=stack, fix=fix)
    plain: dict[str, Any] = data
    return plain


def compare(before: Mapping[str, Any], now: Mapping[str, Any], planned: Sequence[PlannedResource] = ()) -> Difference:
    """Compares two outputs of `gangway plan --json`. `planned`: this plan's resources, for their options. A resource
    before may have `kept`, the places of texts that stay although an image in them is built again.
    """
    old, new = ({r["urn"]: r for r in plan["resources"]} for plan in (before, now))
    was, is_ = ({(f["code"], f["path"]) for f in plan["findings"]} for plan in (before, now))
    moves = any(before[key] != now[key] for key in ("provider", "region"))
    update = Update(get_provider(now["provider"]), old, new, planned, moves=moves)
    retained = {one.urn for one in planned if one.is_retained}
    changed = [
        (update.is_tags_only(urn), replace(_change(new[urn], update.properties(urn)), is_retained=urn in retained))
        for urn in update.changed()
    ]
    return Difference(
        added=tuple(_change(new[urn]) for urn in sorted(new.keys() - old.keys())),
        removed=tuple(
            replace(_change(old[urn]), effect=update.effect_of_removal(urn)) for urn in sorted(old.keys() - new.keys())
        ),
        changed=tuple(change for tags_only, change in changed if not tags_only),
        tags_only=tuple(change for tags_only, change in changed if tags_only),
        figures=_figures(before, now),
        findings_new=tuple(f"{code} at {path}" for code, path in sorted(is_ - was)),
        findings_gone=tuple(f"{code} at {path}" for code, path in sorted(was - is_)),
    )


def add_comparison(plan: Plan, previous: Mapping[str, Any]) -> tuple[Plan, Difference]:
    """The difference from `previous`, and the plan with errors for lost data and for changes that `up` refuses."""
    difference = compare(previous, plan.plain(), plan.resources)
    errors = (*refusals(plan.config, previous), *difference.data_losses(plan.config.allow_replace))
    return replace(plan, findings=(*plan.findings, *errors)), difference


def refusals(config: StackConfig, previous: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Changes since a plan (`gangway plan --json`) that `up` refuses at its start."""
    declared = {one["urn"]: {"type": one["type"], "outputs": one["inputs"]} for one in previous["resources"]}
    try:
        check_addresses(config, declared)
    except InputError as error:
        return (Finding.error("update.refused", error.place, f"`up` refuses this change: {error.problem}", error.fix),)
    return ()


def _change(resource: Mapping[str, Any], properties: tuple[PropertyChange, ...] = ()) -> Change:
    effect = max((one.effect for one in properties), default=None)
    return Change(resource["urn"], resource["type"], resource["name"], properties, effect)


def _loss(action: str, change: Change) -> Finding:
    error = refusal(change.name, change.type, action, is_retained=change.is_retained)
    causes = [f"{one.path}: {one.reason}" for one in change.properties if one.reason]
    why = ", ".join([one for one in causes if ": follows " not in one] or causes)
    message = f"{change.name}: {error.problem}{f' ({why})' if why else ''}"
    return Finding.error("data.lost", "gangway:allow_replace", message, error.fix)


def _figures(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[Delta, ...]:
    energy, emissions = "energy of a run", "emissions of a run"
    rows = (
        ("an hour", Basis.RATE, "USD", "cost.hourly"),
        ("a month", Basis.RATE, "USD", "cost.monthly"),
        ("a run", Basis.EXPECTED, "USD", "expected_run.usd.mid"),
        ("a run", Basis.AT_MOST, "USD", "cost.run_most.usd"),
        (energy, Basis.EXPECTED, "kWh", "energy.kwh"),
        (energy, Basis.AT_MOST, "kWh", "energy.kwh_most"),
        (emissions, Basis.EXPECTED, "gCO2e", "carbon.gco2e"),
        (emissions, Basis.AT_MOST, "gCO2e", "carbon.gco2e_most"),
    )
    regions = dict.fromkeys(region for plan in (before, now) for region in plan["cost"].get("foreign_regions", ()))
    note = f", {foreign_note(regions)}" if regions else ""
    return tuple(
        Delta(what + (note if unit == "USD" else ""), basis, unit, _figure(before, path), _figure(now, path))
        for what, basis, unit, path in rows
    )


def _figure(plan: Mapping[str, Any], path: str) -> float | None:
    found: Any = plan
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return None if found is None else float(found)


def _matches(path: str, inputs: Collection[str]) -> bool:
    return "*" in inputs or any(path == one or path.startswith(f"{one}.") for one in inputs)


def _without_indices(place: str) -> str:
    return re.sub(r"\[\d+\]", "", place)


def _places(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            yield from _places(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, now) in enumerate(zip(old, new, strict=True)):
            yield from _places(before, now, f"{path}[{index}]")
    elif old != new:
        yield path, old, new


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Each text below `value` with its place, decompressed."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from leaves(one, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from leaves(one, f"{path}[{index}]")
    elif isinstance(value, str):
        yield path, _decompress(value)


def _decompress(text: str) -> str:
    if not text.startswith(_GZIPPED):
        return text
    try:
        return gzip.decompress(b64decode(text)).decode()
    except (ValueError, OSError, EOFError, zlib.error):  # a user's text with the same beginning
        return text
