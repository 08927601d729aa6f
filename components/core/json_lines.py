"""Append-only files of JSON lines: a line is on disk whole or not at all, and one process writes at a time."""

import errno
import fcntl
import json
import os
import time
from collections.abc import Mapping
from typing import IO, Any

_POLL_SEC, _ASKED_SEC = 0.05, 2.0


def lock(file: IO[bytes] | IO[str] | int) -> None:
    """For as long as the file, or descriptor, is open and no longer: a lock of the kernel dies with its holder.
    BlockingIOError: another process has it.
    """
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
