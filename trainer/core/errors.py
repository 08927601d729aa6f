"""What the trainer says about a user's mistake: one exception, one layout, and what its exit codes mean."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

EXIT_FAILED = 1
"""Our own bug or a machine's failure: a traceback was printed, by the worker it happened on. Or the run's directory is
in use: the next try may find it free."""
EXIT_BAD_INPUT = 2
"""A user's mistake: trying again without a change is in vain."""
EXIT_UNHEALTHY = 3
"""The machines did not pass their acceptance test: the job did not start, and other machines may do."""
EXIT_UNFIT = 4
"""This node fails again and again, or cannot do what the others can, and they go on: another is wanted in its place."""
EXIT_ENDED_FOR_ALL = 5
"""Too many failures, and too few nodes are left that have not failed for good."""
EXIT_HOURS_OVER = 6
"""The job's hours are used up; what it had done is saved where that was possible."""
EXIT_INTERRUPTED = 75
"""EX_TEMPFAIL of sysexits.h: the run was interrupted, its state is saved, start the same command again."""
EXIT_PEERS_LOST = 76
"""A worker's alone: it failed because others had gone. Its launcher meets the others again."""
COLLECTIVE_SEC = 600.0
"""How long a worker waits in a collective for others before it takes them for gone."""
EXIT_CODES: Mapping[int, str] = MappingProxyType(
    {
        0: "done: the job has ended",
        EXIT_FAILED: "failed here, and counted: start again once the node's health was looked at",
        EXIT_BAD_INPUT: "bad input on every node that came: the job has ended",
        EXIT_UNHEALTHY: "the fabric is below what was demanded: the job has ended",
        EXIT_UNFIT: "this node is not fit for the job, which goes on: another in its place",
        EXIT_ENDED_FOR_ALL: "ended for all after too many failures",
        EXIT_HOURS_OVER: "the job's hours are over: it has ended",
        EXIT_INTERRUPTED: "interrupted, saved: start again",
    }
)
"""What a launcher ends with, and all that whoever started it has to know. Any other code is a signal's (128 and its
number) and means what 1 means."""


SIMILAR = 0.6
"""Least likeness of a word that is proposed, as in `components.core.findings`."""
_RULE = "rule"
_REFUSED = "not an accepted value"
_NONE: Mapping[str, FieldInfo] = MappingProxyType({})
_KINDS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("int_type", "int_parsing", "int_parsing_size", "int_from_float"), "a whole number"),
        **dict.fromkeys(("float_type", "float_parsing"), "a number"),
        "finite_number": "a finite number",
        **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
        "string_type": "text in quotes",
        **dict.fromkeys(("list_type", "tuple_type"), "a list"),
        **dict.fromkeys(("model_type", "dict_type"), "a JSON object"),
    }
)
"""What a field of that kind takes, by the type of pydantic's finding."""
_LENGTHS: Mapping[str, str] = MappingProxyType(
    {
        "too_short": "a list of {min_length} or more",
        "too_long": "a list of {max_length}",
        "string_too_short": "a text of {min_length} or more characters",
    }
)
"""Likewise, of what has too much or too little in it."""
_BOUNDS: Mapping[str, str] = MappingProxyType(
    {"gt": "above {}", "ge": "from {} on", "lt": "below {}", "le": "up to {}"}
)
"""How a bound is told, by its name in pydantic's findings and fields."""


def _shown(value: object) -> str:
    """As the user would write it; JSON's words where the value is one of its two that Python calls otherwise."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _short(text: str, limit: int = 200) -> str:
    """A whole file that was no JSON is nobody's idea of a value."""
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


def visible(text: str) -> str:
    """The text with what a terminal would not show but do, such as escape sequences out of a file, spelled out."""
    seen = (each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode() for each in text)
    return text if text.isprintable() else "".join(seen)


class TrainerError(Exception):
    """A user's input, or the user's machine, that the trainer cannot go on with. Commands exit with code 2.

    Attributes:
        place: file, flag or config path that holds the value. `TrainConfig.<field>` where only the command line knows
            whether a flag or a file gave the value; it puts its own name there.
        problem: one sentence on what is wrong.
        value: the offending value; None when there is none to show.
        allowed: what would have been accepted.
        fix: the step that mends it.
    """

    exit_code = EXIT_BAD_INPUT

    def __init__(self, *, place: str, problem: str, value: object = None, allowed: str = "", fix: str = "") -> None:
        self.place, self.problem, self.value, self.allowed, self.fix = place, problem, value, allowed, fix
        rows = [("got", None if value is None else _short(_shown(value))), ("allowed", allowed), ("fix", fix)]
        details = [f"  {label + ':':<9}{text}" for label, text in rows if text]
        super().__init__(visible("\n".join([self.headline, *details])))

    @property
    def headline(self) -> str:
        """Place and problem in one line, to be quoted in another message."""
        return f"{self.place}: {self.problem}"

    def fields(self) -> dict[str, Any]:
        """The constructor's arguments as plain data, so that one rank's error can be raised on every rank."""
        value = self.value if self.value is None or isinstance(self.value, int | float | str) else str(self.value)
        return {
            "place": self.place,
            "problem": self.problem,
            "value": value,
            "allowed": self.allowed,
            "fix": self.fix,
        }

    def at(self, place: str) -> Self:
        """The same error with a place the user knows."""
        return type(self)(**{**self.fields(), "place": place})


class LoneError(TrainerError):
    """Met by one worker in the middle of a step: the others, which wait for it, know nothing of it."""


class UnhealthyError(TrainerError):
    """The machines, not the input, keep the job from starting. Commands exit with code 3."""

    exit_code = EXIT_UNHEALTHY


class InUseError(TrainerError):
    """Another session is at work where this one is asked to be. Commands exit with code 1: later it may be free."""

    exit_code = EXIT_FAILED


class WorkerFailedError(Exception):
    """Raised on the healthy workers when another one (`rank`, whose own output has the traceback) failed with anything
    but a TrainerError; `what` is type and message.
    """

    exit_code = EXIT_PEERS_LOST

    def __init__(self, rank: int, what: str) -> None:
        super().__init__(f"worker {rank} failed, so all stop: {what} (the traceback is in that worker's output)")


def diverged(place: str, value: str) -> TrainerError:
    """The error of a run whose numbers are no longer numbers."""
    return TrainerError(
        place=place,
        problem="is no longer a finite number; training cannot recover from that",
        value=value,
        allowed="finite numbers",
        fix="start a new run in another --run-dir with smaller --lr-g and --lr-d, or a heavier penalty: "
        "--gp-weight with the wgan-gp loss, --r1-gamma with any other; what follows a schedule by other --schedules",
    )


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that was probably meant, case ignored; empty where the likeness of none reaches `SIMILAR`."""
    by_lower = {each.lower(): each for each in known}
    return next((by_lower[each] for each in difflib.get_close_matches(word.lower(), by_lower, 1, SIMILAR)), "")


def broken_rule(allowed: str, *, value: object = None, field: str = "", fix: str = "") -> PydanticCustomError:
    """What a validator raises, so that `from_validation` tells it in these words. `value` None is all of what was
    given; `field` is named where the rule is about several; `fix` empty for the sentence that fits everywhere.
    """
    given = {"value": value, "field": field, "fix": fix}
    context = {"allowed": allowed, **{name: each for name, each in given.items() if each not in (None, "")}}
    return PydanticCustomError(_RULE, "{allowed}", context)


def from_rule(error: PydanticCustomError, place: str, *, value: object, fix: str) -> TrainerError:
    """A `broken_rule` as a TrainerError, where no pydantic model stands between; `place` is the flag. `value` and `fix`
    stand in where the rule names none.
    """
    details = {"value": value, "fix": fix, **(error.context or {})}
    return TrainerError(
        place=place, problem=_REFUSED, value=details["value"], allowed=details["allowed"], fix=details["fix"]
    )


def from_validation(
    error: ValidationError, place: str, *, known: Mapping[str, FieldInfo] = _NONE, separator: str = ": ", fix: str = ""
) -> TrainerError:
    """Pydantic's first finding as a TrainerError, or an unknown field, if there is one.

    `place` is the file or object, to which `separator` and the field's path are appended; `known` fields offer the
    nearest for an unknown one; `fix` is for a value out of range, empty for a sentence that fits everywhere.
    """
    findings = error.errors()
    # A misspelt field is missing too: its own name says more.
    first = next((finding for finding in findings if finding["type"] == "extra_forbidden"), findings[0])
    kind, value = first["type"], first["input"]
    if kind == "json_invalid":
        return _no_json(first, place)
    # A rule about several fields has no place of its own in pydantic's eyes: its context names one.
    context = first.get("ctx", {}) if kind == _RULE else {}
    found = _found_at(first["loc"], known)
    path = ".".join([*found.path, *filter(None, [context.get("field")])])
    where = f"{place}{separator}{path}" if path else place
    if kind == "missing":
        # Of the same object: it would be dull to hear of them one by one.
        missing = [each["loc"] for each in findings if each["type"] == kind]
        names = [str(loc[-1]) for loc in missing if loc[:-1] == first["loc"][:-1]]
        fix = f"add it, and what else is missing: {', '.join(names[1:])}" if len(names) > 1 else "add it"
        return TrainerError(place=where, problem="is missing", fix=fix)
    if kind == "extra_forbidden":
        near = nearest(found.path[-1], found.beside)
        fix = f"did you mean {near!r}? otherwise remove it" if near else "remove it"
        # A whole configuration's names would fill the screen.
        allowed = ", ".join(found.beside) if len(found.path) > 1 else ""
        return TrainerError(place=where, problem="unknown field", value=value, allowed=allowed, fix=fix)
    likely = nearest(value, _allowed_values(first)) if isinstance(value, str) else ""
    return TrainerError(
        place=where,
        problem="is null" if value is None else _REFUSED,
        value=context.get("value", value),
        allowed=_allowed(first, found.field),
        fix=context.get("fix") or (f"did you mean {likely!r}?" if likely else fix or "change it to an allowed value"),
    )


class _Found(NamedTuple):
    """Where a finding is: as people write it, the field that is there, and all that its object may have, by name."""

    path: Sequence[str]
    field: FieldInfo | None
    beside: Mapping[str, FieldInfo]


def _found_at(loc: Sequence[int | str], known: Mapping[str, FieldInfo]) -> _Found:
    """Follows pydantic's way into nested models. It has the tag of what it took for meant, which nobody has written:
    tags are names of models.
    """
    path, field, beside, inside = list[str](), None, known, {"": known}
    for part in loc:
        if part in inside and part:
            inside = {"": inside[str(part)]}
            continue
        path.append(str(part))
        if isinstance(part, str):
            beside = {name: each for fields in inside.values() for name, each in fields.items()}
            field = beside.get(part)
            inside = dict(_models_in(field.annotation)) if field else {}
    return _Found(path, field, beside)


def _models_in(kind: Any) -> Iterator[tuple[str, dict[str, FieldInfo]]]:
    """The fields, as they are written, of each model that an annotation is made of, by the model's name."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind.__name__, {each.alias or name: each for name, each in kind.model_fields.items()}
    for each in get_args(kind):
        yield from _models_in(each)


def _no_json(finding: ErrorDetails, place: str) -> TrainerError:
    """Says what the parser stumbled over, and shows the line."""
    content, said = finding["input"], finding["ctx"]["error"]
    text = content.decode("utf-8", "replace") if isinstance(content, bytes) else content
    what, _, where = said.rpartition(" at line ")
    line, _, column = where.partition(" column ")
    return TrainerError(
        place=place,
        problem="is empty" if not text.strip() else f"is not JSON: line {line}, column {column}: {what}",
        value=text.split("\n")[int(line) - 1],
        allowed="a JSON object",
        fix="correct it, or restore it from a copy",
    )


def _allowed_values(finding: ErrorDetails) -> list[str]:
    """The words of which a field takes one; empty where it takes anything else."""
    expected = finding["ctx"]["expected"] if finding["type"] == "literal_error" else ""
    return re.findall(r"'([^']*)'", expected)


def _allowed(finding: ErrorDetails, field: FieldInfo | None) -> str:
    """What would have been accepted, in a few words; pydantic's sentences tell of its parser as well. `field` gives all
    its words or bounds; None where nobody knows it, and only the finding tells.
    """
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
    crossed = {name: context[name] for name in _BOUNDS if name in context}
    whole = any(isinstance(bound, int) for bound in crossed.values())
    kind = _KINDS.get(finding["type"]) or (("a whole number" if whole else "a number") if crossed else "")
    declared = {
        name: getattr(part, name)
        for part in (field.metadata if field else ())
        for name in _BOUNDS
        if hasattr(part, name)
    }
    bounds = [_BOUNDS[name].format(_plain(bound)) for name, bound in {**declared, **crossed}.items()]
    if kind:
        return " ".join([kind, " and ".join(bounds)]).strip()
    return finding["msg"].removeprefix("Value error, ").removeprefix("Input should be ")


def _plain(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"
