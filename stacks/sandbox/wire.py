"""A declared resource as it comes over Pulumi's wire, and its translation into a request of the AWS API.

The translation is guided by botocore's own model of each request: member names are matched without regard to case,
numbers and booleans take the type the API wants, dictionaries become lists of Key/Value where the API has those. What
fits nothing stays as it is, so that botocore refuses it by name instead of the sandbox dropping it.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from components.findings import nearest

if TYPE_CHECKING:
    from botocore.model import Shape

__all__ = ["Wire", "enum_errors", "shaped"]


class Wire:
    """One declared resource. Remembers which inputs were taken, so that none is forgotten without a word."""

    def __init__(self, type_token: str, name: str, inputs: Mapping[str, Any]) -> None:
        self.type, self.name = type_token, name
        self.inputs = {key: value for key, value in inputs.items() if value is not None}
        self._taken: set[str] = set()

    def take(self, *keys: str) -> dict[str, Any]:
        """Those of the inputs `keys` that are declared."""
        self._taken.update(keys)
        return {key: self.inputs[key] for key in keys if key in self.inputs}

    def skip(self, *keys: str) -> None:
        """Inputs that steer Pulumi's provider (waiting, deleting) and are part of no request."""
        self._taken.update(keys)

    def rest(self) -> dict[str, Any]:
        """All inputs not yet taken, but for the tags, which every service spells in its own way."""
        return self.take(*[key for key in self.inputs if key not in {*self._taken, "tags"}])

    def physical_name(self, key: str = "name") -> str:
        """The declared name, or one as Pulumi makes it: the logical name and seven characters, here stable ones."""
        declared: str | None = self.take(key).get(key)
        suffix = hashlib.sha256(f"{self.type}::{self.name}".encode()).hexdigest()[:7]
        return declared or f"{self.name}-{suffix}"

    def tags(self, member: str = "Tags") -> dict[str, list[dict[str, str]]]:
        """The tags as a request's `member`: a list of Key and Value. Empty without tags: APIs refuse an empty list."""
        tags = self.take("tags").get("tags", {})
        return {member: [{"Key": key, "Value": value} for key, value in tags.items()]} if tags else {}

    def unsent(self) -> list[str]:
        """Inputs that nothing has taken."""
        return sorted(self.inputs.keys() - self._taken)

    def outputs(self, **computed: Any) -> dict[str, Any]:
        """The inputs and what the cloud computed."""
        return {**self.inputs, **computed}


def shaped(value: Any, shape: "Shape", renames: Mapping[str, str]) -> Any:
    """`value` (camelCase, Pulumi's types) as `shape` wants it; `renames` maps wire names that differ from the API's."""
    model: Any = shape  # botocore's stubs do not tell the kinds of shapes apart
    if shape.type_name == "structure" and isinstance(value, Mapping):
        return _structure(value, model, renames)
    if shape.type_name == "map" and isinstance(value, Mapping):
        return {key: shaped(item, model.value, renames) for key, item in value.items()}
    if shape.type_name == "list":
        return [shaped(item, model.member, renames) for item in _items(value, model.member)]
    if shape.type_name == "boolean" and value in ("true", "false"):
        return value == "true"
    if shape.type_name in ("integer", "long", "float", "double"):
        return _number(value, shape.type_name in ("integer", "long"))
    return value


def _structure(value: Mapping[str, Any], model: Any, renames: Mapping[str, str]) -> dict[str, Any]:
    members = {member.lower(): member for member in model.members}
    request = {}
    for key, item in value.items():
        wanted = renames.get(key, key)
        member = members.get(wanted.lower(), wanted)
        request[member] = shaped(item, model.members[member], renames) if member in model.members else item
    return request


def _items(value: Any, member: Any) -> list[Any]:
    """A list from what Pulumi writes as a list, as a dictionary (tags, dimensions) or as its only element."""
    if isinstance(value, list):
        return value
    names = set(getattr(member, "members", ()))
    if isinstance(value, Mapping) and "Value" in names:
        label = "key" if "Key" in names else "name"
        return [{label: key, "value": item} for key, item in value.items()]
    return [value]


def _number(value: Any, whole: bool) -> Any:
    """Pulumi sends every number as a float, and some as text."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return value
    return int(number) if whole and number.is_integer() else number


def enum_errors(value: Any, shape: "Shape", path: str = "") -> Iterator[str]:
    """Words that the API's model does not know. Botocore itself leaves those to the service."""
    model: Any = shape
    if shape.type_name == "structure":
        for key in value.keys() & model.members.keys():
            yield from enum_errors(value[key], model.members[key], f"{path}.{key}" if path else key)
    elif shape.type_name == "list":
        for index, item in enumerate(value):
            yield from enum_errors(item, model.member, f"{path}[{index}]")
    elif shape.type_name == "string" and model.enum and value not in model.enum:
        close = nearest(value, model.enum)
        hint = f"did you mean {close!r}?" if close else f"one of {', '.join(model.enum[:8])}"
        yield f"{path}: {value!r} is not a value botocore's model knows; {hint}"
