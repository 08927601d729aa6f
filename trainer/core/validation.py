"""Words pydantic's validation errors for users: place, problem, value, what is allowed and the fix."""

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from gangway.trainer.core.errors import REFUSED, RULE, TrainerError, nearest

NO_VALUE, MISSING, UNKNOWN_KEY = "has no value", "missing", "unknown key"
_NONE: Mapping[str, FieldInfo] = MappingProxyType({})
_KINDS: Mapping[str, str] = {
    **dict.fromkeys(("int_type", "int_parsing", "int_parsing_size", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    "finite_number": "a finite number",
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    "string_type": "text in quotes",
    **dict.fromkeys(("list_type", "tuple_type"), "a list"),
    **dict.fromkeys(("model_type", "dict_type"), "a JSON object"),
}
"""The values a field takes, by the type of pydantic's error."""
_WORDS = ("literal_error", "enum", "union_tag_invalid")
_LENGTH = "a text of {min_length} or more characters"
_BOUNDS = ("gt", "ge", "lt", "le")


class Mistake(NamedTuple):
    """One error of a document; `path` is such as `nodes.most`, empty for the whole document."""

    path: str
    problem: str
    value: object = None
    allowed: str = ""
    fix: str = ""

    @property
    def summary(self) -> str:
        """The problem in one line, to quote in another message."""
        if self.problem == REFUSED and self.allowed:
            return f"{self.problem}; allowed: {self.allowed}"
        return self.problem.removeprefix("is ")

    def __str__(self) -> str:
        return f"{self.path}: {self.summary}" if self.path else self.summary

    def within(self, document: str, separator: str = ": ") -> str:
        """The place of the error inside a named document."""
        return f"{document}{separator}{self.path}" if self.path else document


def from_validation(
    error: ValidationError, place: str, *, known: Mapping[str, FieldInfo] = _NONE, separator: str = ": ", fix: str = ""
) -> TrainerError:
    """`first_mistake` as a TrainerError, whose place is `place`, `separator` and the field's path."""
    found = first_mistake(error, known=known, fix=fix)
    where = found.within(place, separator)
    return TrainerError(place=where, problem=found.problem, value=found.value, allowed=found.allowed, fix=found.fix)


def first_mistake(error: ValidationError, *, known: Mapping[str, FieldInfo] = _NONE, fix: str = "") -> Mistake:
    """Pydantic's first error, or an unknown key if there is one. `known` fields are suggested for an unknown key; `fix`
    is the default for a value out of range.
    """
    details = error.errors(include_url=False)
    # A misspelt key is also reported as missing: its own name is more helpful.
    first = next((detail for detail in details if detail["type"] == "extra_forbidden"), details[0])
    kind = first["type"]
    if kind == "json_invalid":
        return _invalid_json(first)
    found = _locate(first["loc"], known)
    path = ".".join(found.path)
    if kind == "missing":
        # All missing keys of one object in one message.
        missing = [each["loc"] for each in details if each["type"] == kind]
        names = [str(loc[-1]) for loc in missing if loc[:-1] == first["loc"][:-1]]
        fix = f"add it, and what else is missing: {', '.join(names[1:])}" if len(names) > 1 else "add it"
        return Mistake(path, MISSING, fix=fix)
    if kind == "extra_forbidden":
        near = nearest(found.path[-1], found.siblings)
        fix = f"did you mean {near!r}? otherwise remove it" if near else "remove it"
        # The names of a whole configuration would fill the screen.
        allowed = ", ".join(found.siblings) if len(found.path) > 1 else ""
        return Mistake(path, UNKNOWN_KEY, first["input"], allowed, fix)
    return describe_value(first, path, found.field, fix)


def describe_value(detail: ErrorDetails, path: str, field: FieldInfo | None = None, fix: str = "") -> Mistake:
    """The mistake of a value that is present, or of a rule about several. What is allowed comes from `field` where it
    is known, else from the error alone; `fix` is a default.
    """
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == RULE:
        # pydantic has no location for a rule about several fields: its context names one.
        path = ".".join(filter(None, (path, context.get("field", ""))))
        value, fix = context.get("value", value), context.get("fix") or fix
    if kind == "value_error":
        # Our validators write "what is allowed; the fix", or only the problem.
        allowed, _, own = detail["msg"].removeprefix("Value error, ").partition("; ")
        return Mistake(path, REFUSED if own else allowed, value, allowed if own else "", own or fix or "correct it")
    if kind in _WORDS:
        if "tag" in context:  # of a union, whose key is given in quotes
            path, value = ".".join(filter(None, (path, context["discriminator"].strip("'")))), context["tag"]
        words = str(context.get("expected") or context.get("expected_tags")).replace("'", "")
        near = nearest(value, re.split(", | or ", words)) if isinstance(value, str) else ""
        fix = f"did you mean {near!r}?" if near else fix or "choose one of the allowed values"
    problem = NO_VALUE if value is None else REFUSED
    return Mistake(path, problem, value, _describe_allowed(detail, field), fix or "change it to an allowed value")


class _Location(NamedTuple):
    path: Sequence[str]
    field: FieldInfo | None
    siblings: Mapping[str, FieldInfo]


def _locate(loc: Sequence[int | str], known: Mapping[str, FieldInfo]) -> _Location:
    """Follow pydantic's location into nested models, without the model names that it adds for unions."""
    path, field, siblings, inside = list[str](), None, known, {"": known}
    for part in loc:
        if part in inside and part:
            inside = {"": inside[str(part)]}
            continue
        path.append(str(part))
        if isinstance(part, str):
            siblings = {name: each for fields in inside.values() for name, each in fields.items()}
            field = siblings.get(part)
            inside = dict(_iter_models(field.annotation)) if field else {}
    return _Location(path, field, siblings)


def _iter_models(kind: Any) -> Iterator[tuple[str, dict[str, FieldInfo]]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind.__name__, {each.alias or name: each for name, each in kind.model_fields.items()}
    for each in get_args(kind):
        yield from _iter_models(each)


def _invalid_json(detail: ErrorDetails) -> Mistake:
    content, message = detail["input"], detail["ctx"]["error"]
    text = content.decode("utf-8", "replace") if isinstance(content, bytes) else content
    what, _, where = message.rpartition(" at line ")
    line, _, column = where.partition(" column ")
    problem = "is empty" if not text.strip() else f"is not JSON: line {line}, column {column}: {what}"
    fix = "correct it, or restore it from a copy"
    return Mistake("", problem, text.split("\n")[int(line) - 1], "a JSON object", fix)


def _describe_allowed(detail: ErrorDetails, field: FieldInfo | None) -> str:
    """The accepted values in a few words."""
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == RULE:
        return str(context["allowed"])
    if field is not None and get_origin(field.annotation) is Literal:
        *most, last = map(str, get_args(field.annotation))
        return f"{', '.join(most)} or {last}" if most else last
    if kind in _WORDS:
        return str(context.get("expected") or context.get("expected_tags")).replace("'", "")
    if kind in ("too_short", "too_long"):
        return f"a list{length_text(context.get('min_length'), context.get('max_length'))}"
    if kind == "string_too_short":
        return _LENGTH.format(**context)
    violated = {name: context[name] for name in _BOUNDS if name in context}
    whole = any(isinstance(bound, int) for bound in violated.values())
    number = _KINDS.get(kind) or (("a whole number" if whole else "a number") if violated else "")
    declared = {
        name: getattr(part, name)
        for part in (field.metadata if field else ())
        for name in _BOUNDS
        if hasattr(part, name)
    }
    if number:
        return f"{number}{bounds_text(**{**declared, **violated})}"
    return detail["msg"].removeprefix("Input should be ")


def bounds_text(
    *, ge: float | None = None, gt: float | None = None, le: float | None = None, lt: float | None = None
) -> str:
    """The bounds of a number, to follow a noun.

    >>> bounds_text(ge=0, le=1), bounds_text(ge=0, lt=1), bounds_text(gt=0), bounds_text(le=9)
    (' from 0 to 1', ', at least 0 and below 1', ' above 0', ', at most 9')
    """
    if ge is not None and le is not None:
        return f" from {ge:.10g} to {le:.10g}"
    low = "" if ge is gt is None else f", at least {ge:.10g}" if gt is None else f" above {gt:.10g}"
    high = "" if le is lt is None else f"at most {le:.10g}" if lt is None else f"below {lt:.10g}"
    if low and high:
        return f"{low} and {high}"
    return low or (f", {high}" if le is not None else f" {high}" if high else "")


def length_text(low: int | None, high: int | None) -> str:
    """The number of a list's entries, to follow a noun.

    >>> length_text(1, None), length_text(2, 2), length_text(None, 3)
    (' of at least 1 entry', ' of 2 entries', ' of at most 3 entries')
    """
    if low and high:
        return f" of {low} entries" if low == high else f" of {low} to {high} entries"
    number, word = (low, "at least") if low else (high, "at most")
    return f" of {word} {number} {'entry' if number == 1 else 'entries'}" if number else ""
