"""When a file was last written, and who may read, write and run it: a copy has both of its source. A command may take
the newest of its checkpoints by that time, and a program without its mode does not run.

A bucket keeps neither. There they stand in the copy's manifest, beside the hash of the content that they are of.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

_MODES = 0o777
"""Not the bits by which a program runs as somebody else: a copy is the copier's."""
_OWN_READ, _OWN_FOLDER = 0o400, 0o700
"""Who copies has read it, perhaps as one of a group, and goes on with the same copy later."""


@dataclass(frozen=True)
class Marks:
    """Of one file or folder. `mode`: None where nobody knows it."""

    mtime_ns: int
    mode: int | None

    @classmethod
    def of(cls, path: Path) -> "Marks":
        """Of what a link leads to. OSError."""
        seen = path.stat()
        return cls(seen.st_mtime_ns, seen.st_mode & _MODES)

    @classmethod
    def said(cls, entry: Mapping[str, Any], sha256: str, stored: datetime) -> "Marks":
        """Of an object, by its entry in a manifest, where that is of this content and has them; else it was written
        when it was stored.
        """
        if entry.get("sha256") == sha256 and "mtime_ns" in entry:
            return cls(entry["mtime_ns"], entry["mode"])
        return cls(int(stored.timestamp() * 1_000_000) * 1000, None)

    def entry(self) -> dict[str, int | None]:
        """For a manifest."""
        return asdict(self)

    def put_on(self, path: Path, least: int = _OWN_READ) -> str:
        """Why a file system does not take them; empty where it does."""
        # One may be taken where the other is not.
        mode = "" if self.mode is None else _trouble(partial(path.chmod, self.mode | least))
        time = _trouble(partial(os.utime, path, ns=(self.mtime_ns, self.mtime_ns)))
        return mode or time


def _trouble(call: Callable[[], None]) -> str:
    """Why it could not be done; empty where it was."""
    try:
        call()
    except OSError as error:
        return error.strerror or type(error).__name__
    return ""


def mark_folders(source: Path, target: Path, names: Iterable[str]) -> list[str]:
    """Those in which the files of these names are, once all files are there; why some do not take them. OSError."""
    folders = {str(above) for name in names for above in PurePosixPath(name).parents} - {"."}
    deepest_first = sorted(folders, key=lambda name: (-name.count("/"), name))
    problems = [Marks.of(source / name).put_on(target / name, _OWN_FOLDER) for name in deepest_first]
    return [problem for problem in problems if problem]


def unmarked_line(problems: Sequence[str]) -> tuple[str, ...]:
    """For what does not travel."""
    return (f"times and modes of {len(problems)} files and folders ({problems[0]})",) if problems else ()
