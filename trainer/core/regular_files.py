"""Open regular files only, and explain file-system errors that the user can fix."""

import errno
import io
import os
import shlex
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

MOST_BYTES = 64_000_000
"""Limit for a record, a picture or a manifest: many times the usual size."""
MOST_BYTES_OF_STATS = 1_000_000_000
"""Of a run's lines of statistics: weeks of them, of a thousand devices."""
_PART_BYTES = 1 << 20
_AT_ONCE = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | _AT_ONCE
_FOLDER = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_FLAGS = {
    "rb": os.O_RDONLY,
    "r+b": os.O_RDWR,
    "wb": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "ab": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    "x+b": os.O_RDWR | os.O_CREAT | os.O_EXCL,
    "a+b": os.O_RDWR | os.O_CREAT | os.O_APPEND,
}


class UnfitFileError(OSError):
    """No regular file, or one that is too large; `strerror` says which."""


def open_file(path: Path, mode: str = "rb", buffering: int = -1) -> IO[bytes]:
    """A regular file, of which links are followed; what is only written may be a device. UnfitFileError: it is none."""
    try:
        descriptor = os.open(path, _FLAGS[mode] | _AT_ONCE, 0o666)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENODEV):  # of a socket, and of a FIFO that nobody reads
            raise UnfitFileError(errno.EINVAL, "it is no regular file", str(path)) from None
        raise
    if mode not in ("wb", "ab"):
        _checked(descriptor, path)
    return io.open(path, mode, buffering, opener=lambda *_: descriptor)  # noqa: UP020  # a file that has its name


def check_file(path: Path) -> None:
    """OSError as `open_file` raises it: for libraries that open a path themselves."""
    open_file(path).close()


def read_file(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """The whole content of such a file. OSError as `open_file`; UnfitFileError also for one that is too large."""
    with open_file(path) as file:
        return _whole(file, path, most_bytes)


def read_text_file(path: Path, most_bytes: int = MOST_BYTES, encoding: str = "utf-8-sig") -> str:
    """The same as text, every line of which ends with "\\n". OSError as `read_file`; UnicodeDecodeError."""
    return read_file(path, most_bytes).decode(encoding).replace("\r\n", "\n").replace("\r", "\n")


def read_regular(folder: Path, name: str, most_bytes: int = MOST_BYTES) -> bytes:
    """Read a regular file below a folder that the reader named; `name` may have subfolders, none of which may be a
    link. OSError with a readable `strerror`: missing, unreadable, a link, not a file, larger than `most_bytes`.
    """
    with os.fdopen(open_regular(folder, name), "rb") as file:
        return _whole(file, folder / name, most_bytes)


def open_regular(folder: Path, name: str) -> int:
    """Open such a file and return its descriptor; OSError as `read_regular`."""
    *folders, last = name.split("/")
    parent_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in folders:
            parent_fd, above = _open(part, _FOLDER, parent_fd), parent_fd
            os.close(above)
        descriptor = _open(last, _FILE, parent_fd)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(folder / name)) from None
    finally:
        os.close(parent_fd)
    return _checked(descriptor, folder / name, "it is no regular file")


def _whole(file: IO[bytes], path: Path, most_bytes: int) -> bytes:
    size = os.fstat(file.fileno()).st_size
    if size <= most_bytes:
        parts, total = [file.read(size)], size
        # It grows, or is in /proc, where every size is 0.
        while total <= most_bytes and (part := file.read(_PART_BYTES)):
            parts.append(part)
            total += len(part)
        if total <= most_bytes:
            return b"".join(parts)
    raise UnfitFileError(errno.EFBIG, f"it is larger than {most_bytes / 1e6:g} MB", str(path))


def _checked(descriptor: int, path: Path, folder_problem: str = "it is a folder, not a file") -> int:
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    problem = folder_problem if stat.S_ISDIR(mode) else "it is no regular file"
    raise UnfitFileError(errno.EINVAL, problem, str(path))


def _open(name: str, flags: int, parent_fd: int) -> int:
    try:
        return os.open(name, flags, dir_fd=parent_fd)
    except OSError as error:
        if stat.S_ISLNK(os.stat(name, dir_fd=parent_fd, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, "it is a link, and none is followed in a run's folder") from None
        raise error from None


_OTHER_PLACE = "name another place"
_PROBLEMS: Mapping[int, tuple[str, str]] = {
    errno.EACCES: ("permission denied", ""),
    errno.EPERM: ("operation not permitted", ""),
    errno.EROFS: ("on a file system that is read-only", _OTHER_PLACE),
    errno.ENOENT: ("no such file or folder", "check the path"),
    errno.ENOTDIR: ("part of the path is a file, not a folder", "check the path"),
    errno.EISDIR: ("a folder, where a file is expected", "name a file"),
    errno.ELOOP: ("its symbolic links go round in a circle", "remove the link, or name what it should point to"),
    errno.ENAMETOOLONG: ("longer than a name can be here", "choose a shorter name"),
}
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
