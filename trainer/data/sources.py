"""Where a data set's files are read from: a folder, a zip archive, or a bucket (s3://, gs://, az://), all alike."""

import functools
import hashlib
import os
import shutil
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from trainer.core.console import Progress
from trainer.core.errors import TrainerError
from trainer.core.file_errors import check_reachable
from trainer.core.files import atomic_writer
from trainer.core.memory_limit import memory_limit

if TYPE_CHECKING:
    from obstore.fsspec import FsspecStore

REMOTE = ("s3", "gs", "az")
_COPIES = ".source"
_COPY_BYTES = 8 << 20
_LARGEST_MEMBER_BYTES = 2 << 30
_SMALL_BYTES = 16 << 20
"""Up to here a member may shrink as much as it likes: a bitmap of one colour does."""
_MOST_EXPANSION = 100
_MOST_LISTING_BYTES = 4 << 30
"""Of memory for the names of an archive's members: ten million of them."""


@dataclass(frozen=True)
class Bucket:
    """A FileSet of what lies below a URL."""

    url: str

    @property
    def place(self) -> str:
        """The URL."""
        return self.url

    def sizes(self) -> dict[str, int]:
        """As FileSet."""
        root = self.url.partition("://")[2].rstrip("/")
        try:
            found = _store(self.url).find(root, detail=True)
        except Exception as error:  # obstore has an exception for every kind of failure, and no common base
            raise _unreachable(self.url, error) from None
        files = {name[len(root) + 1 :]: info["size"] for name, info in found.items() if name.startswith(f"{root}/")}
        return dict(sorted((name, size) for name, size in files.items() if not is_hidden(name)))

    def read(self, name: str) -> bytes:
        """As FileSet, but TrainerError, no broken file, where storage does not answer after obstore's retries."""
        url = f"{self.url.rstrip('/')}/{name}"
        try:
            content: bytes = _store(self.url).cat_file(url)
        except FileNotFoundError:
            raise OSError("not found") from None
        except Exception as error:  # as above
            raise _unreachable(url, error) from None
        return bytes(content)


def is_remote(source: str) -> bool:
    """Whether a source is a URL (TrainerError: of a kind that is not read)."""
    scheme, found, _ = source.partition("://")
    if not found:
        return False
    if scheme not in REMOTE:
        raise TrainerError(
            place="--source",
            problem="not a kind of storage that is read",
            value=source,
            allowed="a local path, " + ", ".join(f"{name}://..." for name in REMOTE),
            fix="copy the files to one of these first",
        )
    return True


def fetch(source: str, copies: Path) -> Path:
    """A file on this machine: itself when local, else a copy under `copies`, the data set's folder, whole or not at
    all. TrainerError: there is no such file, the storage cannot be reached, or the disk is full.
    """
    if not is_remote(source):
        check_reachable(Path(source))
        if not Path(source).is_file():
            raise no_such_source(source, "a file")
        return Path(source)
    name = hashlib.sha256(source.encode()).hexdigest()[:16] + "-" + source.rpartition("/")[2]
    copy = copies / _COPIES / name
    store = _store(source)
    try:
        size = int(store.info(source)["size"])
    except Exception as error:  # obstore has an exception for every kind of failure, and no common base
        raise _unreachable(source, error) from None
    if not (copy.is_file() and copy.stat().st_size == size):
        progress = Progress(f"copying {source}", size, unit="bytes")
        with atomic_writer(copy) as file:
            for start in range(0, size, _COPY_BYTES):
                end = min(start + _COPY_BYTES, size)
                try:
                    content = bytes(store.cat_file(source, start=start, end=end))
                except Exception as error:  # as above
                    raise _unreachable(source, error) from None
                file.write(content)
                progress.add(len(content))
        progress.close()
    return copy


def drop_copies(copies: Path) -> None:
    """Removes the archives that `fetch` copied, once their shards are complete."""
    shutil.rmtree(copies / _COPIES, ignore_errors=True)


def is_hidden(name: str) -> bool:
    """Also what a Mac puts beside every file of an archive."""
    return any(part.startswith(".") or part == "__MACOSX" for part in name.split("/"))


def no_such_source(source: str, allowed: str) -> TrainerError:
    """The error of a source that is not there."""
    return TrainerError(
        place="--source",
        problem="there is no such source",
        value=source,
        allowed=allowed,
        fix="name the folder or file that holds the data; docs/data.md says where to get each data set",
    )


def _store(url: str) -> "FsspecStore":
    from obstore.fsspec import FsspecStore

    scheme: Any = url.partition("://")[0]  # one of REMOTE, each of which has an overload of its own
    store: FsspecStore = FsspecStore(scheme)
    return store


def _unreachable(url: str, error: Exception) -> TrainerError:
    return TrainerError(
        place="--source",
        problem=f"cannot be read: {_first_line(error)}",
        value=url,
        allowed="a bucket that exists, with credentials in this shell's environment",
        fix="try the cloud's own command line (aws s3 ls, gcloud storage ls, az storage blob list) with this name",
    )


def _first_line(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "not found"
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


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
            with memory_limit(_MOST_LISTING_BYTES):
                members = _opened_zip(self.path).infolist()
        except MemoryError:
            raise _damaged(self.place, f"its listing takes more than {_MOST_LISTING_BYTES >> 30} GiB") from None
        except (OSError, ValueError, NotImplementedError, struct.error, zipfile.BadZipFile) as error:
            raise _damaged(self.place, str(error)) from None
        files = {member.filename: member.file_size for member in members if not member.is_dir()}
        visible = {name: size for name, size in files.items() if not is_hidden(name)}
        return dict(sorted(visible.items()))

    def read(self, name: str) -> bytes:
        try:
            archive = _opened_zip(self.path)
            _check_expansion(archive.getinfo(name))
            return archive.read(name)  # of a member that holds more than it says, zipfile gives what it says
        except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, zlib.error) as error:
            raise OSError(f"damaged in the archive: {error}") from None


def _check_expansion(member: zipfile.ZipInfo) -> None:
    """OSError: a member that would fill the memory, or becomes so much more than it is that it is no picture or film,
    which hardly shrink in an archive.
    """
    size = member.file_size
    if size > _LARGEST_MEMBER_BYTES:
        raise OSError(f"too large in the archive: {size:,} bytes, at most {_LARGEST_MEMBER_BYTES:,} are read at once")
    if size > _SMALL_BYTES and size > _MOST_EXPANSION * member.compress_size:
        raise OSError(f"a bomb: {member.compress_size:,} bytes in the archive become {size:,}")


def files_in(source: str, copies: Path) -> FileSet:
    """The files of a folder, a zip archive (.zip) or a bucket (TrainerError: no such source). A remote archive is kept
    under `copies`, the data set's folder, while it is prepared.
    """
    if source.lower().endswith(".zip"):
        return _Zip(fetch(source, copies))
    if is_remote(source):
        return Bucket(source)
    path = Path(source)
    check_reachable(path)
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
