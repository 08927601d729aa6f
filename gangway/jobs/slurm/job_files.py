"""Files that a job's batch script (images/templates/job/slurm-batch.sh) leaves in the job's folder. All readers raise
UnreadableError if the content was changed.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gangway.jobs.base import Phase
from gangway.jobs.boot_clock import boot_stamp, sec_since
from gangway.jobs.job_folder import JobFolder, NotOwnError, OwnJobFolder, UnreadableError

_ID_FILE = "slurm-id"
_ENDS = {
    "done": Phase.DONE,
    "failed": Phase.FAILED,
    "bad-input": Phase.BAD_INPUT,
    "over-hours": Phase.OVER_HOURS,
    "cancelled": Phase.CANCELLED,
}


def read_line(folder: JobFolder, name: str) -> str:
    """A file's line; empty if there is no such file yet."""
    try:
        return folder.read(name).decode().strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise _damaged(folder.path / name, str(error)) from None


def read_id(folder: JobFolder) -> str:
    """Empty if not saved yet."""
    kept = read_number(folder, _ID_FILE)
    return "" if kept is None else str(kept)


def save_id(folder: OwnJobFolder, slurm_id: str) -> None:
    """Does not replace the id that the script saved. Without room, the job is found by its comment next time."""
    with suppress(OSError, UnreadableError):
        if not read_id(folder):
            folder.write(_ID_FILE, f"{slurm_id}\n".encode())


def read_number(folder: JobFolder, name: str) -> int | None:
    """The number in a file; None if there is no such file yet."""
    line = read_line(folder, name)
    if not line:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", line):
        raise _damaged(folder.path / name, f"{line[:40]!r} is not a number")
    return int(line)


def sec_since_mark(folder: JobFolder, name: str) -> float:
    """Monotonic seconds since this mark of an own folder was first requested in this boot; 0 if it cannot be stored."""
    try:
        lines = folder.read(name).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        lines = []
    except OSError:
        return 0.0
    if known := [sec for sec in map(sec_since, lines) if sec is not None]:
        return max(known)
    if (own := open_own_folder(folder)) is not None:
        with suppress(OSError), own.append_to(name) as file:
            file.write(f"{boot_stamp()}\n".encode())
    return 0.0


def open_own_folder(folder: JobFolder) -> OwnJobFolder | None:
    """None for another user's folder, which is never changed."""
    with suppress(OSError, NotOwnError):
        return folder.own()
    return None


@dataclass(frozen=True)
class End:
    """A job's end, as its script recorded it."""

    phase: Phase
    code: int
    at: datetime
    why: str


def find_end(folder: JobFolder) -> End | None:
    """None if its script has recorded no end yet."""
    if not (line := read_line(folder, "end")):
        return None
    match = re.fullmatch(r"(\S+) ([0-9]{1,3}) ([0-9]{1,18})(?: (.*))?", line, re.DOTALL)
    if match is None or (phase := _ENDS.get(match[1])) is None:
        raise _damaged(folder.path / "end", f"{line[:40]!r} is not the end of a job")
    return End(phase, int(match[2]), parse_ms(folder.path / "end", int(match[3])), (match[4] or "").strip())


def parse_ms(path: Path, ms: int) -> datetime:
    """Of a file's number, in ms since 1970."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        raise _damaged(path, f"{ms} is not a time in ms since 1970") from None


def _damaged(path: Path, why: str) -> UnreadableError:
    return UnreadableError(
        str(path), f"not written by a job's script: {why}", fix=f"correct it, or move {path.parent} aside"
    )
