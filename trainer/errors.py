"""What the trainer says about a user's mistake: one exception, one layout, exit code 2.

Not for our own bugs (those are `assert`) and not a logging layer: nothing here prints.
"""

from typing import Any

from pydantic import ValidationError

__all__ = ["EXIT_BAD_INPUT", "EXIT_INTERRUPTED", "TrainerError", "from_validation"]

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 75
"""EX_TEMPFAIL of sysexits.h: the run was interrupted, its state is saved, start the same command again."""


def _short(text: str, limit: int = 200) -> str:
    """A whole file that was no JSON is nobody's idea of a value."""
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


class TrainerError(Exception):
    """A user's input, or the user's machine, that the trainer cannot go on with. Commands exit with code 2.

    Attributes:
        place: file, flag or config path that holds the value.
        problem: one sentence on what is wrong.
        value: the offending value; None when there is none to show.
        allowed: what would have been accepted.
        fix: the step that mends it.
    """

    def __init__(self, *, place: str, problem: str, value: object = None, allowed: str = "", fix: str = "") -> None:
        self.place, self.problem, self.value, self.allowed, self.fix = place, problem, value, allowed, fix
        rows = [("got", None if value is None else _short(repr(value))), ("allowed", allowed), ("fix", fix)]
        details = [f"  {label + ':':<9}{text}" for label, text in rows if text]
        super().__init__("\n".join([f"{place}: {problem}", *details]))

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


def from_validation(error: ValidationError, place: str) -> TrainerError:
    """The first finding of pydantic as a TrainerError.

    Args:
        error: what pydantic raised.
        place: the file or command line that held the values; the field's path is appended.
    """
    first = error.errors()[0]
    path = ".".join(str(part) for part in first["loc"])
    unknown = first["type"] == "extra_forbidden"
    return TrainerError(
        place=f"{place}: {path}" if path else place,
        problem="unknown field" if unknown else "not an accepted value",
        value=first["input"],
        allowed="" if unknown else first["msg"].removeprefix("Value error, "),
        fix="remove it, or correct its spelling" if unknown else "",
    )
