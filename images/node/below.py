"""Files below a folder that others write, too, under names that others chose: no name and no link leads out of it."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

# A link in place of a folder is refused by the kernel in the very call that would follow it: no race between a look
# and a use.
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class UnsafeNameError(OSError):
    """A name that leads out of its folder, or to nothing that a file could be."""


def leads_out(name: str) -> bool:
    """Whether a name relative to a folder is none of a file below it."""
    return "\0" in name or any(part in ("", ".", "..") for part in name.split("/"))


def get_parts(name: str) -> list[str]:
    """The folders and the file of a name relative to a folder. UnsafeNameError: it leads elsewhere."""
    if leads_out(name):
        raise UnsafeNameError(f"{name!r} is no name of a file below a folder: rename the object, or leave it out")
    return name.split("/")


@contextmanager
def get_folder(root: Path, name: str) -> Iterator[tuple[int, str]]:
    """The opened folder in which a file below `root` lies, and its name there; folders that are missing are made.

    OSError: a link or a file stands where a folder is meant. Of `root` itself, links are followed: it is ours.
    """
    *folders, last = get_parts(name)
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


def find_size(at: int, name: str) -> int | None:
    """Bytes of a regular file in an opened folder; None where there is none, or something else."""
    try:
        found = os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


@contextmanager
def new_file(at: int, name: str) -> Iterator[BinaryIO]:
    """A file of an opened folder that appears whole or not at all, in place of whatever has its name: a link is
    replaced, never followed. OSError: another process writes it just now, or there is a folder of its name.
    """
    part = f".{name}.part"
    with suppress(FileNotFoundError):
        os.unlink(part, dir_fd=at)  # of a try that was cut off
    with os.fdopen(os.open(part, _NEW_FILE, 0o644, dir_fd=at), "wb") as file:
        yield file
    os.replace(part, name, src_dir_fd=at, dst_dir_fd=at)
