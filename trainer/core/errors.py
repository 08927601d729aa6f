"""User errors in one layout, and exit codes."""

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

EXIT_FAILED = 1
"""A bug or a machine failure (the worker printed a traceback), or the run's directory is in use: a retry may work."""
EXIT_BAD_INPUT = 2
"""A user error: a retry without a change fails again."""
EXIT_UNHEALTHY = 3
"""The machines failed their acceptance test and the job did not start; other machines may pass."""
EXIT_UNFIT = 4
"""This node fails repeatedly or lacks what the others have; they continue, and it should be replaced."""
EXIT_ENDED_FOR_ALL = 5
"""Too many failures: too few healthy nodes remain."""
EXIT_HOURS_OVER = 6
"""The job's hours are used up; its state was saved where possible."""
EXIT_INTERRUPTED = 75
"""EX_TEMPFAIL of sysexits.h: the run was interrupted, its state is saved, start the same command again."""
EXIT_PEERS_LOST = 76
"""Of workers only: it failed because its peers were lost. Its launcher meets the other nodes again."""
COLLECTIVE_SEC = 600.0
"""How long a worker waits in a collective before it considers its peers lost."""
EXIT_CODES: Mapping[int, str] = {
    0: "done: the job has ended",
    EXIT_FAILED: "failed here, and counted: check the node's health, then start again",
    EXIT_BAD_INPUT: "bad input on every node: the job has ended",
    EXIT_UNHEALTHY: "the fabric is below the demanded bandwidth: the job has ended",
    EXIT_UNFIT: "this node is unfit for the job, which continues: replace it",
    EXIT_ENDED_FOR_ALL: "ended for all after too many failures",
    EXIT_HOURS_OVER: "the job's hours are over: it has ended",
    EXIT_INTERRUPTED: "interrupted, saved: start again",
}
"""A launcher's exit codes. Any other code is 128 plus a signal's number and means the same as 1."""


SIMILAR = 0.6
"""Least similarity of a suggested word, as in `gangway.components.core.findings`."""
_SHOWN = 200
_RULE = "rule"
_REFUSED = "not an accepted value"
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
_LENGTHS: Mapping[str, str] = {
    "too_short": "a list of {min_length} or more",
    "too_long": "a list of {max_length}",
    "string_too_short": "a text of {min_length} or more characters",
}
"""The allowed lengths, by the type of pydantic's error."""
_BOUNDS: Mapping[str, str] = {"gt": "above {}", "ge": "from {} on", "lt": "below {}", "le": "up to {}"}
"""The text of a bound, by its name in pydantic."""


def _value_text(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else repr(value)  # booleans as in JSON
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"


def visible(text: str) -> str:
    """Escape unprintable characters, such as terminal escape sequences read from a file."""
    escaped = (
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode() for each in text
    )
    return text if text.isprintable() else "".join(escaped)


class TrainerError(Exception):
    """An error in the user's input or on the user's machine. Commands exit with code 2. `place` is the file, flag or
    config path of the value: `TrainConfig.<field>` where only the command line knows whether a flag or a file gave it,
    and replaces it. `value` None: nothing to show; `fix` is the step that fixes it.
    """

    exit_code = EXIT_BAD_INPUT

    def __init__(self, *, place: str, problem: str, value: object = None, allowed: str = "", fix: str = "") -> None:
        self.place, self.problem, self.value, self.allowed, self.fix = place, problem, value, allowed, fix
        rows = [("got", None if value is None else _value_text(value)), ("allowed", allowed), ("fix", fix)]
        details = [f"  {label + ':':<9}{text}" for label, text in rows if text]
        super().__init__(visible("\n".join([self.headline, *details])))

    @property
    def headline(self) -> str:
        """Place and problem in one line, to quote in another message."""
        return f"{self.place}: {self.problem}"

    def fields(self) -> dict[str, Any]:
        """The constructor's arguments as plain data, to raise one rank's error on every rank."""
        value = self.value if self.value is None or isinstance(self.value, int | float | str) else str(self.value)
        own = {"place": self.place, "problem": self.problem, "allowed": self.allowed, "fix": self.fix}
        return {**own, "value": value}

    def at(self, place: str) -> Self:
        """The same error at a place that the user knows."""
        return type(self)(**{**self.fields(), "place": place})


class LoneError(TrainerError):
    """An error of one worker in the middle of a step, unknown to the others that wait for it."""


class UnhealthyError(TrainerError):
    """The machines, not the input, keep the job from starting. Commands exit with code 3."""

    exit_code = EXIT_UNHEALTHY


class InUseError(TrainerError):
    """Another session uses the run. Commands exit with code 1: it may be free later."""

    exit_code = EXIT_FAILED


class WorkerFailedError(Exception):
    """Raised on the healthy workers when worker `rank` failed with anything but a TrainerError."""

    exit_code = EXIT_PEERS_LOST

    def __init__(self, rank: int, what: str) -> None:
        super().__init__(f"worker {rank} failed, so all stop: {what} (the traceback is in that worker's output)")


def diverged(place: str, value: str) -> TrainerError:
    """The error of a run with values that are no longer finite."""
    return TrainerError(
        place=place,
        problem="is no longer a finite number; training cannot recover from that",
        value=value,
        allowed="finite numbers",
        fix="start a new run in another --run-dir with smaller --lr-g and --lr-d, or a heavier penalty: "
        "--gp-weight with the wgan-gp loss, --r1-gamma with any other; what follows a schedule by other --schedules",
    )


def parse_number(
    text: str, is_allowed: Callable[[float], bool], *, place: str, problem: str, allowed: str, fix: str
) -> float:
    """Parse a flag's value (TrainerError: not a number, or not an allowed one)."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not is_allowed(value):
        raise TrainerError(place=place, problem=problem, value=text, allowed=allowed, fix=fix)
    return value


def nearest(word: str, known: Iterable[str]) -> str:
    """The most similar known word, ignoring case; empty below a similarity of `SIMILAR`."""
    by_lower = {each.lower(): each for each in known}
    return next((by_lower[each] for each in difflib.get_close_matches(word.lower(), by_lower, 1, SIMILAR)), "")


def broken_rule(allowed: str, *, value: object = None, field: str = "", fix: str = "") -> PydanticCustomError:
    """The error of a validator for `from_validation`; `value` None: the whole input, `field`: for a rule on several."""
    given = {"value": value, "field": field, "fix": fix}
    context = {"allowed": allowed, **{name: each for name, each in given.items() if each not in (None, "")}}
    return PydanticCustomError(_RULE, "{allowed}", context)


def from_rule(error: PydanticCustomError, place: str, *, value: object, fix: str) -> TrainerError:
    """A `broken_rule` as a TrainerError outside of a pydantic model; `value` and `fix` are defaults."""
    details = {"value": value, "fix": fix, **(error.context or {})}
    return TrainerError(
        place=place, problem=_REFUSED, value=details["value"], allowed=details["allowed"], fix=details["fix"]
    )


def from_validation(
    error: ValidationError, place: str, *, known: Mapping[str, FieldInfo] = _NONE, separator: str = ": ", fix: str = ""
) -> TrainerError:
    """Convert pydantic's first error, or an unknown field if there is one, to a TrainerError. The place is `place`,
    `separator` and the field's path. `known` fields are suggested for an unknown one; `fix` is the default for a value
    out of range.
    """
    findings = error.errors()
    # A misspelt field is also reported as missing: its own name is more helpful.
    first = next((finding for finding in findings if finding["type"] == "extra_forbidden"), findings[0])
    kind, value = first["type"], first["input"]
    if kind == "json_invalid":
        return _invalid_json(first, place)
    # pydantic has no location for a rule about several fields: its context names one.
    context = first.get("ctx", {}) if kind == _RULE else {}
    found = _locate(first["loc"], known)
    path = ".".join([*found.path, *filter(None, [context.get("field")])])
    where = f"{place}{separator}{path}" if path else place
    if kind == "missing":
        # All missing fields of one object in one message.
        missing = [each["loc"] for each in findings if each["type"] == kind]
        names = [str(loc[-1]) for loc in missing if loc[:-1] == first["loc"][:-1]]
        fix = f"add it, and what else is missing: {', '.join(names[1:])}" if len(names) > 1 else "add it"
        return TrainerError(place=where, problem="is missing", fix=fix)
    if kind == "extra_forbidden":
        near = nearest(found.path[-1], found.siblings)
        fix = f"did you mean {near!r}? otherwise remove it" if near else "remove it"
        # The names of a whole configuration would fill the screen.
        allowed = ", ".join(found.siblings) if len(found.path) > 1 else ""
        return TrainerError(place=where, problem="unknown field", value=value, allowed=allowed, fix=fix)
    expected = first["ctx"]["expected"] if kind == "literal_error" else ""
    likely = nearest(value, re.findall(r"'([^']*)'", expected)) if isinstance(value, str) else ""
    return TrainerError(
        place=where,
        problem="is null" if value is None else _REFUSED,
        value=context.get("value", value),
        allowed=_describe_allowed(first, found.field),
        fix=context.get("fix") or (f"did you mean {likely!r}?" if likely else fix or "change it to an allowed value"),
    )


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


def _invalid_json(finding: ErrorDetails, place: str) -> TrainerError:
    content, message = finding["input"], finding["ctx"]["error"]
    text = content.decode("utf-8", "replace") if isinstance(content, bytes) else content
    what, _, where = message.rpartition(" at line ")
    line, _, column = where.partition(" column ")
    return TrainerError(
        place=place,
        problem="is empty" if not text.strip() else f"is not JSON: line {line}, column {column}: {what}",
        value=text.split("\n")[int(line) - 1],
        allowed="a JSON object",
        fix="correct it, or restore it from a copy",
    )


def _describe_allowed(finding: ErrorDetails, field: FieldInfo | None) -> str:
    """The accepted values in a few words: from `field` where it is known, else from the error alone."""
    context = finding.get("ctx", {})
    if finding["type"] == _RULE:
        return str(context["allowed"])
    if field is not None and get_origin(field.annotation) is Literal:
        *most, last = map(str, get_args(field.annotation))
        return f"{', '.join(most)} or {last}" if most else last
    if finding["type"] == "literal_error":
        return str(context["expected"]).replace("'", "")
    if finding["type"] in _LENGTHS:
        return _LENGTHS[finding["type"]].format(**context)
    violated = {name: context[name] for name in _BOUNDS if name in context}
    whole = any(isinstance(bound, int) for bound in violated.values())
    kind = _KINDS.get(finding["type"]) or (("a whole number" if whole else "a number") if violated else "")
    declared = {
        name: getattr(part, name)
        for part in (field.metadata if field else ())
        for name in _BOUNDS
        if hasattr(part, name)
    }
    bounds = [
        _BOUNDS[name].format(bound if isinstance(bound, int) else f"{bound:g}")
        for name, bound in {**declared, **violated}.items()
    ]
    if kind:
        return " ".join([kind, " and ".join(bounds)]).strip()
    return finding["msg"].removeprefix("Value error, ").removeprefix("Input should be ")


# A flag with its value, which is no word of the surrounding sentence.
_FLAG = re.compile(r"--([a-z][a-z0-9-]*)(?: (?!that\b|and\b|or\b|--)([\w.][\w.-]*))?")
_NEIGHBOURS = re.compile(r"(\b\w+: [\w.-]+) (?=\w+: )")


def as_keys(text: str) -> str:
    """Replace flags by fields.

    >>> as_keys("--r1-gamma 0, or --loss wgan-gp; a --batch-gpu that divides --batch-size")
    'r1_gamma: 0, or loss: wgan-gp; a batch_gpu that divides batch_size'
    """

    def field(found: re.Match[str]) -> str:
        name, value = found[1].replace("-", "_"), found[2]
        return name if value is None else f"{name}: {value}"

    return _NEIGHBOURS.sub(r"\1, ", _FLAG.sub(field, text))
