"""What a run's folder on this machine holds, looked through without an object store, which stops at the first name that
it cannot say and at links in a circle.
"""

import errno
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from components.core.findings import InputError
from components.core.whole_files import whole_file
from gangway.jobs.job_folder import JobFolder
from images.node.safe_files import is_unsafe_name

_ODD = re.compile(r"#[0-9]+$|[\x00-\x1f\x7f\udc80-\udcff]")
_MOST_NAME_BYTES = 240


class CopyDamagedError(InputError):
    """What was read back is not what was sent."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "what arrived is not what was sent", fix="the same move again copies it again")


@dataclass(frozen=True)
class RunFolder:
    """Of one folder, files that links lead to among them.

    Attributes:
        files: name -> bytes.
        left_out: what is no file: empty folders, links that lead nowhere or to a folder around them, devices.
    """

    files: Mapping[str, int]
    left_out: tuple[str, ...]

    @classmethod
    def look(cls, folder: JobFolder) -> "RunFolder":
        """InputError: it cannot be read."""
        files, left_out, place = dict[str, int](), list[str](), folder.by_descriptor
        try:
            for name, size in _found(place, "", (place.resolve(),)):
                if isinstance(size, str):
                    left_out.append(f"{name} ({size})")
                else:
                    files[name] = size
        except OSError as error:
            named = str(error.filename or place).replace(str(place), str(folder.path), 1)
            raise InputError(
                named, f"cannot be read: {error.strerror}", allowed="a run folder to be copied",
                fix="let whoever moves the job read it",
            ) from None  # fmt: skip
        return cls(files, tuple(sorted(left_out)))


class FolderStore:
    """What a copy asks of a store, of a folder that is held open: whatever has its name by then, nothing else is read
    or written. A file is there whole or not at all. Links in it are followed, for who copies has made them. All raises
    OSError; a name that leads out of it InputError.
    """

    def __init__(self, folder: JobFolder) -> None:
        self.folder, self.path = folder, folder.by_descriptor

    def get(self, name: str) -> "_File":
        """Its content, to be read once."""
        return _File(self._path(name))

    def head(self, name: str) -> Mapping[str, Any]:
        """By which it is known to be the same."""
        seen = self._path(name).stat()
        at = datetime.fromtimestamp(seen.st_mtime, UTC)
        return {"size": seen.st_size, "e_tag": f"{seen.st_ino:x}-{seen.st_mtime_ns:x}", "last_modified": at}

    def put(self, name: str, content: bytes) -> None:
        """A small file."""
        with self.writer(name) as file:
            file.write(content)

    def delete(self, name: str) -> None:
        """A file or a link."""
        self._path(name).unlink()

    @contextmanager
    def writer(self, name: str) -> Iterator[IO[bytes]]:
        """A file, with the folders around it; it appears at the end, and after an error not at all."""
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
        """In parts of that size."""
        descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "it is no regular file any more", self._path.name)
            while part := file.read(part_bytes):
                yield part

    def bytes(self) -> bytes:
        """All of it."""
        return b"".join(self.stream(1 << 20))


def is_odd(name: str) -> bool:
    """Whether no bucket here takes a file of that name: its end is what obstore calls a file that it has by half,
    some of it is no letter, or there is no room for that end.
    """
    parts = name.split("/")
    return bool(_ODD.search(name)) or any(len(os.fsencode(part)) > _MOST_NAME_BYTES for part in parts)


def remove_others(folder: Path, kept: Collection[str]) -> None:
    """Leaves nothing in a folder but files of these names: neither folders that are empty then nor links, which are
    followed nowhere. OSError.
    """
    for walked, folders, files in os.walk(folder, topdown=False, onerror=_raise):
        above = Path(walked)
        links = [name for name in folders if (above / name).is_symlink()]  # of the others some have just been removed
        for path in (above / name for name in (*files, *links)):
            if path.is_symlink() or str(path.relative_to(folder)) not in kept:
                path.unlink()
        if above != folder and not any(above.iterdir()):
            above.rmdir()


def _raise(error: OSError) -> None:
    raise error


def _found(folder: Path, below: str, around: tuple[Path, ...]) -> Iterator[tuple[str, int | str]]:
    """Names with bytes, or why they do not travel. `around`: the folders that one has come through, without links."""
    try:
        with os.scandir(folder) as entries:
            each = sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:
        return  # it has just gone: the job may be at work
    if not each and below:
        yield below, "empty"
    for entry in each:
        name, path = f"{below}{entry.name}", folder / entry.name
        try:
            mode, size = (seen := path.stat()).st_mode, seen.st_size
        except OSError:  # a link to nothing or in a circle, or a file that has just gone
            if path.is_symlink():
                yield name, "a link"
            continue
        if stat.S_ISDIR(mode):
            real = path.resolve()
            if any(real == one or real in one.parents for one in around):
                yield name, "a link to a folder around it"
            else:
                yield from _found(path, f"{name}/", (*around, real))
        elif not stat.S_ISREG(mode):
            yield name, "no file"
        elif not os.access(path, os.R_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        else:
            yield name, size
