"""Writes files in one step: a reader sees the old file or the new one, also after a power cut. Appends lines of JSON
likewise: a line is on disk whole or not at all, and one process writes at a time.
"""

import errno
import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

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


_POLL_SEC, _ASKED_SEC = 0.05, 2.0


def lock(file: IO[bytes] | IO[str] | int) -> None:
    """Until the file, or descriptor, is closed, or its holder dies. BlockingIOError: another process has it."""
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def lock_soon(file: IO[bytes]) -> bool:
    """As `lock`, with retries, since `is_locked` holds the lock for a moment; False if another process keeps it."""
    until = time.monotonic() + _ASKED_SEC
    while True:
        try:
            lock(file)
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(_POLL_SEC)
        else:
            return True


def is_locked(file: IO[bytes] | int) -> bool:
    """Whether a process has the lock. Several may ask at once; who takes it meanwhile has to try again."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


def append_line(file: IO[bytes], line: Mapping[str, Any]) -> None:
    """Append a line and flushes it to disk. OSError: nothing of it was written."""
    descriptor = file.fileno()
    before, text = os.lseek(descriptor, 0, os.SEEK_END), json.dumps(line).encode() + b"\n"
    try:
        written = os.write(descriptor, text)
        if written < len(text):
            raise OSError(errno.ENOSPC, "no space left for the next line")
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, before)
        raise


def complete_lines(content: bytes) -> list[bytes]:
    """The complete lines. A crash can leave a partial last line, whose action did not happen: it is left out."""
    return content[: content.rfind(b"\n") + 1].splitlines()


def half_line(content: bytes) -> bytes:
    """The partial line at the end; empty unless a write was interrupted."""
    return content[content.rfind(b"\n") + 1 :]


def cut_half_line(file: IO[bytes], content: bytes) -> None:
    """Remove a partial last line of `content`, the whole file. Call it only once the file is known to be ours."""
    file.truncate(len(content) - len(half_line(content)))
