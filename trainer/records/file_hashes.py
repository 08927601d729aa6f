"""Hashes of the files beside a run's record, which its signature thereby covers. A checkpoint's manifest has the
checkpoint's hash. Names are looked up in the folder, never taken from an untrusted record.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from gangway.trainer.core.regular_files import open_regular
from gangway.trainer.records.quantity import Frozen
from gangway.trainer.records.stats_log import STATS_FILE

_FILES = (STATS_FILE, "reals.png", "samples.png")
_FOLDERS = (("samples", ".png"), ("checkpoints", ".json"))
_BLOCK_BYTES = 1 << 20


class FileSum(Frozen):
    """Length and SHA-256 of a file when the record was written."""

    bytes: int = Field(ge=0)
    sha256: str


def get_sums(folder: Path) -> dict[str, FileSum]:
    """Length and hash of each file that a record covers, by name; unreadable files are left out."""
    found = {}
    for name in _names(folder):
        try:
            found[name] = _sum(folder, name)
        except OSError:
            continue
    return found


def changed_since(folder: Path, sums: Mapping[str, FileSum], *, done: bool) -> list[str]:
    """Names of changed or unknown files. Files may be missing, and grow while a run is not `done`."""
    return [name for name in _names(folder) if not _is_unchanged(folder, name, sums.get(name), done)]


def _is_unchanged(folder: Path, name: str, recorded: FileSum | None, done: bool) -> bool:
    if recorded is None:
        return not done
    may_grow = name == STATS_FILE and not done
    try:
        return _sum(folder, name, recorded.bytes if may_grow else None) == recorded
    except OSError:
        return False


def _names(folder: Path) -> list[str]:
    found = [name for name in _FILES if os.path.lexists(folder / name)]
    for inner, ending in _FOLDERS:
        names = sorted(path.name for path in (folder / inner).glob(f"*{ending}"))
        found += [f"{inner}/{name}" for name in names if not name.startswith(".")]
    return found


def _sum(folder: Path, name: str, first_bytes: int | None = None) -> FileSum:
    content = hashlib.sha256()
    with os.fdopen(open_regular(folder, name), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        remaining = size = size if first_bytes is None else min(size, first_bytes)
        while remaining and (block := file.read(min(remaining, _BLOCK_BYTES))):
            content.update(block)
            remaining -= len(block)
    return FileSum(bytes=size - remaining, sha256=content.hexdigest())
