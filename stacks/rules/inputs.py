"""Reading what a resource declares, as a plan records it and as the engine sends it. Pure.

Both leave values open that only the cloud can give: a plan writes `${Type.name.id}`, the pack writes UNKNOWN for the
engine's unknowns. What is not known yet breaks no rule: the engine asks again when it is, before it makes the resource.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from components.cost import Declared

__all__ = ["UNKNOWN", "below", "is_unknown", "items", "kind", "named", "says"]

UNKNOWN = "${unknown}"
_TYPE = re.compile(r"([a-z-]+)[^:]*:([^:/]+)[^:]*:(.+)")


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
