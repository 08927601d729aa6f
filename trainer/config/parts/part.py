"""Parts of a configuration that go with one word of a field, such as one architecture, as classes with annotations.

A part lists the fields that are its own, which keep their default with any other word, and fields that take less with
it than in general. Rules are made of that (trainer.config.parts.rules), and the discriminated union of models that the
schema for editors comes from (trainer.config.editor_schema).
"""

import operator
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from trainer.config.parts.fields import ConfigFields

_COMPARED = MappingProxyType({"gt": operator.gt, "ge": operator.ge, "lt": operator.lt, "le": operator.le})
"""Bounds of annotated types, by name."""


class Part:
    """The base of all parts. None is ever made: a configuration stays flat, and plans would pay for models."""


class Narrower(NamedTuple):
    """Of a field that takes less with a part than in general: what is allowed, and what mends another value."""

    allowed: str
    fix: str


class Own(NamedTuple):
    """Of a field that is a part's own: why it keeps its default with any other, where that has to be said."""

    why: str = ""


class PartField(NamedTuple):
    """A field with one part.

    Attributes:
        type: that it has there, with its bounds.
        narrower: what is said of other values; None where it takes all that it does in general.
    """

    type: Any
    narrower: Narrower | None

    def takes(self, value: Any) -> bool:
        """Whether a value that fits the field in general fits it here too."""
        kind, *about = get_args(self.type) if get_origin(self.type) is Annotated else (self.type,)
        if get_origin(kind) is Literal:
            return value in get_args(kind)
        bounds = (bound for each in about for bound in each.metadata)
        return all(
            compare(value, getattr(bound, name))
            for bound in bounds
            for name, compare in _COMPARED.items()
            if hasattr(bound, name)
        )


class Choice:
    """One discriminated union: `by` is the field that decides, `parts` are by its words, `fields` what goes with each
    word: the part's fields, and those that are others' own with the one value that is left of them.
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
            listed[word] = {name: _without_words(hint) for name, hint in hints[part].items()}
            for name, hint in hints[part].items():
                for own in _words(hint, Own):
                    owners.setdefault(name, {})[word] = own
        elsewhere = {name: self._elsewhere(name, own) for name, own in owners.items()}
        self.fields: Mapping[str, Mapping[str, PartField]] = MappingProxyType(
            {
                word: {**fields, **{name: each for name, each in elsewhere.items() if word not in owners[name]}}
                for word, fields in listed.items()
            }
        )

    def _elsewhere(self, field: str, owners: Mapping[str, Own]) -> PartField:
        """A field with words whose own it is not."""
        default = ConfigFields.model_fields[field].default
        value = int(default) if isinstance(default, float) and default.is_integer() else default
        first, why = next((word, own.why) for word, own in owners.items())
        allowed = f"{value} unless the {self.by} is {' or '.join(owners)}{': ' if why else ''}{why}"
        fix = f"--{field.replace('_', '-')} {value}, or --{self.by} {first}"
        return PartField(Literal[value], Narrower(allowed, fix))


def _words(hint: Any, kind: type[Narrower] | type[Own]) -> Iterator[Any]:
    return (each for each in get_args(hint) if isinstance(each, kind))


def _without_words(hint: Any) -> PartField:
    """Of an annotation: the type, and what is said of it."""
    kind, *about = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    bounds = [each for each in about if not isinstance(each, Narrower | Own)]
    for each in bounds:
        kind = Annotated[kind, each]
    return PartField(kind, next(_words(hint, Narrower), None))
