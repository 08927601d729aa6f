"""Whether a changed input replaces a resource.

The tables come from the providers' schemas (written by `tools/replacing_inputs.py`) and the handwritten
`conditions.yaml`. Types are written `package:module:Class`, inputs as paths without indices.

>>> table = load()
>>> table.replaces("aws:fsx:LustreFileSystem", Changed("storageCapacity", 19200, 9600), {})
'cannot shrink'
>>> table.replaces("aws:fsx:LustreFileSystem", Changed("storageCapacity", 9600, 19200), {})
''
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import Field, model_validator

from gangway.components.catalog.schema import Frozen

FOLDER = Path(__file__).parent
IMMUTABLE_INPUT = "cannot be changed"
_WORDS = {"shrinks": "cannot shrink", "outside": "leaves the old range", "removed": "cannot be removed"}


class Generated(Frozen):
    """A file of `tools/replacing_inputs.py`."""

    sources: tuple[str, ...] = Field(min_length=1)
    types: Mapping[str, tuple[str, ...]]


class Condition(Frozen):
    """One entry of conditions.yaml."""

    type: str
    inputs: tuple[str, ...] = ()
    excepted: tuple[str, ...] = Field(default=(), alias="except")
    when: str = Field(min_length=1)
    source: str = Field(min_length=1)

    @model_validator(mode="after")
    def _one_list(self) -> Self:
        if self.inputs and self.excepted:
            raise ValueError("inputs or except, not both")
        return self

    def covers(self, path: str) -> bool:
        """Whether the condition is about this input."""
        if self.excepted:
            return path.partition(".")[0] not in self.excepted
        return any(path == one.removesuffix("#") or path.startswith(f"{one}.") for one in self.inputs)


class Conditions(Frozen):
    """The content of conditions.yaml."""

    read: date
    conditions: tuple[Condition, ...]


@dataclass(frozen=True)
class Changed:
    """A changed input. `path`: camelCase, without indices; `before` and `now`: its values, None if absent."""

    path: str
    before: Any
    now: Any


@dataclass(frozen=True)
class ReplacingTable:
    """All tables. `paths`: by type, the inputs that replace; trailing `#`: only adding or removing the block does."""

    paths: Mapping[str, Sequence[str]]
    conditions: Mapping[str, Sequence[Condition]]

    def knows(self, kind: str) -> bool:
        """Whether a table has the type."""
        return kind in self.paths or kind in self.conditions or _module(kind) in self.conditions

    def replaces(self, kind: str, changed: Changed, inputs: Mapping[str, Any], also: Sequence[str] = ()) -> str:
        """Why the change replaces the resource; empty for an update. `also`: paths in `replace_on_changes`."""
        for one in (*self.conditions.get(kind, ()), *self.conditions.get(_module(kind), ())):
            if one.covers(changed.path):
                return _reason(one.when, changed, inputs)
        found = any(_matches(path, changed) for path in (*self.paths.get(kind, ()), *also))
        return IMMUTABLE_INPUT if found else ""


def _module(kind: str) -> str:
    return f"{kind.partition(':')[0]}:*"


def _reason(when: str, changed: Changed, inputs: Mapping[str, Any]) -> str:
    before, now = changed.before, changed.now
    match when:
        case "always":
            return IMMUTABLE_INPUT
        case "shrinks":
            return "" if _grows(before, now) else _WORDS[when]
        case "removed":
            return "" if now else _WORDS[when]
        case "outside":
            grows = isinstance(before, str) and isinstance(now, str) and _contains(now, before)
            return "" if grows else _WORDS[when]
        case _:
            return IMMUTABLE_INPUT if inputs.get(when) is True else ""


def _grows(before: Any, now: Any) -> bool:
    if isinstance(before, str) and isinstance(now, str):
        old, new = (re.findall(r"\d+", text) for text in (before, now))
        return bool(old and new) and [*map(int, new)] >= [*map(int, old)]
    return isinstance(before, int | float) and isinstance(now, int | float) and now >= before


def _contains(outer: str, inner: str) -> bool:
    try:
        return IPv4Network(inner).subnet_of(IPv4Network(outer))
    except ValueError:
        return False


def _matches(path: str, changed: Changed) -> bool:
    if path.endswith("#"):
        return changed.path == path[:-1]
    path = re.sub(r"\[[^]]*\]", "", path)
    if changed.path == path or changed.path.startswith(f"{path}."):
        return True
    # A block that is added or removed with the input in it.
    below = path.removeprefix(f"{changed.path}.")
    return below != path and any(_has(value, below.rstrip("#").split(".")) for value in (changed.before, changed.now))


def _has(value: Any, path: Sequence[str]) -> bool:
    if isinstance(value, list):
        return any(_has(one, path) for one in value)
    if not path:
        return value is not None
    return isinstance(value, Mapping) and _has(value.get(path[0]), path[1:])


@cache
def load() -> ReplacingTable:
    """The bundled tables."""
    paths: dict[str, tuple[str, ...]] = {}
    for file in sorted(FOLDER.glob("*.yaml")):
        if file.name != "conditions.yaml":
            paths |= Generated.model_validate(yaml.safe_load(file.read_text("utf-8"))).types
    conditions: dict[str, list[Condition]] = {}
    text = (FOLDER / "conditions.yaml").read_text("utf-8")
    for one in Conditions.model_validate(yaml.safe_load(text)).conditions:
        conditions.setdefault(one.type, []).append(one)
    return ReplacingTable(paths, conditions)
