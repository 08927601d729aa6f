"""Where a data set's files are read from: a folder, a zip archive, or a bucket, all alike and uncached."""

import functools
import hashlib
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trainer.data.buckets import Bucket, fetch, is_hidden, is_remote, no_such_source
from trainer.errors import TrainerError

__all__ = ["FileSet", "LocalFolder", "files_in", "fingerprint", "read_text"]


class FileSet(Protocol):
    """Named files that can be read, also in another process. `place` is the path or URL, for messages."""

    @property
    def place(self) -> str:
        """Path or URL, for messages."""
        ...

    def sizes(self) -> dict[str, int]:
        """Bytes of every file by its name relative to the place, sorted by name, without hidden files. TrainerError:
        the place cannot be listed.
        """
        ...

    def read(self, name: str) -> bytes:
        """A file's content (OSError: unreadable)."""
        ...


@dataclass(frozen=True)
class LocalFolder:
    """A FileSet of a folder on this machine."""

    root: Path

    @property
    def place(self) -> str:
        """The folder."""
        return str(self.root)

    def sizes(self) -> dict[str, int]:
        """As FileSet."""
        found = {}
        for parent, folders, names in os.walk(self.root):
            folders[:] = [folder for folder in folders if not folder.startswith(".")]
            for name in names:
                if not name.startswith("."):
                    path = Path(parent, name)
                    found[path.relative_to(self.root).as_posix()] = path.stat().st_size
        return dict(sorted(found.items()))

    def read(self, name: str) -> bytes:
        """As FileSet."""
        return (self.root / name).read_bytes()


@dataclass(frozen=True)
class _Zip:
    path: Path

    @property
    def place(self) -> str:
        return str(self.path)

    def sizes(self) -> dict[str, int]:
        try:
            members = _opened_zip(self.path).infolist()
        except (OSError, zipfile.BadZipFile) as error:
            raise _damaged(self.place, str(error)) from None
        files = {member.filename: member.file_size for member in members if not member.is_dir()}
        visible = {name: size for name, size in files.items() if not is_hidden(name)}
        return dict(sorted(visible.items()))

    def read(self, name: str) -> bytes:
        try:
            return _opened_zip(self.path).read(name)
        except (zipfile.BadZipFile, EOFError) as error:
            raise OSError(f"damaged in the archive: {error}") from None


def files_in(source: str, copies: Path) -> FileSet:
    """The files of a folder, a zip archive (.zip) or a bucket (TrainerError: no such source). A remote archive is kept
    under `copies`, the data set's folder, while it is prepared.
    """
    if source.lower().endswith(".zip"):
        return _Zip(fetch(source, copies))
    if is_remote(source):
        return Bucket(source)
    path = Path(source)
    if not path.is_dir():
        raise no_such_source(source, "a folder or a .zip archive")
    return LocalFolder(path)


def read_text(files: FileSet, name: str) -> str:
    """A small text file of a set (TrainerError: unreadable)."""
    try:
        return files.read(name).decode("utf-8", "replace")
    except OSError as error:
        raise TrainerError(
            place=f"{name} of {files.place}", problem=f"cannot be read: {error}", fix="copy it again"
        ) from None


def fingerprint(sizes: dict[str, int]) -> str:
    """Identifies a set of files without reading them: a hash over their names and sizes."""
    listing = "".join(f"{name}\0{size}\n" for name, size in sorted(sizes.items()))
    return f"sha256 over {len(sizes)} names and sizes {hashlib.sha256(listing.encode()).hexdigest()}"


@functools.lru_cache(maxsize=1)  # one archive a process; reading its directory takes seconds
def _opened_zip(path: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(path)


def _damaged(place: str, why: str) -> TrainerError:
    return TrainerError(
        place=place, problem=f"the archive is damaged: {why}", fix="fetch it again; it may be cut short"
    )
