"""Reads parts of files in run folders that other users may write: no links below the named folder, limited sizes."""

import os
from pathlib import Path
from typing import NamedTuple

from gangway.components.core.safe_text import one_line, visible
from gangway.trainer.core.regular_files import open_regular

MOST_LOG_BYTES = 32_000
"""Of the end of a log; with escapes five times as many on the page."""


class Part(NamedTuple):
    """Bytes of a file from `start`, and the file's size."""

    content: bytes
    start: int
    size: int


def read_part(root: Path, name: str, start: int, most_bytes: int) -> Part:
    """At most `most_bytes` from `start`, or from the end if `start` is negative. OSError as `read_regular`."""
    with os.fdopen(open_regular(root, name), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = max(0, size - most_bytes) if start < 0 else start
        file.seek(start)
        return Part(file.read(most_bytes), start, size)


def read_tail(root: Path, name: str, most_bytes: int) -> list[bytes]:
    """The complete lines at the end, without one that is cut at the front. OSError as `read_part`."""
    part = read_part(root, name, -1, most_bytes)
    content = part.content.rpartition(b"\n")[0]
    return (content.partition(b"\n")[2] if part.start else content).split(b"\n")


def log_text(content: bytes) -> str:
    """The end of a log, with control characters visible."""
    text = content[-MOST_LOG_BYTES:].decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    return visible(text)


def clip(text: object, most: int = 80) -> str:
    """An untrusted text for a cell of a table: on one line, with control characters visible, not too long."""
    whole = str(text)
    return one_line(whole[:most]) + ("..." if len(whole) > most else "")
