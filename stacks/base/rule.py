"""Rules: code, severity, requirement and a pure check; and how checks read a resource's inputs."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from gangway.components.core.fields import PositiveNumber
from gangway.components.core.findings import Finding, Severity
from gangway.components.estimate.cost import Declared

UNKNOWN = "${unknown}"
_TYPE = re.compile(r"([a-z-]+)[^:]*:([^:/]+)[^:]*:(.+)")
_NAMED = 3
"""Breaches that one finding lists."""


def kind(type_token: str) -> str:
    """Package, module and class of a type token, without the rest: Azure's packages write API versions into it.

    >>> kind("aws:ec2/launchTemplate:LaunchTemplate"), kind("azure-native:compute/v20240701:VirtualMachine")
    ('aws:ec2:LaunchTemplate', 'azure-native:compute:VirtualMachine')
    """
    match = _TYPE.fullmatch(type_token)
    return ":".join(match.groups()) if match else type_token


def label(resource: Declared) -> str:
    """Name and kind of a resource, for messages."""
    return f"{resource.name} ({kind(resource.type)})"


def is_unknown(value: Any) -> bool:
    """Whether the value is only known to the cloud."""
    return isinstance(value, str) and value.startswith("${")


def may_be(value: Any, wanted: str | bool) -> bool:
    """Whether `value` is, or may turn out to be, `wanted`. Some providers write booleans as words.

    >>> may_be("true", True), may_be(None, True), may_be("${unknown}", "required")
    (True, False, True)
    """
    return is_unknown(value) or value == wanted or (value == "true" and wanted is True)


def items(value: Any) -> list[Mapping[str, Any]]:
    """The mappings in a list, or a single mapping as a list; empty for unknown and missing values."""
    several = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    return [one for one in several if isinstance(one, Mapping)]


def get_path(inputs: Any, *path: str) -> Any:
    """The value at `path`, or None; values below an unknown one are unknown.

    >>> get_path({"a": {"b": 1}}, "a", "b"), get_path({"a": "${x}"}, "a", "b"), get_path({}, "a", "b")
    (1, '${x}', None)
    """
    for name in path:
        if is_unknown(inputs):
            break
        inputs = inputs.get(name) if isinstance(inputs, Mapping) else None
    return inputs


class Limits(BaseModel):
    """Limits that an organisation can change; the plan uses the defaults.

    Attributes:
        required_tags: keys that every taggable resource must have.
        max_g_per_kwh: most gCO2e per kWh of a region's grid, location-based; 450 excludes regions that run mostly on
            coal (our assumption, not a standard).
        allowed_regions: regions that are allowed with any grid.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    required_tags: tuple[str, ...] = Field(default=("team", "cost_center"), min_length=1)
    max_g_per_kwh: PositiveNumber = 450
    allowed_regions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule:
    """Common fields of rules. An error forbids `up`; `holds` is the requirement as a sentence; `path` decides it."""

    code: str
    severity: Severity
    holds: str
    path: str
    fix: str

    def finding(self, breaches: Sequence[str]) -> Finding:
        """One finding for all breaches, with the first few listed."""
        more = f"; and {len(breaches) - _NAMED} more" if len(breaches) > _NAMED else ""
        return Finding(self.severity, self.code, self.path, "; ".join(breaches[:_NAMED]) + more, self.fix)


@dataclass(frozen=True)
class ResourceRule(Rule):
    """A rule about single resources. `limits`: the fields of `Limits` that it reads."""

    check: Callable[[Declared, Limits], Iterable[str]]
    limits: tuple[str, ...] = ()


@dataclass(frozen=True)
class StackRule(Rule):
    """A rule about all resources of a stack. `check`: the breaches, each a sentence."""

    check: Callable[[Sequence[Declared]], Iterable[str]]
