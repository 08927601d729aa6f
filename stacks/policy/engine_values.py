"""What the engine sends of a resource, in the words the rules read: plain values, and UNKNOWN for what is not known.

The policy SDK raises as soon as an unknown value is touched, and would skip the whole rule for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pulumi_policy.proxy import UnknownValueError

from stacks.rules.inputs import UNKNOWN

__all__ = ["EngineResource", "plain"]


@dataclass(frozen=True)
class EngineResource:
    """A resource as the engine is about to make it; see `components.cost.Declared`. Its id is not known."""

    type: str
    name: str
    inputs: Mapping[str, Any]
    id: str = UNKNOWN


def plain(value: Any) -> Any:
    """`value`, which may be one of the SDK's guarded mappings, as plain data."""
    if isinstance(value, Mapping):
        return {key: _item(value, key) for key in value}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_item(value, position) for position in range(len(value))]
    return value


def _item(values: Any, key: Any) -> Any:
    try:
        return plain(values[key])
    except UnknownValueError:
        return UNKNOWN
