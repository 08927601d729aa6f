"""What `up` would change in a stack that is up: its Pulumi state, as the earlier plan for `difference.compare`.

The program runs once more against a cloud that answers as the state does, so that its inputs are comparable with those
of the state. Functions of a provider are not called: where the program uses an answer, nothing is compared, nor are
secrets or files.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pulumi.runtime import rpc

from gangway.components.core.lookup import STASH
from gangway.components.estimate.cost import estimate
from gangway.stacks.base.kept import SETTINGS, settings_digest
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.usage_costs import usage_lines
from gangway.stacks.plan.difference import leaves
from gangway.stacks.plan.plan import Plan, run_program
from gangway.stacks.program import get_program
from gangway.stacks.recording import PlaceholderCloud, PlannedResource

_UNKNOWN = re.compile(r"\$\{\w+\.[^}\s]+\}|\[secret\]")
_SECRET, _DEFAULTS = "[secret]", "__defaults"
_ENGINES = ("pulumi:providers:", "pulumi:pulumi:")


@dataclass(frozen=True)
class LiveResource:
    """A resource of the state. `path`: its URN without stack and project; `trigger`: a Stash's replacement trigger."""

    path: str
    type: str
    name: str
    id: str
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    trigger: Mapping[str, Any] | None

    def kept(self, settings: str) -> bool:
        """Whether the engine keeps a text of `gangway.stacks.base.kept`, or anything else that never changes."""
        return self.trigger is None or self.trigger.get(SETTINGS) == settings


def read_live(rows: Sequence[Mapping[str, Any]]) -> dict[str, LiveResource]:
    """The resources by path. `rows`: `deployment.resources` of `pulumi stack export`."""
    found = {}
    for row in rows:
        if row.get("delete") or row.get("external") or str(row["type"]).startswith(_ENGINES):
            continue
        one = LiveResource(
            path=_path(row["urn"]),
            type=row["type"],
            name=row["urn"].rpartition("::")[2],
            id=row.get("id") or "",
            inputs=_masked(row.get("inputs") or {}),
            outputs=_masked(row.get("outputs") or {}),
            trigger=row.get("replacementTrigger") if row["type"] == STASH else None,
        )
        found[one.path] = one
    return found


class LiveCloud(PlaceholderCloud):
    """A cloud in which the resources of the state exist, with their ids and outputs."""

    def __init__(self, live: Mapping[str, LiveResource], settings: str) -> None:
        self._live = {(one.type, one.name): one for one in live.values()}
        self._settings = settings

    def __call__(self, type_token: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """See Cloud."""
        id_, made = super().__call__(type_token, name, inputs)
        one = self._live.get((type_token, name))
        if one is None or (type_token == STASH and not one.kept(self._settings)):
            return id_, made
        mixed = {key: value for key, value in one.outputs.items() if _SECRET in repr(value) or _is_unknown(value)}
        return one.id, {**made, **{key: value for key, value in one.outputs.items() if key not in mixed}}


def earlier_plan(plan: Plan, live: Mapping[str, LiveResource]) -> dict[str, Any]:
    """The stack that is up, as `gangway plan --json` would show it; figures other than rates are unknown."""
    config = plan.config
    settings = settings_digest(config)
    real = run_program(config, LiveCloud(live, settings)).resources
    kept = {text for one in live.values() if one.trigger and one.kept(settings) for _, text in leaves(one.outputs)}
    planned = {_path(one.urn): one for one in plan.resources}
    before = {path: _before(planned.get(path), one) for path, one in sorted(live.items())}
    for one in real:
        path = _path(one.urn)
        if path in live:
            mine, theirs = planned[path].to_json()["inputs"], one.to_json()["inputs"]
            before[path]["inputs"] = _as_planned(mine, theirs, live[path].inputs, one.name)
    resources = [*before.values(), *(one.to_json() for one in plan.resources if one.type.startswith(_ENGINES))]
    ids = {one.urn: one.id for one in plan.resources}
    declared = [PlannedResource(**{**one, "parent": ""}, custom=True, id=ids.get(one["urn"], "")) for one in resources]
    cost = _cost(config, declared)
    for path, was in live.items():
        before[path]["kept"] = [place for place, text in leaves(was.inputs) if text in kept]
    now = plan.plain()
    same = {key: now[key] for key in ("stack", "provider", "region", "findings")}
    return {**same, "resources": resources, "cost": cost, "energy": {}, "carbon": {}}


def _before(planned: PlannedResource | None, live: LiveResource) -> dict[str, Any]:
    urn = live.path if planned is None else planned.urn
    return {"urn": urn, "type": live.type, "name": live.name, "inputs": dict(live.inputs)}


def _cost(config: StackConfig, resources: Sequence[PlannedResource]) -> dict[str, Any]:
    lines = [*get_program(config.provider).price(config, resources), *usage_lines(config, resources)]
    return estimate(lines, config.work.max_hours).to_json()


def _as_planned(planned: Any, real: Any, live: Any, name: str) -> Any:
    """The live value, written as the plan writes it where both mean the same."""
    if real == live or _is_unknown(real) or _is_unknown(live):
        return planned
    if isinstance(real, Mapping) and isinstance(live, Mapping):
        gone = {key for key in live.keys() - real.keys() if _is_removed(key, live, name)}
        below = planned if isinstance(planned, Mapping) else {}
        both = {key: _as_planned(below.get(key), real[key], live.get(key), name) for key in real}
        return {key: value for key, value in both.items() if value is not None} | {key: live[key] for key in gone}
    if isinstance(real, list) and isinstance(live, list) and isinstance(planned, list):
        if len(real) == len(live) == len(planned):
            return [_as_planned(*three, name) for three in zip(planned, real, live, strict=True)]
        return live
    return planned if real in (None, "", []) and live is None else live


def _is_removed(key: str, live: Mapping[str, Any], name: str) -> bool:
    """Whether an input that the program does not set was set by the program before, and not by the provider."""
    if key.startswith("__") or _is_unknown(live[key]):
        return False
    if _DEFAULTS in live:
        return key not in live[_DEFAULTS]
    return not (isinstance(live[key], str) and live[key].startswith(name))


def _is_unknown(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "asset" in value or "archive" in value
    return isinstance(value, str) and _UNKNOWN.search(value) is not None


def _masked(value: Any) -> Any:
    if isinstance(value, Mapping):
        marked = value.get(rpc._special_sig_key)
        if marked == rpc._special_secret_sig:
            return _SECRET
        if marked is not None:
            return {"asset": "of the state"}
        return {key: _masked(item) for key, item in value.items()}
    return [_masked(item) for item in value] if isinstance(value, list) else value


def _path(urn: str) -> str:
    return urn.split("::", 2)[2].removeprefix("pulumi:pulumi:Stack$")
