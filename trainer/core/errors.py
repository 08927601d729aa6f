"""User errors in one layout, and exit codes."""

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from pydantic_core import PydanticCustomError

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
RULE = "rule"
"""The type of the errors that `broken_rule` makes."""
REFUSED = "not an accepted value"
"""The problem of an error whose `allowed` says what would be accepted."""


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
    """The most similar known word, ignoring case; empty below a similarity of `SIMILAR`. A known word of at least a
    third of `word` that begins it wins (`lr_g` for `lr_generator`).
    """
    by_lower = {each.lower(): each for each in known}
    long = [each for each in by_lower if len(each) >= max(3, len(word) / 3) and word.lower().startswith(each)]
    if long:
        return by_lower[max(long, key=len)]
    return next((by_lower[each] for each in difflib.get_close_matches(word.lower(), by_lower, 1, SIMILAR)), "")


def broken_rule(allowed: str, *, value: object = None, field: str = "", fix: str = "") -> PydanticCustomError:
    """A validator's error for `first_mistake`; `value` None: the whole input, `field`: for a rule about several."""
    given = {"value": value, "field": field, "fix": fix}
    context = {"allowed": allowed, **{name: each for name, each in given.items() if each not in (None, "")}}
    return PydanticCustomError(RULE, "{allowed}", context)


def from_rule(error: PydanticCustomError, place: str, *, value: object, fix: str) -> TrainerError:
    """A `broken_rule` as a TrainerError outside of a pydantic model; `value` and `fix` are defaults."""
    details = {"value": value, "fix": fix, **(error.context or {})}
    return TrainerError(
        place=place, problem=REFUSED, value=details["value"], allowed=details["allowed"], fix=details["fix"]
    )


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
