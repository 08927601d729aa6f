"""Parts of a configuration that belong to one word of a field, such as an architecture, as annotated classes.

A part lists its own fields, which keep their default with other words, and fields with narrower limits. The rules
(gangway.trainer.config.parts.rules) and the schema for editors (gangway.trainer.config.editor_schema) are made from
parts.
"""

import operator
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from gangway.trainer.config.parts.fields import ConfigFields

_COMPARISONS = MappingProxyType({"gt": operator.gt, "ge": operator.ge, "lt": operator.lt, "le": operator.le})
"""Comparisons of bounds, by name."""


class Part:
    """The base of all parts, which are never instantiated: a configuration stays flat."""


class Narrower(NamedTuple):
    """A field's narrower limits with a part: the allowed values, and a fix for others."""

    allowed: str
    fix: str


class Own(NamedTuple):
    """A field of one part: `why` it keeps its default with others, if that needs a reason."""

    why: str = ""


class PartField(NamedTuple):
    """A field with one part: its type there, and the message for other values, None without narrower limits."""

    type: Any
    narrower: Narrower | None

    def takes(self, value: Any) -> bool:
        """Whether a generally valid value is valid here."""
        kind, *about = get_args(self.type) if get_origin(self.type) is Annotated else (self.type,)
        if get_origin(kind) is Literal:
            return value in get_args(kind)
        bounds = (bound for each in about for bound in each.metadata)
        return all(
            compare(value, getattr(bound, name))
            for bound in bounds
            for name, compare in _COMPARISONS.items()
            if hasattr(bound, name)
        )


class Choice:
    """One discriminated union: `by` is the deciding field, `parts` are by its words, `fields` by word: the part's
    fields, and those of other parts with the one value they may have.
    """

    def __init__(self, by: str, *parts: type[Part]) -> None:
        hints = {part: get_type_hints(part, include_extras=True) for part in parts}
        self.by = by
        self.parts: Mapping[str, type[Part]] = MappingProxyType(
            {word: part for part in parts for word in get_args(hints[part].pop(by))}
        )
        owners: dict[str, dict[str, Own]] = {}
        listed: dict[str, dict[str, PartField]] = {}
        for word, part in self.parts.items():
            listed[word] = {name: _get_field(hint) for name, hint in hints[part].items()}
            for name, hint in hints[part].items():
                for own in _annotations(hint, Own):
                    owners.setdefault(name, {})[word] = own
        foreign = {name: self._foreign_field(name, own) for name, own in owners.items()}
        self.fields: Mapping[str, Mapping[str, PartField]] = MappingProxyType(
            {
                word: {**fields, **{name: each for name, each in foreign.items() if word not in owners[name]}}
                for word, fields in listed.items()
            }
        )

    def _foreign_field(self, field: str, owners: Mapping[str, Own]) -> PartField:
        default = ConfigFields.model_fields[field].default
        value = int(default) if isinstance(default, float) and default.is_integer() else default
        first, why = next((word, own.why) for word, own in owners.items())
        allowed = f"{value} unless the {self.by} is {' or '.join(owners)}{': ' if why else ''}{why}"
        fix = f"--{field.replace('_', '-')} {value}, or --{self.by} {first}"
        return PartField(Literal[value], Narrower(allowed, fix))


def _annotations(hint: Any, kind: type[Narrower] | type[Own]) -> Iterator[Any]:
    return (each for each in get_args(hint) if isinstance(each, kind))


def _get_field(hint: Any) -> PartField:
    kind, *about = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    bounds = [each for each in about if not isinstance(each, Narrower | Own)]
    for each in bounds:
        kind = Annotated[kind, each]
    return PartField(kind, next(_annotations(hint, Narrower), None))
