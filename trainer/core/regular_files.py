"""Files in a folder that others may have filled, such as a run's that came out of a bucket or from somebody else.

Under any name there may stand a link out of the folder, a FIFO that nobody writes to or a device without an end. So no
link is followed, nothing is waited for, and no more is read than a caller has room for.
"""

import errno
import os
import stat
from pathlib import Path

MOST_BYTES = 64_000_000
"""Of a record, a picture or a manifest: many times what one has."""
MOST_BYTES_OF_STATS = 1_000_000_000
"""Of a run's lines of statistics: weeks of them, of a thousand devices."""
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


def read_regular(folder: Path, name: str, most_bytes: int = MOST_BYTES) -> bytes:
    """The whole content of a regular file below a folder.

    Args:
        folder: may be a link, or have links above it: the reader has named it.
        name: of the file; with slashes, of folders in between, none of which may be a link.
        most_bytes: it may have.

    OSError with words as its `strerror`: no such file (FileNotFoundError), unreadable, a link, no file, too large.
    """
    with os.fdopen(open_regular(folder, name), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most_bytes:
            raise OSError(errno.EFBIG, f"it is larger than {most_bytes / 1e6:g} MB", str(folder / name))
        return file.read(size)


def open_regular(folder: Path, name: str) -> int:
    """The descriptor of such a file, to be read and closed; OSError as `read_regular`."""
    *folders, last = name.split("/")
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in folders:
            at, above = _open(part, _FOLDER, at), at
            os.close(above)
        descriptor = _open(last, _FILE, at)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(folder / name)) from None
    finally:
        os.close(at)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is no regular file", str(folder / name))


def _open(name: str, flags: int, at: int) -> int:
    try:
        return os.open(name, flags, dir_fd=at)
    except OSError as error:
        if stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, "it is a link, and none is followed in a run's folder") from None
        raise error from None
