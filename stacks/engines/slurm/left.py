"""What the batch script of a job in Slurm has left in the job's folder, images/templates/job/slurm-batch.sh says which
files. Somebody else may have written there: UnreadableError, of all that reads.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from stacks.engines.base import Phase, UnreadableError
from stacks.engines.job_folder import JobFolder, OwnJobFolder

_ID_FILE = "slurm-id"
_ENDS = {
    "done": Phase.DONE,
    "failed": Phase.FAILED,
    "bad-input": Phase.BAD_INPUT,
    "over-hours": Phase.OVER_HOURS,
    "cancelled": Phase.CANCELLED,
}


def first(folder: JobFolder, name: str) -> str:
    """A file's line; empty where there is no such file yet."""
    try:
        return folder.read(name).decode().strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise _damaged(folder.path / name, str(error)) from None


def kept_id(folder: JobFolder) -> str:
    """Empty where nobody has kept it yet."""
    kept = number_in(folder, _ID_FILE)
    return "" if kept is None else str(kept)


def keep_id(folder: OwnJobFolder, slurm_id: str) -> None:
    """Unless its script has, which knows better. Without room the next one who asks finds it by its comment."""
    with suppress(OSError, UnreadableError):
        if not kept_id(folder):
            folder.write(_ID_FILE, f"{slurm_id}\n".encode())


def number_in(folder: JobFolder, name: str) -> int | None:
    """Of a file's line; None where there is no such file yet."""
    line = first(folder, name)
    if not line:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", line):
        raise _damaged(folder.path / name, f"{line[:40]!r} is no number")
    return int(line)


@dataclass(frozen=True)
class End:
    """A job's end, as its script has left it."""

    phase: Phase
    code: int
    at: datetime
    why: str


def end_of(folder: JobFolder) -> End | None:
    """None where its script has left no end yet."""
    if not (line := first(folder, "end")):
        return None
    match = re.fullmatch(r"(\S+) ([0-9]{1,3}) ([0-9]{1,18})(?: (.*))?", line, re.DOTALL)
    if match is None or (phase := _ENDS.get(match[1])) is None:
        raise _damaged(folder.path / "end", f"{line[:40]!r} is no end of a job")
    return End(phase, int(match[2]), time_in(folder.path / "end", int(match[3])), (match[4] or "").strip())


def time_in(path: Path, ms: int) -> datetime:
    """Of a number that the file has; since 1970."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        raise _damaged(path, f"{ms} is no time in ms since 1970") from None


def _damaged(path: Path, why: str) -> UnreadableError:
    return UnreadableError(
        str(path), f"not as a job's script leaves it: {why}", fix=f"mend it, or remove {path.parent}"
    )
