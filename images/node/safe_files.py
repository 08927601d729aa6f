"""Safe writes below a folder whose names and contents are untrusted: no name or link can lead out of it."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

# The kernel rejects a link where a folder is expected in the same call: no race between check and use.
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class UnsafeNameError(OSError):
    """A name that is not that of a file below its folder."""


def is_unsafe_name(name: str) -> bool:
    """Whether a relative name cannot be that of a file below the folder."""
    return "\0" in name or any(part in ("", ".", "..") for part in name.split("/"))


def split_name(name: str) -> list[str]:
    """The folders and the file of a relative name. Raises UnsafeNameError."""
    if is_unsafe_name(name):
        raise UnsafeNameError(f"{name!r} is not a path below the folder; fix: rename or remove the object")
    return name.split("/")


@contextmanager
def open_folder(root: Path, name: str) -> Iterator[tuple[int, str]]:
    """The opened folder of a file below `root`, and the file's name in it; creates missing folders. Raises OSError for
    a link or a file where a folder is expected; `root` itself may be a link.
    """
    *folders, last = split_name(name)
    root.mkdir(parents=True, exist_ok=True)
    at = os.open(root, _FOLDER & ~os.O_NOFOLLOW)
    try:
        for folder in folders:
            with suppress(FileExistsError):
                os.mkdir(folder, dir_fd=at)
            inner = os.open(folder, _FOLDER, dir_fd=at)
            os.close(at)
            at = inner
        yield at, last
    finally:
        os.close(at)


def get_size(at: int, name: str) -> int | None:
    """Size in bytes of a regular file in an opened folder; None for anything else."""
    try:
        found = os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


@contextmanager
def replace_file(at: int, name: str) -> Iterator[BinaryIO]:
    """Atomically replaces a file in an opened folder; a link is replaced, not followed. Raises OSError if another
    process is writing it, or if it is a folder.
    """
    part = f".{name}.part"
    with suppress(FileNotFoundError):
        os.unlink(part, dir_fd=at)  # of an interrupted write
    with os.fdopen(os.open(part, _NEW_FILE, 0o644, dir_fd=at), "wb") as file:
        yield file
    os.replace(part, name, src_dir_fd=at, dst_dir_fd=at)
