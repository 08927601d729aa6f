"""How every file is opened whose name comes from a command line, another file or a folder that others may have filled.

Under any name there may be a FIFO that nobody writes to, a device without an end, or a file larger than the memory. So
opening never waits, only regular files are read, and no more of them than a caller has room for. `read_regular` takes
names in folders of others, such as a run's out of a bucket, and follows no link there; `open_file`, `read_file` and
`read_text_file` take paths that the user names, and follow links as every program does.
"""

import errno
import io
import os
import stat
from pathlib import Path
from typing import IO

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
    """A regular file, as `open` gives it; links are followed. What is only written may be a device, too. OSError: there
    is none, or it cannot be opened; UnfitFileError: it is no regular file.
    """
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
    """Read a regular file below a folder that the reader named, and which may be a link itself. The name may have
    subfolders, none of which may be a link. OSError with a readable `strerror`: missing (FileNotFoundError),
    unreadable, a link, not a file, larger than `most_bytes`.
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
