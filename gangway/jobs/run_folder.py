"""Scans a run folder on this machine. An object store is not used for this: it fails at names that it cannot represent
and at link cycles.

A copy takes times and modes from its source: a command may choose its newest checkpoint by time, and a program without
its mode does not run. Buckets keep neither, so the copy's manifest stores them with the hash of the content.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any

from gangway.components.core.findings import InputError
from gangway.components.core.whole_files import whole_file
from gangway.images.node.safe_files import is_unsafe_name
from gangway.jobs.job_folder import JobFolder

_ODD = re.compile(r"#[0-9]+$|[\x00-\x1f\x7f\udc80-\udcff]")
_MOST_NAME_BYTES = 240
_MODES = 0o777
"""Without setuid and setgid: a copy belongs to the copier."""
_OWN_READ, _OWN_FOLDER = 0o400, 0o700
"""The copier keeps access, to resume the same copy later."""


class CopyDamagedError(InputError):
    """The data read back differs from the data sent."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "arrived damaged", fix="repeat the move to copy it again")


@dataclass(frozen=True)
class RunFolder:
    """A folder's files, name -> bytes, including those behind links, and what is not a file."""

    files: Mapping[str, int]
    left_out: tuple[str, ...]

    @classmethod
    def scan(cls, folder: JobFolder) -> "RunFolder":
        """InputError: it cannot be read."""
        files, left_out, place = dict[str, int](), list[str](), folder.by_descriptor
        try:
            for name, size in _scan(place, "", (place.resolve(),)):
                if isinstance(size, str):
                    left_out.append(f"{name} ({size})")
                else:
                    files[name] = size
        except OSError as error:
            named = str(error.filename or place).replace(str(place), str(folder.path), 1)
            raise InputError(
                named, f"cannot be read: {error.strerror}", allowed="a readable run folder",
                fix="give the user who moves the job read access",
            ) from None  # fmt: skip
        return cls(files, tuple(sorted(left_out)))


class FolderStore:
    """The store interface of a copy for an open folder, whatever its path leads to by now. Files appear completely or
    not at all. Links inside are followed, since the copier made them. All methods raise OSError, and InputError for
    names that lead outside.
    """

    def __init__(self, folder: JobFolder) -> None:
        self.folder, self.path = folder, folder.by_descriptor

    def get(self, name: str) -> "_File":
        """Its content, for one read."""
        return _File(self._path(name))

    def head(self, name: str) -> Mapping[str, Any]:
        """Size, tag and time."""
        seen = self._path(name).stat()
        at = datetime.fromtimestamp(seen.st_mtime, UTC)
        return {"size": seen.st_size, "e_tag": f"{seen.st_ino:x}-{seen.st_mtime_ns:x}", "last_modified": at}

    def put(self, name: str, content: bytes) -> None:
        """Writes a small file."""
        with self.writer(name) as file:
            file.write(content)

    def delete(self, name: str) -> None:
        """Removes a file or link."""
        self._path(name).unlink()

    @contextmanager
    def writer(self, name: str) -> Iterator[IO[bytes]]:
        """Opens a file for writing, with its parent folders; it appears at the end, and not after an error."""
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            yield file

    def _path(self, name: str) -> Path:
        if is_unsafe_name(name):
            raise InputError(str(self.folder.path), "a name that leads out of the folder", value=name, fix="rename it")
        return self.path / name


class _File:
    def __init__(self, path: Path) -> None:
        self._path = path

    def stream(self, part_bytes: int) -> Iterator[bytes]:
        descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "it is no longer a regular file", self._path.name)
            while part := file.read(part_bytes):
                yield part

    def bytes(self) -> bytes:
        return b"".join(self.stream(1 << 20))


def is_odd(name: str) -> bool:
    """Whether buckets cannot store the name: a `#` suffix like obstore's partial files, odd characters, or too long."""
    parts = name.split("/")
    return bool(_ODD.search(name)) or any(len(os.fsencode(part)) > _MOST_NAME_BYTES for part in parts)


def remove_others(folder: Path, kept: Collection[str]) -> None:
    """Removes all but these files, including empty folders and links, without following links. OSError."""
    for walked, folders, files in os.walk(folder, topdown=False, onerror=_raise):
        above = Path(walked)
        links = [name for name in folders if (above / name).is_symlink()]  # some of the others were just removed
        for path in (above / name for name in (*files, *links)):
            if path.is_symlink() or str(path.relative_to(folder)) not in kept:
                path.unlink()
        if above != folder and not any(above.iterdir()):
            above.rmdir()


def _raise(error: OSError) -> None:
    raise error


def _scan(folder: Path, below: str, around: tuple[Path, ...]) -> Iterator[tuple[str, int | str]]:
    """Names with bytes, or why they cannot be copied. `around`: the folders on the way, resolved."""
    try:
        with os.scandir(folder) as entries:
            each = sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:
        return  # just removed: the job may be running
    if not each and below:
        yield below, "empty"
    for entry in each:
        name, path = f"{below}{entry.name}", folder / entry.name
        try:
            mode, size = (seen := path.stat()).st_mode, seen.st_size
        except OSError:  # a dangling or cyclic link, or a file just removed
            if path.is_symlink():
                yield name, "a link"
            continue
        if stat.S_ISDIR(mode):
            real = path.resolve()
            if any(real == one or real in one.parents for one in around):
                yield name, "a link to a parent folder"
            else:
                yield from _scan(path, f"{name}/", (*around, real))
        elif not stat.S_ISREG(mode):
            yield name, "not a regular file"
        elif not os.access(path, os.R_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        else:
            yield name, size


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
