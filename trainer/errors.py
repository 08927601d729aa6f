"""What the trainer says about a user's mistake: one exception, one layout, exit code 2.

Not for our own bugs (those are `assert`) and not a logging layer: nothing here prints.
"""

import difflib
from collections.abc import Iterable
from typing import Any, Self

from pydantic import ValidationError

from trainer.exit_codes import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_UNHEALTHY

__all__ = [
    "EXIT_BAD_INPUT",
    "EXIT_FAILED",
    "EXIT_INTERRUPTED",
    "EXIT_UNHEALTHY",
    "LoneError",
    "TrainerError",
    "UnhealthyError",
    "WorkerFailedError",
    "diverged",
    "from_validation",
    "nearest",
]


def _short(text: str, limit: int = 200) -> str:
    """A whole file that was no JSON is nobody's idea of a value."""
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


class TrainerError(Exception):
    """A user's input, or the user's machine, that the trainer cannot go on with. Commands exit with code 2.

    Attributes:
        place: file, flag or config path that holds the value. `TrainConfig.<field>` where only the command line knows
            whether a flag or a file gave the value; it puts its own name there.
        problem: one sentence on what is wrong.
        value: the offending value; None when there is none to show.
        allowed: what would have been accepted.
        fix: the step that mends it.
        exit_code: of a command that ends with it.
    """

    exit_code = EXIT_BAD_INPUT

    def __init__(self, *, place: str, problem: str, value: object = None, allowed: str = "", fix: str = "") -> None:
        self.place, self.problem, self.value, self.allowed, self.fix = place, problem, value, allowed, fix
        rows = [("got", None if value is None else _short(repr(value))), ("allowed", allowed), ("fix", fix)]
        details = [f"  {label + ':':<9}{text}" for label, text in rows if text]
        super().__init__("\n".join([self.headline, *details]))

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


class WorkerFailedError(Exception):
    """Raised on the workers that are well when another one failed with anything but a TrainerError.

    Args:
        rank: of the worker that failed; its own output has the traceback.
        what: type and message of its exception.
    """

    exit_code = EXIT_FAILED

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
        "--gp-weight with the wgan-gp loss, --r1-gamma with any other",
    )


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that was probably meant; empty when none is near."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1)), "")


def from_validation(
    error: ValidationError, place: str, *, known: Iterable[str] = (), separator: str = ": ", fix: str = ""
) -> TrainerError:
    """Pydantic's first finding as a TrainerError, or an unknown field, if there is one.

    Args:
        error: what pydantic raised.
        place: the file or object that held the values; the field's path is appended.
        known: names of the fields there are, to offer the nearest for an unknown one.
        separator: between place and path.
        fix: for a value out of range; empty for a sentence that fits everywhere.
    """
    findings = error.errors()
    # A misspelt field is missing too: its own name says more.
    first = next((finding for finding in findings if finding["type"] == "extra_forbidden"), findings[0])
    # A rule about several fields has no place of its own in pydantic's eyes: its context names one.
    context = first.get("ctx", {}) if first["type"] == "rule" else {}
    path = ".".join([*(str(part) for part in first["loc"]), *filter(None, [context.get("field")])])
    near = nearest(path, known)
    fixes = {
        "extra_forbidden": f"did you mean {near!r}? otherwise remove it" if near else "remove it",
        "missing": "add it",
        "json_invalid": "correct it, or restore it from a copy",
    }
    unknown = first["type"] == "extra_forbidden"
    return TrainerError(
        place=f"{place}{separator}{path}" if path else place,
        problem={"extra_forbidden": "unknown field", "json_invalid": "is not JSON", "missing": "is missing"}.get(
            first["type"], "not an accepted value"
        ),
        value=None if first["type"] == "missing" else context.get("value", first["input"]),
        allowed="" if unknown or first["type"] == "missing" else _wanted(first["msg"]),
        fix=context.get("fix") or fixes.get(first["type"], fix or "change it to an allowed value"),
    )


def _wanted(message: str) -> str:
    """Of pydantic's sentence the part that stands after "allowed: "."""
    return message.removeprefix("Value error, ").removeprefix("Input should be ")
