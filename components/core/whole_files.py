"""Writes files in one step: a reader sees the old file or the new one, also after a power cut."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from gangway.components.core.findings import InputError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No space, or a quota or limit is exceeded."""


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that becomes `path` when the block ends without an error; otherwise it is removed.

    Its temporary name is random, so that nobody can plant a link in a shared folder, and ends in `.partial`, so that no
    reader of a file type picks it up. OSError: it cannot be written.
    """
    partial = path.with_name(f".{secrets.token_hex(16)}.partial")
    try:
        with partial.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


def write_whole(path: Path, content: bytes) -> Path:
    """Write a small file as `whole_file` does. InputError: it cannot be written."""
    try:
        with whole_file(path) as file:
            file.write(content)
    except OSError as error:
        raise InputError(
            str(path),
            f"cannot be written: {error.strerror or error}",
            allowed="a disk with room for it" if error.errno in FULL else "",
            fix="make room there" if error.errno in FULL else "name a file in a folder that can be written",
        ) from None
    return path


@contextmanager
def without_empty_folders(folder: Path) -> Iterator[None]:
    """After an error or a signal in the block, removes what it has made of a folder and its parents, if empty."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        yield
    except BaseException:
        with suppress(OSError):  # another program has put something there
            for each in missing:
                each.rmdir()
        raise


def make_folder(folder: Path) -> None:
    """Create a folder and its parents. InputError: it cannot be created."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fix = "make room there" if error.errno in FULL else "name a folder that can be written"
        raise InputError(str(folder), f"cannot be made: {error.strerror or error}", fix=fix) from None
