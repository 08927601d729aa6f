"""Sources of data sets: a folder, a zip archive or a bucket, their files by name and hash, and what is skipped."""

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
from io import BufferedReader
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from gangway.trainer.core.console import Progress
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.files import atomic_writer
from gangway.trainer.core.host import memory_limit
from gangway.trainer.core.regular_files import check_reachable, file_problem, open_file, read_file

if TYPE_CHECKING:
    from obstore.fsspec import FsspecStore

from collections.abc import Collection, Iterable

from gangway.trainer.records.quantity import Frozen

MOST_NAMES = 1000  # Names kept per kind and reason; the count includes all
BROKEN_LINK = "leads nowhere"
BROKEN_NAME = "name is not UTF-8"
_SUFFIX = re.compile(r"\.[a-z][a-z0-9]{0,6}")


class Skipped(Frozen):
    """Entries of one kind skipped for the same reason; `kind` such as `.txt file`, `names` the first `MOST_NAMES`."""

    kind: str
    reason: str
    count: int
    names: tuple[str, ...]

    @property
    def is_broken(self) -> bool:
        """Whether they need --skip-broken: each may be an image or a folder of images."""
        return self.reason in (BROKEN_LINK, BROKEN_NAME)


class Tally:
    """Builds a listing; `files` are bytes by name."""

    def __init__(self, skipped: Iterable[Skipped] = ()) -> None:
        self.files: dict[str, int] = {}
        self._names: dict[tuple[str, str], list[str]] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self._hidden_folders: set[str] = set()
        for each in skipped:
            self._names[each.kind, each.reason] = list(each.names)
            self._counts[each.kind, each.reason] = each.count

    def skip(self, kind: str, reason: str, name: str) -> None:
        """Count a skipped entry."""
        key = kind, reason
        self._counts[key] = self._counts.get(key, 0) + 1
        names = self._names.setdefault(key, [])
        if len(names) < MOST_NAMES:
            names.append(name.encode("utf-8", "backslashreplace").decode())

    def add(self, name: str, size: int) -> None:
        """Add a file. Of duplicate names the last counts, as when unpacked."""
        if self.hides(name):
            return
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            self.skip(get_kind(name), BROKEN_NAME, name)
            return
        if name in self.files:
            self.skip(get_kind(name), "name is there again; the last is read", name)
        self.files[name] = size

    def hides(self, name: str, *, is_folder: bool = False) -> bool:
        """Whether the name or a parent folder is hidden; counts hidden entries, a folder once."""
        parts = name.split("/")
        first = next((number for number, part in enumerate(parts) if part.startswith(".") or part == "__MACOSX"), None)
        if first is None:
            return False
        hidden = "/".join(parts[: first + 1])
        if not is_folder and first == len(parts) - 1:
            self.skip("file", "hidden", hidden)
        elif hidden not in self._hidden_folders:
            self._hidden_folders.add(hidden)
            self.skip("folder", "hidden", hidden)
        return True

    def skip_empty(self, folders: Iterable[str], entries: Iterable[str]) -> None:
        """Count folders without entries in a flat listing."""
        full = ancestors(entries)
        for folder in folders:
            if folder not in full and not self.hides(folder, is_folder=True):
                self.skip("folder", "empty", folder)

    def listing(self) -> "Listing":
        """The listing: files sorted by name, skipped entries by count."""
        keys = sorted(self._counts, key=lambda key: (-self._counts[key], key))
        skipped = (
            Skipped(kind=kind, reason=reason, count=self._counts[kind, reason], names=tuple(self._names[kind, reason]))
            for kind, reason in keys
        )
        return Listing(dict(sorted(self.files.items())), tuple(skipped))


@dataclass(frozen=True)
class Listing:
    """Bytes of every file by name relative to the source, sorted, and skipped entries."""

    files: Mapping[str, int]
    skipped: tuple[Skipped, ...] = ()

    def with_suffix(self, suffixes: tuple[str, ...], reason: str, own: Collection[str] = ()) -> "Listing":
        """The files with these suffixes; others are skipped, except for `own` files."""
        tally = Tally(self.skipped)
        for name, size in self.files.items():
            if name.lower().endswith(suffixes):
                tally.files[name] = size
            elif name not in own:
                tally.skip(get_kind(name), reason, name)
        return tally.listing()


def get_kind(name: str) -> str:
    """A file's kind in a table: `.txt file`; `file` without a suffix of letters."""
    base, dot, suffix = name.rpartition("/")[2].rpartition(".")
    found = f"{dot}{suffix}".lower()
    return f"{found} file" if base and _SUFFIX.fullmatch(found) else "file"


def ancestors(names: Iterable[str]) -> set[str]:
    """All parent folders of these entries."""
    found = set[str]()
    for name in names:
        while (name := name.rpartition("/")[0]) and name not in found:
            found.add(name)
    return found


def table(skipped: Collection[Skipped], most_rows: int = 20) -> list[str]:
    """Table rows for a terminal: count, kind, reason and an example."""
    rows = [(f"{each.count:,}", each.kind, each.reason, each.names[0]) for each in list(skipped)[:most_rows]]
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:3]]
    lines = [
        f"  {count:>{widths[0]}}  {kind:<{widths[1]}}  {reason:<{widths[2]}}  {name}"
        for count, kind, reason, name in rows
    ]
    more = len(skipped) - most_rows
    return [*lines, f"  and {more} more kinds and reasons"] if more > 0 else lines


FLAG = "--allow-other-hash"  # Accepts other content than the publisher's; the index records it


def md5_of(path: Path) -> str:
    """The file's MD5: what publishers of data sets state. Protects from accidents, not from forgery."""
    with open_file(path) as file:
        return hashlib.file_digest(cast(BufferedReader, file), lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def check_md5(path: Path, md5: str, official: Mapping[str, str], *, allow_other: bool) -> str:
    """A sentence for the index on an archive's hash (TrainerError: not in `official`, unless `allow_other`)."""
    if md5 in official:
        return f"yes: md5 {md5} is that of {official[md5]}"
    if not allow_other:
        raise TrainerError(
            place=str(path),
            problem="is not the official archive: its hash is another",
            value=f"md5 {md5}, {path.stat().st_size:,} bytes",
            allowed=", ".join(f"md5 {known} ({what})" for known, what in official.items()),
            fix=f"fetch it again, it may be cut short; or add {FLAG} if another one is meant",
        )
    return f"no: md5 {md5}, accepted by {FLAG}"


def check_count(place: str, what: str, found: int, expected: int, *, allow_other: bool) -> str:
    """A sentence for the index on a number of files, for sources without an archive (TrainerError: another number)."""
    if found == expected:
        return f"by count alone: {found:,} {what}"
    if not allow_other:
        raise TrainerError(
            place=place,
            problem=f"is not the official data set: the number of {what} is another",
            value=found,
            allowed=f"{expected:,}",
            fix=f"unpack or copy it again, files may be missing; or add {FLAG} if a part is meant",
        )
    return f"no: {found:,} {what} in place of {expected:,}, accepted by {FLAG}"


_GRAMMAR = MappingProxyType(
    {"s3": "s3://BUCKET/FOLDER", "gs": "gs://BUCKET/FOLDER", "az": "az://ACCOUNT/CONTAINER/FOLDER"}
)
# As gangway.components.core.blob_url, which the trainer cannot import; a test compares both.
_BLOBS = re.compile(r"az://(?P<account>[a-z0-9]{3,24})/(?P<path>(?P<container>[a-z0-9](-?[a-z0-9]){1,62})(/.*)?)")
_COPIES = ".source"
_COPY_BYTES = 8 << 20
_LARGEST_MEMBER_BYTES = 2 << 30
_SMALL_BYTES = 16 << 20  # Smaller members may have any compression ratio, as a bitmap of one colour does
_MOST_EXPANSION = 100
_MOST_LISTING_BYTES = 4 << 30  # Memory for names of an archive's members: ten million of them


@dataclass(frozen=True)
class Bucket:
    """A FileSet of everything below a URL."""

    url: str

    @property
    def place(self) -> str:
        """The URL."""
        return self.url

    def listing(self) -> Listing:
        """As FileSet."""
        store, root = _open_store(self.url)
        tally = Tally()
        try:
            for path, folders, files in store.walk(root, detail=True):
                inside = f"{path}/"[len(root) + 1 :]
                # Cloud consoles create an empty object with the name of a folder.
                held = [name for name in files if name and name not in folders]
                for name in held:
                    tally.add(inside + name, files[name]["size"])
                if inside and not (held or folders) and not tally.hides(inside.rstrip("/"), is_folder=True):
                    tally.skip("folder", "empty", inside.rstrip("/"))
        except Exception as error:  # obstore has an exception for every kind of failure, and no common base
            raise _unreachable(self.url, error) from None
        return tally.listing()

    def read(self, name: str) -> bytes:
        """As FileSet, but TrainerError if storage does not answer after obstore's retries."""
        store, root = _open_store(self.url)
        try:
            content: bytes = store.cat_file(f"{root}/{name}")
        except FileNotFoundError:
            raise OSError("not found") from None
        except Exception as error:  # as above
            raise _unreachable(f"{self.url.rstrip('/')}/{name}", error) from None
        return bytes(content)


def is_remote(source: str) -> bool:
    """Whether a source is a URL (TrainerError: of an unsupported kind)."""
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
    """Path of a local file, or of an atomic copy under `copies` (TrainerError: none, unreachable, or disk full)."""
    if not is_remote(source):
        check_reachable(Path(source))
        if not Path(source).is_file():
            raise _no_such_source(source, "a file")
        return Path(source)
    name = hashlib.sha256(source.encode()).hexdigest()[:16] + "-" + source.rpartition("/")[2]
    copy = copies / _COPIES / name
    store, key = _open_store(source)
    try:
        size = int(store.info(key)["size"])
    except Exception as error:  # obstore has an exception for every kind of failure, and no common base
        raise _unreachable(source, error) from None
    if not (copy.is_file() and copy.stat().st_size == size):
        progress = Progress(f"copying {source}", size, unit="bytes")
        with atomic_writer(copy) as file:
            for start in range(0, size, _COPY_BYTES):
                end = min(start + _COPY_BYTES, size)
                try:
                    content = bytes(store.cat_file(key, start=start, end=end))
                except Exception as error:  # as above
                    raise _unreachable(source, error) from None
                file.write(content)
                progress.add(len(content))
        progress.close()
    return copy


def drop_copies(copies: Path) -> None:
    """Remove archives copied by `fetch` once their shards are complete."""
    shutil.rmtree(copies / _COPIES, ignore_errors=True)


def _no_such_source(source: str, allowed: str) -> TrainerError:
    return TrainerError(
        place="--source",
        problem="there is no such source",
        value=source,
        allowed=allowed,
        fix="name the folder or file that holds the data; docs/data.md says where to get each data set",
    )


def split_url(url: str) -> tuple[str, str, str]:
    """Scheme, Azure's account (else empty), and path including the bucket (TrainerError: an invalid az:// URL)."""
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


def _open_store(url: str) -> tuple["FsspecStore", str]:
    from obstore.fsspec import FsspecStore

    scheme, account, path = split_url(url)
    kind: Any = scheme  # one of three, each with its own overload
    store: FsspecStore = FsspecStore(kind, account_name=account) if account else FsspecStore(kind)
    return store, path


def _unreachable(url: str, error: Exception) -> TrainerError:
    first_line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    why = "not found" if isinstance(error, FileNotFoundError) else first_line
    return TrainerError(
        place="--source",
        problem=f"cannot be read: {why}",
        value=url,
        allowed=f"a bucket that exists ({', '.join(_GRAMMAR.values())}), with credentials in this shell's environment",
        fix="try the cloud's own command line (aws s3 ls, gcloud storage ls, az storage blob list) with this name",
    )


class FileSet(Protocol):
    """Named files that can be read, also in another process."""

    @property
    def place(self) -> str:
        """Path or URL, for messages."""
        ...

    def listing(self) -> Listing:
        """Every file, and skipped entries (TrainerError: a folder cannot be listed)."""
        ...

    def read(self, name: str) -> bytes:
        """A file's content (OSError: unreadable)."""
        ...


@dataclass(frozen=True)
class LocalFolder:
    """A FileSet of a local folder."""

    root: Path

    @property
    def place(self) -> str:
        """The folder."""
        return str(self.root)

    def listing(self) -> Listing:
        """As FileSet. Follows links, except to parent folders."""
        tally = Tally()
        status = _status(self.root)
        assert status is not None, "a folder: files_in has looked"
        open_folders = [(self.root, "", frozenset({(status.st_dev, status.st_ino)}))]
        while open_folders:
            path, prefix, parents = open_folders.pop()
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
                elif (identity := (status.st_dev, status.st_ino)) in parents:
                    tally.skip("link", "leads to a folder that it is in", name)
                else:
                    open_folders.append((Path(entry.path), f"{name}/", parents | {identity}))
        return tally.listing()

    def read(self, name: str) -> bytes:
        """As FileSet."""
        return read_file(self.root / name, _LARGEST_MEMBER_BYTES)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise _listing_error(folder, error) from None


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP) and path.is_symlink():
            return None
        raise _listing_error(path, error) from None


def _listing_error(path: Path, error: OSError) -> TrainerError:
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
                archive = _open_zip(self.path).archive
                members = [(_member_name(member), member) for member in archive.infolist()]
        except MemoryError:
            raise _damaged_error(self.place, f"its listing takes more than {_MOST_LISTING_BYTES >> 30} GiB") from None
        except (OSError, ValueError, NotImplementedError, struct.error, zipfile.BadZipFile) as error:
            raise _damaged_error(self.place, str(error)) from None
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
            opened = _open_zip(self.path)
            member = opened.members[name]
            _check_expansion(member)
            return opened.archive.read(member)  # zipfile returns no more than the declared size
        except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, zlib.error) as error:
            raise OSError(f"damaged in the archive: {error}") from None


def _member_name(member: zipfile.ZipInfo) -> str:
    """A normalised name; some Windows programs write backslashes."""
    return "/".join(part for part in member.filename.replace("\\", "/").split("/") if part not in ("", "."))


def _is_folder(member: zipfile.ZipInfo) -> bool:
    return member.filename.endswith(("/", "\\"))


def _is_link(member: zipfile.ZipInfo) -> bool:
    return stat.S_ISLNK(member.external_attr >> 16)


def _check_expansion(member: zipfile.ZipInfo) -> None:
    """OSError for a member that is too large, or compressed so much that it is no picture or film."""
    size = member.file_size
    if size > _LARGEST_MEMBER_BYTES:
        raise OSError(f"too large in the archive: {size:,} bytes, at most {_LARGEST_MEMBER_BYTES:,} are read at once")
    if size > _SMALL_BYTES and size > _MOST_EXPANSION * member.compress_size:
        raise OSError(f"a bomb: {member.compress_size:,} bytes in the archive become {size:,}")


def files_in(source: str, copies: Path) -> FileSet:
    """The files of a folder, .zip archive or bucket (TrainerError: none); remote archives are copied to `copies`."""
    if source.lower().endswith(".zip"):
        return _Zip(fetch(source, copies))
    if is_remote(source):
        return Bucket(source)
    path = Path(source)
    check_reachable(path)
    if not path.is_dir():
        raise _no_such_source(source, "a folder or a .zip archive")
    return LocalFolder(path)


def read_text(files: FileSet, name: str) -> str:
    """Read a small text file of a set (TrainerError: unreadable)."""
    try:
        return files.read(name).decode("utf-8", "replace")
    except OSError as error:
        raise TrainerError(
            place=f"{name} of {files.place}", problem=f"cannot be read: {error}", fix="copy it again"
        ) from None


def fingerprint(sizes: Mapping[str, int]) -> str:
    """A hash over names and sizes, which identifies a set of files without reading them."""
    listing = "".join(f"{name}\0{size}\n" for name, size in sorted(sizes.items()))
    return f"sha256 over {len(sizes)} names and sizes {hashlib.sha256(listing.encode()).hexdigest()}"


class _OpenZip(NamedTuple):
    archive: zipfile.ZipFile
    members: Mapping[str, zipfile.ZipInfo]  # by listed name; of duplicates the last


@functools.lru_cache(maxsize=1)  # one archive per process; reading its directory takes seconds
def _open_zip(path: Path) -> _OpenZip:
    archive = zipfile.ZipFile(path)
    files = (member for member in archive.infolist() if not (_is_folder(member) or _is_link(member)))
    return _OpenZip(archive, {_member_name(member): member for member in files})


def _damaged_error(place: str, why: str) -> TrainerError:
    return TrainerError(
        place=place, problem=f"the archive is damaged: {why}", fix="fetch it again; it may be cut short"
    )
