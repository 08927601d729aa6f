"""What a rule is: a code, how grave a breach is, what must hold, and a pure function that says where it does not;
and how rules read a resource's inputs.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from components.core.fields import PositiveNumber
from components.core.findings import Finding, Severity
from components.estimate.cost import Declared

UNKNOWN = "${unknown}"
_TYPE = re.compile(r"([a-z-]+)[^:]*:([^:/]+)[^:]*:(.+)")
_NAMED = 3
"""Resources that one finding names one by one."""


def kind(type_token: str) -> str:
    """Package, module and class of a type token, without the rest: Azure's packages write API versions into it.

    >>> kind("aws:ec2/launchTemplate:LaunchTemplate"), kind("azure-native:compute/v20240701:VirtualMachine")
    ('aws:ec2:LaunchTemplate', 'azure-native:compute:VirtualMachine')
    """
    match = _TYPE.fullmatch(type_token)
    return ":".join(match.groups()) if match else type_token


def named(resource: Declared) -> str:
    """A resource as a breach names it."""
    return f"{resource.name} ({kind(resource.type)})"


def is_unknown(value: Any) -> bool:
    """Whether only the cloud can tell."""
    return isinstance(value, str) and value.startswith("${")


def says(value: Any, wanted: str | bool) -> bool:
    """Whether `value` is `wanted`, or may turn out to be. Some providers write booleans in words.

    >>> says("true", True), says(None, True), says("${unknown}", "required")
    (True, False, True)
    """
    return is_unknown(value) or value == wanted or (value == "true" and wanted is True)


def items(value: Any) -> list[Mapping[str, Any]]:
    """The mappings of a list; of one mapping alone, itself; none of what is not known or not there."""
    several = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    return [one for one in several if isinstance(one, Mapping)]


def below(inputs: Any, *path: str) -> Any:
    """The value at `path`, None where there is none; what lies below something unknown is unknown itself.

    >>> below({"a": {"b": 1}}, "a", "b"), below({"a": "${x}"}, "a", "b"), below({}, "a", "b")
    (1, '${x}', None)
    """
    for name in path:
        if is_unknown(inputs):
            break
        inputs = inputs.get(name) if isinstance(inputs, Mapping) else None
    return inputs


class Limits(BaseModel):
    """What an organisation may set differently; the plan takes the defaults.

    Attributes:
        required_tags: keys that every taggable resource carries.
        max_g_per_kwh: gCO2e per kWh of the grid, location-based, that a region may have; 450 leaves out the regions
            that run on coal for the most part (assumed: nobody's standard).
        allowed_regions: regions that are allowed whatever their grid.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    required_tags: tuple[str, ...] = Field(default=("team", "cost_center"), min_length=1)
    max_g_per_kwh: PositiveNumber = 450
    allowed_regions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule:
    """What every rule has. `code`: stable identifier, as a finding has it; `severity`: of a breach; an error forbids
    `up`; `holds`: what must hold, in one sentence; `path`: the setting of a stack file that decides it; `fix`: what
    mends a breach.
    """

    code: str
    severity: Severity
    holds: str
    path: str
    fix: str

    def finding(self, breaches: Sequence[str]) -> Finding:
        """One finding of all breaches, of which it names the first few."""
        more = f"; and {len(breaches) - _NAMED} more" if len(breaches) > _NAMED else ""
        return Finding(self.severity, self.code, self.path, "; ".join(breaches[:_NAMED]) + more, self.fix)


@dataclass(frozen=True)
class ResourceRule(Rule):
    """A rule that one resource keeps or breaks by itself. `check`: the breaches of one resource, each a sentence that
    names it; `limits`: the fields of `Limits` that it reads.
    """

    check: Callable[[Declared, Limits], Iterable[str]]
    limits: tuple[str, ...] = ()


@dataclass(frozen=True)
class StackRule(Rule):
    """A rule about all resources of a stack together. `check`: the breaches of the whole, each a sentence."""

    check: Callable[[Sequence[Declared]], Iterable[str]]
