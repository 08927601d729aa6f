"""User-facing messages for file-system errors that the user can fix."""

import errno
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from gangway.trainer.core.regular_files import UnfitFileError

_OTHER_PLACE = "name another place"
_PROBLEMS: Mapping[int, tuple[str, str]] = MappingProxyType(
    {
        errno.EACCES: ("permission denied", ""),
        errno.EPERM: ("operation not permitted", ""),
        errno.EROFS: ("on a file system that is read-only", _OTHER_PLACE),
        errno.ENOENT: ("no such file or folder", "check the path"),
        errno.ENOTDIR: ("part of the path is a file, not a folder", "check the path"),
        errno.EISDIR: ("a folder, where a file is expected", "name a file"),
        errno.ELOOP: ("its symbolic links go round in a circle", "remove the link, or name what it should point to"),
        errno.ENAMETOOLONG: ("longer than a name can be here", "choose a shorter name"),
    }
)
"""Without a full disk: exit code 2 means that a retry is useless, but there may be room later."""


class FileProblem(NamedTuple):
    """The parts of a user error, for `InputError` and `TrainerError`."""

    place: str
    problem: str
    fix: str


def file_problem(error: OSError) -> FileProblem | None:
    """The message for a file-system error; None if it names no file or the user cannot fix it."""
    place = error.filename2 or error.filename
    if isinstance(error, UnfitFileError):
        return FileProblem(str(error.filename), str(error.strerror), "name a regular file, or one that is smaller")
    known = _PROBLEMS.get(error.errno or 0)
    if known is None or not isinstance(place, str | bytes | os.PathLike):
        return None
    path = Path(os.fsdecode(place))
    problem, fix = known
    if not fix:
        existing = (each for each in (path, *path.absolute().parents) if os.access(each, os.F_OK))
        closed = closed_folder(path) or next(existing)
        problem = f"{problem}: {_owner_and_mode(closed)}"
        fix = f"{_other_place(path, closed)}, or run it as a user who may use {closed}"
    return FileProblem(str(path), problem, fix)


def _other_place(path: Path, closed: Path) -> str:
    # Also where the command line does not name `path`.
    bases = {"change to another working directory": Path.cwd(), "set HOME to a folder of yours": home_folder()}
    if any(path.is_relative_to(named) for named in _absolute_arguments()):  # the same from everywhere
        del bases["change to another working directory"]
    whole = Path.cwd() / path
    steps = [step for step, base in bases.items() if whole.is_relative_to(base) and base.is_relative_to(closed)]
    return " or ".join([_OTHER_PLACE, *steps])


def _absolute_arguments() -> Iterator[str]:
    """Absolute paths on this command line, `--flag=/path` included."""
    for argument in sys.argv[1:]:
        path = argument.partition("=")[2] if argument.startswith("-") else argument
        if path.startswith("/"):
            yield path


def home_folder() -> Path:
    """This user's home; `/nonexistent` without one, as in many containers."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/nonexistent")


def closed_folder(path: Path) -> Path | None:
    """The first folder on the path that this user may not enter; None if all are open."""
    absolute = Path.cwd() / path  # resolve() would follow links that may not be read
    for folder in reversed(absolute.parents):
        with suppress(OSError):  # a name too long or circular links: not a closed folder
            if folder.is_dir() and not os.access(folder, os.X_OK):
                return folder
    return None


def check_reachable(path: Path) -> None:
    """Raise PermissionError if this user may not enter a folder on the path, which may hide the file."""
    if closed_folder(path) is not None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def check_creatable(path: Path) -> None:
    """PermissionError: this user may not enter a folder on the path, or not create a folder that is not there yet."""
    check_reachable(path)
    there = next((each for each in (path, *path.absolute().parents) if each.exists()), Path("/"))
    if there != path and not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def check_working_directory() -> None:
    """Raise FileNotFoundError if the working directory was deleted."""
    try:
        Path.cwd()
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "the working directory") from None


def _owner_and_mode(path: Path) -> str:
    try:
        status = path.stat()
    except OSError:
        return f"user {os.geteuid()} may not use {shlex.quote(str(path))}"
    return f"{path} belongs to user {status.st_uid} with mode {status.st_mode & 0o7777:04o}, and this is {os.geteuid()}"
