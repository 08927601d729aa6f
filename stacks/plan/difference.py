"""Compares a plan with an earlier one (`gangway plan --json`): resources, dollars, energy, carbon. `pulumi preview`
compares with the cloud.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from gangway.components.core.findings import Finding, InputError
from gangway.components.core.first_error import first_wrong
from gangway.components.core.retention import refusal
from gangway.components.core.visible import all_visible
from gangway.components.estimate.cost import foreign_note
from gangway.stacks.base.ownership import check_addresses
from gangway.stacks.base.registry import get_provider
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan
from gangway.stacks.plan.replacement import Effect, PropertyChange, Update
from gangway.stacks.recording import PlannedResource
from gangway.trainer.core.regular_files import read_text_file


@dataclass(frozen=True)
class Change:
    """A changed resource. `effect`: the most severe of its changes, None for a new one. `is_retained`: the old one
    stays in the cloud, outside the stack.
    """

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
    """The compared fields of an earlier plan, which may have others."""

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
        wrong = first_wrong(error)
        raise InputError(
            wrong.within(str(path)),
            f"not a plan: {wrong.what}",
            value=wrong.value,
            allowed="the output of `gangway plan --json`",
            fix=fix,
        ) from None
    if plan.stack != stack:
        raise InputError(f"{path}: stack", "the plan of another stack", value=plan.stack, allowed=stack, fix=fix)
    plain: dict[str, Any] = data
    return plain


def compare(before: Mapping[str, Any], now: Mapping[str, Any], planned: Sequence[PlannedResource] = ()) -> Difference:
    """Compares two outputs of `gangway plan --json`. `planned`: this plan's resources, for their options."""
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
    """The figure at a path such as `cost.run_most.usd`; None if a part is missing."""
    found: Any = plan
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return None if found is None else float(found)
