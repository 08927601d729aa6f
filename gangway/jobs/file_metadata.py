"""Modification times and modes of files, which a copy takes from its source: a command may choose its newest checkpoint
by time, and a program without its mode does not run.

Buckets keep neither, so the copy's manifest stores them with the hash of the content.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

_MODES = 0o777
"""Without setuid and setgid: a copy belongs to the copier."""
_OWN_READ, _OWN_FOLDER = 0o400, 0o700
"""The copier keeps access, to resume the same copy later."""


@dataclass(frozen=True)
class FileMetadata:
    """Of one file or folder. `mode`: None if unknown."""

    mtime_ns: int
    mode: int | None

    @classmethod
    def of(cls, path: Path) -> "FileMetadata":
        """Follows links. OSError."""
        seen = path.stat()
        return cls(seen.st_mtime_ns, seen.st_mode & _MODES)

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any], sha256: str, stored: datetime) -> "FileMetadata":
        """For an object, from its manifest entry if that describes this content; else the time it was stored."""
        if entry.get("sha256") == sha256 and "mtime_ns" in entry:
            return cls(entry["mtime_ns"], entry["mode"])
        return cls(int(stored.timestamp() * 1_000_000) * 1000, None)

    def entry(self) -> dict[str, int | None]:
        """The manifest entry."""
        return asdict(self)

    def apply_to(self, path: Path, least: int = _OWN_READ) -> str:
        """Applies them; why the file system refuses, or empty."""
        # A file system may support only one of them.
        mode = "" if self.mode is None else _trouble(partial(path.chmod, self.mode | least))
        time = _trouble(partial(os.utime, path, ns=(self.mtime_ns, self.mtime_ns)))
        return mode or time


def _trouble(call: Callable[[], None]) -> str:
    """The error of a call; empty if it succeeds."""
    try:
        call()
    except OSError as error:
        return error.strerror or type(error).__name__
    return ""


def copy_folder_metadata(source: Path, target: Path, names: Iterable[str]) -> list[str]:
    """Marks the folders of these files, after all files are written; why some cannot be marked. OSError."""
    folders = {str(above) for name in names for above in PurePosixPath(name).parents} - {"."}
    deepest_first = sorted(folders, key=lambda name: (-name.count("/"), name))
    problems = [FileMetadata.of(source / name).apply_to(target / name, _OWN_FOLDER) for name in deepest_first]
    return [problem for problem in problems if problem]


def missing_metadata_line(problems: Sequence[str]) -> tuple[str, ...]:
    """For the list of what was not copied."""
    return (f"times and modes of {len(problems)} files and folders ({problems[0]})",) if problems else ()
