"""Records how a job's starts ended, even on a full disk, so that no ended start is repeated.

FOLDER/<id>/exit-code     START CODE of the last start, and no-room while nothing else can be written; its disk space is
reserved before the start
FOLDER/<id>/spent.json    failures and spontaneous interruptions so far
"""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import Self

from gangway.jobs.job_folder import JobFolder, OwnJobFolder, UnreadableError

_EXIT, _SPENT = "exit-code", "spent.json"
_BYTES = 32
_OPEN, _NO_ROOM = "-", "no-room"


def reserve_space(folder: OwnJobFolder, start: int) -> None:
    """Reserves space for the end of that start. OSError: there is none."""
    folder.write(_EXIT, _padded(start, _OPEN))


def record_end(folder: OwnJobFolder, start: int, code: int) -> None:
    """Uses the reserved space, so it works on a full disk."""
    folder.overwrite(_EXIT, _padded(start, code))


def record_space(folder: OwnJobFolder, *, lacks: bool) -> None:
    """Records whether the runner waits for disk space after the last start; no effect before an end."""
    if len(words := _words(folder)) >= 2 and words[1].isdecimal():
        with suppress(OSError):  # it is in the log, too
            folder.overwrite(_EXIT, _padded(*words[:2], *([_NO_ROOM] if lacks else [])))


def lacks_space(folder: JobFolder) -> bool:
    """Whether the runner waits for disk space."""
    return _words(folder)[2:] == [_NO_ROOM]


def find_end(folder: JobFolder, start: int) -> int | None:
    """The exit code of that start; None if it has not ended, or was killed with its runner."""
    words = _words(folder)
    known = len(words) >= 2 and words[0] == str(start) and words[1].isdecimal()
    return int(words[1]) if known else None


@dataclass(frozen=True)
class Spent:
    """A job's failures so far on this engine, over all its processes.

    Attributes:
        failures: of its starts.
        start: the last one counted.
        before: failures without it, so that a start is counted once even if its end was only half recorded.
        interruptions: not caused by the user.
        interruptions_before: without that start.
    """

    failures: int = 0
    start: int = 0
    before: int = 0
    interruptions: int = 0
    interruptions_before: int = 0

    @classmethod
    def read(cls, folder: JobFolder) -> Self:
        """UnreadableError: the file was changed."""
        path = folder.path / _SPENT
        try:
            found = json.loads(folder.read(_SPENT))
            return cls(*(int(found[each.name]) for each in fields(cls)))
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise UnreadableError(str(path), f"not a count of failures: {error}", fix=f"move {path} aside") from None

    def write(self, folder: OwnJobFolder) -> None:
        """InputError: no room."""
        folder.save(_SPENT, json.dumps(asdict(self)).encode())

    def without(self, start: int) -> tuple[int, int]:
        """Failures and interruptions before that start."""
        if self.start == start:
            return self.before, self.interruptions_before
        return self.failures, self.interruptions


def _words(folder: JobFolder) -> list[str]:
    try:
        return folder.read(_EXIT).decode().split()
    except (OSError, UnicodeDecodeError):
        return []


def _padded(*words: object) -> bytes:
    return " ".join(map(str, words)).ljust(_BYTES - 1).encode() + b"\n"
