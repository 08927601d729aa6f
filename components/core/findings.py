"""Findings (collected) and InputError (immediate) about a user's input: where, what, value, allowed, nearest fix."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Self

from gangway.components.core.safe_text import visible

_MOST_LISTED, _FEW_LISTED = 80, 5

SIMILAR = 0.6
"""The lowest likeness of a proposal, 0 to 1 (difflib: twice the common letters over all letters). Below it a proposal
is a guess. `gangway.trainer.core.errors.nearest` uses the same.
"""


class Severity(StrEnum):
    """An error stops `up`, a warning does not, info explains an automatic choice."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True)
class Finding:
    """One finding of a plan.

    Attributes:
        severity: an error makes `gangway plan` exit 1.
        code: stable identifier, such as `fabric.placement-with-block`.
        message: the problem, including the value.
        fix: empty if nothing needs fixing. A change of the stack file comes first, and a test applies it: `set KEY:
            VALUE` or `remove KEY` (write, add and leave KEY out mean the same), KEY being a config path, or one beside
            or below `path`. Other advice begins differently.
    """

    severity: Severity
    code: str
    path: str
    message: str
    fix: str = ""

    @classmethod
    def error(cls, code: str, path: str, message: str, fix: str = "") -> Self:
        """A finding that stops `up`."""
        return cls(Severity.ERROR, code, path, message, fix)

    @classmethod
    def warning(cls, code: str, path: str, message: str, fix: str = "") -> Self:
        """A finding that does not stop `up`."""
        return cls(Severity.WARNING, code, path, message, fix)

    @classmethod
    def info(cls, code: str, path: str, message: str, fix: str = "") -> Self:
        """A finding that explains an automatic choice."""
        return cls(Severity.INFO, code, path, message, fix)

    def to_json(self) -> dict[str, str]:
        """The finding as plain JSON data."""
        names = ("code", "path", "message", "fix")
        return {"severity": self.severity.value, **{name: getattr(self, name) for name in names}}


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"


class GangwayError(Exception):
    """The root of what Gangway raises outside the trainer, whose root is TrainerError."""


class InputError(GangwayError, ValueError):
    """A user's input that cannot be planned, at `place` (file or config path). Commands print it and exit with code 2.
    `problem` is one sentence, `fix` the nearest valid value or next step.
    """

    def __init__(self, place: str, problem: str, *, value: object = None, allowed: str = "", fix: str = "") -> None:
        self.place, self.problem, self.value = visible(place), visible(problem), value
        self.allowed, self.fix = visible(allowed), visible(fix)
        rows = [("got", None if value is None else _short(repr(value))), ("allowed", allowed), ("fix", fix)]
        details = [f"  {label + ':':<9}{text}" for label, text in rows if text]
        super().__init__(visible("\n".join([f"{place}: {problem}", *details])))

    @classmethod
    def not_among(cls, place: str, problem: str, value: str, allowed: Iterable[str]) -> Self:
        """A word that is not `allowed`, with the allowed or the most similar words; the fix names the nearest."""
        words = list(allowed)
        return cls(place, problem, value=value, allowed=listed(words, value), fix=nearest_hint(value, words))

    def within(self, outer: str, joint: str = ": ") -> "InputError":
        """The same error with its place inside `outer`, such as the file of the config path."""
        place = f"{outer}{joint}{self.place}"
        return InputError(place, self.problem, value=self.value, allowed=self.allowed, fix=self.fix)


def listed(words: Sequence[str], value: str) -> str:
    """All words; if there are many, their number and those most like `value`.

    >>> listed([f"zone-{number}" for number in range(100)], "zone-42")
    '100 values, such as zone-42, zone-92, zone-82, zone-72, zone-62'
    """
    if len(words) <= _MOST_LISTED:
        return ", ".join(words)
    like = get_close_matches(value, words, n=_FEW_LISTED, cutoff=0.0)
    return f"{len(words)} values, such as {', '.join(like)}"


def nearest(value: str, allowed: Iterable[str]) -> str | None:
    """The allowed word most like `value`, None below `SIMILAR`; a prefix of a third of `value` wins (lr_g)."""
    by_lower = {word.lower(): word for word in allowed}
    least = max(3, len(value) / 3)
    if begun := [word for word in by_lower if len(word) >= least and value.lower().startswith(word)]:
        return by_lower[max(begun, key=len)]
    close = get_close_matches(value.lower(), by_lower, n=1, cutoff=SIMILAR)
    return by_lower[close[0]] if close else None


def nearest_hint(value: str, allowed: Iterable[str]) -> str:
    """A fix for a mistyped word: `did you mean ...?`, or where to look if nothing is close."""
    word = nearest(value, allowed)
    return f"did you mean {word!r}?" if word else "choose one of the allowed values"


def letters_wrong(word: str, meant: str) -> int:
    """Levenshtein distance: letters to add, remove or replace (a swap counts two).

    >>> letters_wrong("us-esat-1", "us-east-1"), letters_wrong("eastuss", "eastus")
    (2, 1)
    """
    row = list(range(len(meant) + 1))
    for at, letter in enumerate(word, 1):
        above, row = row, [at]
        for column, other in enumerate(meant, 1):
            row.append(min(above[column] + 1, row[-1] + 1, above[column - 1] + (letter != other)))
    return row[-1]
