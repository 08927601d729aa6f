"""Sums of what lies beside a run's record. They stand in the record, so whoever signs it answers for those files too.

A checkpoint's manifest has the checkpoint's own sum. Names are looked for in the folder, never taken from a record,
which may be a stranger's.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from trainer.core.regular_files import open_regular
from trainer.records.quantity import Frozen
from trainer.records.stats_log import STATS_FILE

_FILES = (STATS_FILE, "reals.png", "samples.png")
_FOLDERS = (("samples", ".png"), ("checkpoints", ".json"))
_BLOCK_BYTES = 1 << 20


class FileSum(Frozen):
    """A file as it was when the record was written.

    Attributes:
        bytes: its length.
        sha256: of these bytes, hexadecimal.
    """

    bytes: int = Field(ge=0)
    sha256: str


def get_sums(folder: Path) -> dict[str, FileSum]:
    """Of each file that a record answers for, by its name in the run's folder. What cannot be read has none."""
    found = {}
    for name in _names(folder):
        try:
            found[name] = _sum(folder, name)
        except OSError:
            continue
    return found


def changed_since(folder: Path, sums: Mapping[str, FileSum], *, done: bool) -> list[str]:
    """The names of files that are not what the record says of them, or that it does not know. One that is away is no
    change: not every copy has all. Of a run that was not `done` statistics and checkpoints may have gone on since.
    """
    return [name for name in _names(folder) if not _fits(folder, name, sums.get(name), done)]


def _fits(folder: Path, name: str, promised: FileSum | None, done: bool) -> bool:
    if promised is None:
        return not done
    goes_on = name == STATS_FILE and not done
    try:
        return _sum(folder, name, promised.bytes if goes_on else None) == promised
    except OSError:
        return False


def _names(folder: Path) -> list[str]:
    found = [name for name in _FILES if os.path.lexists(folder / name)]
    for inner, ending in _FOLDERS:
        there = sorted(path.name for path in (folder / inner).glob(f"*{ending}"))
        found += [f"{inner}/{name}" for name in there if not name.startswith(".")]
    return found


def _sum(folder: Path, name: str, first_bytes: int | None = None) -> FileSum:
    """Of a file, or of its beginning."""
    content = hashlib.sha256()
    with os.fdopen(open_regular(folder, name), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        left = size = size if first_bytes is None else min(size, first_bytes)
        while left and (block := file.read(min(left, _BLOCK_BYTES))):
            content.update(block)
            left -= len(block)
    return FileSum(bytes=size - left, sha256=content.hexdigest())
