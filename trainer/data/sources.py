"""Where a data set's files are read from: a folder, a zip archive, or a bucket (s3://, gs://, az://), all alike."""

import errno
import functools
import hashlib
import os
import re
import shlex
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from trainer.core.console import Progress
from trainer.core.errors import TrainerError
from trainer.core.file_errors import check_reachable, file_problem
from trainer.core.files import atomic_writer
from trainer.core.memory_limit import memory_limit
from trainer.core.regular_files import read_file
from trainer.data.listing import BROKEN_LINK, Listing, Tally

if TYPE_CHECKING:
    from obstore.fsspec import FsspecStore

_GRAMMAR = MappingProxyType(
    {"s3": "s3://BUCKET/FOLDER", "gs": "gs://BUCKET/FOLDER", "az": "az://ACCOUNT/CONTAINER/FOLDER"}
)
# As components.core.blob_url, which the trainer imports nothing of; a test compares both.
_BLOBS = re.compile(r"az://(?P<account>[a-z0-9]{3,24})/(?P<path>(?P<container>[a-z0-9](-?[a-z0-9]){1,62})(/.*)?)")
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

    def listing(self) -> Listing:
        """As FileSet."""
        store, root = _located(self.url)
        tally = Tally()
        try:
            for path, folders, files in store.walk(root, detail=True):
                inside = f"{path}/"[len(root) + 1 :]
                # The clouds' consoles make an empty object for a folder, of its own name.
                held = [name for name in files if name and name not in folders]
                for name in held:
                    tally.add(inside + name, files[name]["size"])
                if inside and not (held or folders) and not tally.hides(inside.rstrip("/"), is_folder=True):
                    tally.skip("folder", "empty", inside.rstrip("/"))
        except Exception as error:  # obstore has an exception for every kind of failure, and no common base
            raise _unreachable(self.url, error) from None
        return tally.listing()

    def read(self, name: str) -> bytes:
        """As FileSet, but TrainerError, no broken file, where storage does not answer after obstore's retries."""
        store, root = _located(self.url)
        try:
            content: bytes = store.cat_file(f"{root}/{name}")
        except FileNotFoundError:
            raise OSError("not found") from None
        except Exception as error:  # as above
            raise _unreachable(f"{self.url.rstrip('/')}/{name}", error) from None
        return bytes(content)


def is_remote(source: str) -> bool:
    """Whether a source is a URL (TrainerError: of a kind that is not read)."""
    scheme, found, _ = source.partition("://")
    if not found:
        return False
    if scheme not in _GRAMMAR:
        raise TrainerError(
            place="--source",
            problem="not a kind of storage that is read",
            value=source,
            allowed="a local path, " + ", ".join(_GRAMMAR.values()),
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
    store, name_there = _located(source)
    try:
        size = int(store.info(name_there)["size"])
    except Exception as error:  # obstore has an exception for every kind of failure, and no common base
        raise _unreachable(source, error) from None
    if not (copy.is_file() and copy.stat().st_size == size):
        progress = Progress(f"copying {source}", size, unit="bytes")
        with atomic_writer(copy) as file:
            for start in range(0, size, _COPY_BYTES):
                end = min(start + _COPY_BYTES, size)
                try:
                    content = bytes(store.cat_file(name_there, start=start, end=end))
                except Exception as error:  # as above
                    raise _unreachable(source, error) from None
                file.write(content)
                progress.add(len(content))
        progress.close()
    return copy


def drop_copies(copies: Path) -> None:
    """Removes the archives that `fetch` copied, once their shards are complete."""
    shutil.rmtree(copies / _COPIES, ignore_errors=True)


def no_such_source(source: str, allowed: str) -> TrainerError:
    """The error of a source that is not there."""
    return TrainerError(
        place="--source",
        problem="there is no such source",
        value=source,
        allowed=allowed,
        fix="name the folder or file that holds the data; docs/data.md says where to get each data set",
    )


def split_url(url: str) -> tuple[str, str, str]:
    """Scheme, Azure's account (elsewhere empty), and path, which begins with the bucket. TrainerError: no account, no
    container, or a folder that could be none.
    """
    scheme, _, path = url.partition("://")
    if scheme != "az":
        return scheme, "", path.rstrip("/")
    found = _BLOBS.fullmatch(url)
    path = found["path"].removesuffix("/") if found else ""
    if not found or not 3 <= len(found["container"]) <= 63 or {"", ".", ".."} & set(path.split("/")):
        raise TrainerError(
            place="--source",
            problem="not a place in Azure's blob storage",
            value=url,
            allowed="az://ACCOUNT/CONTAINER or az://ACCOUNT/CONTAINER/FOLDER/FOLDER, no folder empty, . or ..",
            fix="write it like az://mydata/images/celeba",
        )
    return scheme, found["account"], path


def _located(url: str) -> tuple["FsspecStore", str]:
    """The store of a URL, and the path in it."""
    from obstore.fsspec import FsspecStore

    scheme, account, path = split_url(url)
    kind: Any = scheme  # one of three, each of which has an overload of its own
    store: FsspecStore = FsspecStore(kind, account_name=account) if account else FsspecStore(kind)
    return store, path


def _unreachable(url: str, error: Exception) -> TrainerError:
    return TrainerError(
        place="--source",
        problem=f"cannot be read: {_first_line(error)}",
        value=url,
        allowed=f"a bucket that exists ({', '.join(_GRAMMAR.values())}), with credentials in this shell's environment",
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

    def listing(self) -> Listing:
        """Every file, and what is left out. TrainerError: the place, or a folder of it, cannot be listed."""
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

    def listing(self) -> Listing:
        """As FileSet. Links are followed, but for those to a folder that they are in."""
        tally = Tally()
        status = _status(self.root)
        assert status is not None, "a folder: files_in has looked"
        open_folders = [(self.root, "", frozenset({(status.st_dev, status.st_ino)}))]
        while open_folders:
            path, prefix, above = open_folders.pop()
            entries = _entries(path)
            if prefix and not entries:
                tally.skip("folder", "empty", prefix.rstrip("/"))
            for entry in entries:
                name = prefix + entry.name
                if tally.hides(name, is_folder=entry.is_dir(follow_symlinks=False)):
                    continue
                if (status := _status(Path(entry.path))) is None:
                    tally.skip("link", BROKEN_LINK, name)
                elif stat.S_ISREG(status.st_mode):
                    tally.add(name, status.st_size)
                elif not stat.S_ISDIR(status.st_mode):
                    tally.skip("device, socket or pipe", "not a file", name)
                elif (identity := (status.st_dev, status.st_ino)) in above:
                    tally.skip("link", "leads to a folder that it is in", name)
                else:
                    open_folders.append((Path(entry.path), f"{name}/", above | {identity}))
        return tally.listing()

    def read(self, name: str) -> bytes:
        """As FileSet."""
        return read_file(self.root / name, _LARGEST_MEMBER_BYTES)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise _unlisted(folder, error) from None


def _status(path: Path) -> os.stat_result | None:
    """Of what a path, or the link there, leads to; None for a link that leads nowhere."""
    try:
        return path.stat()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP) and path.is_symlink():
            return None
        raise _unlisted(path, error) from None


def _unlisted(path: Path, error: OSError) -> TrainerError:
    found = file_problem(error)
    return TrainerError(
        place=str(path),
        problem=f"cannot be listed: {found.problem if found else error.strerror}",
        fix=f"make it readable (chmod -R u+rX {shlex.quote(str(path))}), or move it out of the source",
    )


@dataclass(frozen=True)
class _Zip:
    path: Path

    @property
    def place(self) -> str:
        return str(self.path)

    def listing(self) -> Listing:
        try:
            with memory_limit(_MOST_LISTING_BYTES):
                archive = _opened_zip(self.path).archive
                members = [(_member_name(member), member) for member in archive.infolist()]
        except MemoryError:
            raise _damaged(self.place, f"its listing takes more than {_MOST_LISTING_BYTES >> 30} GiB") from None
        except (OSError, ValueError, NotImplementedError, struct.error, zipfile.BadZipFile) as error:
            raise _damaged(self.place, str(error)) from None
        tally = Tally()
        for name, member in members:
            if _is_link(member):
                if not tally.hides(name):
                    tally.skip("link", "not followed in an archive", name)
            elif not _is_folder(member):
                tally.add(name, member.file_size)
        tally.skip_empty(
            (name for name, member in members if name and _is_folder(member)), (name for name, _ in members)
        )
        return tally.listing()

    def read(self, name: str) -> bytes:
        try:
            opened = _opened_zip(self.path)
            member = opened.members[name]
            _check_expansion(member)
            return opened.archive.read(member)  # of a member that holds more than it says, zipfile gives what it says
        except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, zlib.error) as error:
            raise OSError(f"damaged in the archive: {error}") from None


def _member_name(member: zipfile.ZipInfo) -> str:
    """Without a slash at its end, or parts that say nothing; some programs on Windows write backslashes."""
    return "/".join(part for part in member.filename.replace("\\", "/").split("/") if part not in ("", "."))


def _is_folder(member: zipfile.ZipInfo) -> bool:
    return member.filename.endswith(("/", "\\"))


def _is_link(member: zipfile.ZipInfo) -> bool:
    return stat.S_ISLNK(member.external_attr >> 16)


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


def fingerprint(sizes: Mapping[str, int]) -> str:
    """Identifies a set of files without reading them: a hash over their names and sizes."""
    listing = "".join(f"{name}\0{size}\n" for name, size in sorted(sizes.items()))
    return f"sha256 over {len(sizes)} names and sizes {hashlib.sha256(listing.encode()).hexdigest()}"


class _OpenZip(NamedTuple):
    """An archive, and its members by the names that a listing has; of several with one name the last."""

    archive: zipfile.ZipFile
    members: Mapping[str, zipfile.ZipInfo]


@functools.lru_cache(maxsize=1)  # one archive a process; reading its directory takes seconds
def _opened_zip(path: Path) -> _OpenZip:
    archive = zipfile.ZipFile(path)
    files = (member for member in archive.infolist() if not (_is_folder(member) or _is_link(member)))
    return _OpenZip(archive, {_member_name(member): member for member in files})


def _damaged(place: str, why: str) -> TrainerError:
    return TrainerError(
        place=place, problem=f"the archive is damaged: {why}", fix="fetch it again; it may be cut short"
    )
