"""Safe reads from a folder that others may have filled, such as a run from a bucket.

Any name may be a link out of the folder, a FIFO without a writer or an endless device: links are not followed, reads do
not block, and sizes are limited.
"""

import errno
import os
import stat
from pathlib import Path

MOST_BYTES = 64_000_000
"""Limit for a record, a picture or a manifest: many times the usual size."""
MOST_BYTES_OF_STATS = 1_000_000_000
"""Limit for a run's statistics: weeks of lines from a thousand devices."""
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


def read_regular(folder: Path, name: str, most_bytes: int = MOST_BYTES) -> bytes:
    """Read a regular file below a folder that the reader named, and which may be a link itself. The name may have
    subfolders, none of which may be a link. OSError with a readable `strerror`: missing (FileNotFoundError),
    unreadable, a link, not a file, larger than `most_bytes`.
    """
    with os.fdopen(open_regular(folder, name), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most_bytes:
            raise OSError(errno.EFBIG, f"it is larger than {most_bytes / 1e6:g} MB", str(folder / name))
        return file.read(size)


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
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is no regular file", str(folder / name))


def _open(name: str, flags: int, parent_fd: int) -> int:
    try:
        return os.open(name, flags, dir_fd=parent_fd)
    except OSError as error:
        if stat.S_ISLNK(os.stat(name, dir_fd=parent_fd, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, "it is a link, and none is followed in a run's folder") from None
        raise error from None
