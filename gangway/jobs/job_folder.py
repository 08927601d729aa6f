"""A job's folder, held open by descriptor: engines read and write it safely while other users can write next to it. No
links are followed, only regular files are opened, and reads are limited.

Any user's folder opens as a read-only `JobFolder`, enough to list the job. Starting, writing, ending and moving a job
need an `OwnJobFolder`, which the effective user owns and no one else can write. Renaming or replacing the folder does
not change which one is open. Which jobs of a shared folder this user may open depends on the owner, not on the mode.
"""

import errno
import grp
import os
import pwd
import re
import secrets
import shutil
import stat
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from gangway.components.core.findings import Finding, InputError, Severity
from gangway.components.core.safe_text import visible
from gangway.components.core.whole_files import FULL
from gangway.trainer.core.regular_files import file_problem

MOST_BYTES = 1_000_000
"""For files read completely; far more than they hold."""
_FOLDER = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MOST_PARTS = 10_000
"""Of a path with all its links: the kernel follows 40 of at most 4096 bytes."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
STATE_FILE = "state.json"
_ID = re.compile(r"([a-z][a-z0-9-]*)-([0-9]{1,18})")
_MOST_FOREIGN_NUMBER = 10**9
"""Other users' folders with higher numbers do not count, else one folder could use up all numbers."""


class UnreadableError(InputError):
    """A job's files that this release cannot read."""


class NotOwnError(UnreadableError):
    """Another user owns the folder or can write to it."""


class ForeignError(NotOwnError):
    """Another user owns the folder."""

    def __init__(self, path: Path, owner: str) -> None:
        self.owner = owner
        problem = f"belongs to {owner}: others can only list it"
        super().__init__(str(path), problem, fix=f"ask {owner}, or run this as {owner}")


class JobFolder:
    """Read-only. All reads raise OSError: no such file, a link, not a regular file, too large."""

    def __init__(self, path: Path, dir_fd: int | None = None) -> None:
        """OSError: missing, a link, or closed to this user."""
        self.path = path
        self._descriptor = os.open(path if dir_fd is None else path.name, _FOLDER, dir_fd=dir_fd)
        weakref.finalize(self, os.close, self._descriptor)
        self._opened = os.fstat(self._descriptor)

    @property
    def name(self) -> str:
        """The job's id."""
        return self.path.name

    @property
    def uid(self) -> int:
        """The owner."""
        return self._opened.st_uid

    @property
    def owner(self) -> str:
        """The owner's name."""
        return user_name(self.uid)

    @property
    def is_own(self) -> bool:
        """Whether it opens as an `OwnJobFolder`."""
        return self.uid == os.geteuid() and not self._opened.st_mode & _OTHERS_WRITE

    @property
    def modified_at(self) -> float:
        """When an entry was last added or removed, in seconds since 1970."""
        return self._opened.st_mtime

    @property
    def by_descriptor(self) -> Path:
        """A path to the open folder, even after a rename; valid while this object lives."""
        path = Path(f"/proc/self/fd/{self._descriptor}")
        return path if path.exists() else self.path  # no Linux

    @property
    def is_in_place(self) -> bool:
        """Whether its path still leads to it."""
        with suppress(OSError):
            return os.path.samestat(os.lstat(self.path), self._opened)
        return False

    def has(self, name: str) -> bool:
        """Whether it holds a regular file of that name."""
        with suppress(OSError):
            return stat.S_ISREG(os.stat(name, dir_fd=self._descriptor, follow_symlinks=False).st_mode)
        return False

    def has_entry(self, name: str) -> bool:
        """Whether it holds anything of that name."""
        with suppress(OSError):
            os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
            return True
        return False

    def mtime(self, name: str) -> float:
        """Modification time of a file, in seconds since 1970."""
        with self.open_file(name) as file:
            return os.fstat(file.fileno()).st_mtime

    def read(self, name: str, most_bytes: int = MOST_BYTES) -> bytes:
        """The file's whole content."""
        with self.open_file(name) as file:
            content = file.read(most_bytes + 1)
        if len(content) > most_bytes:
            raise OSError(errno.EFBIG, f"larger than {most_bytes:,} bytes", str(self.path / name))
        return content

    def open_file(self, name: str) -> IO[bytes]:
        """For partial reads or locking."""
        return os.fdopen(self._open(name, os.O_RDONLY), "rb")

    def folder(self, name: str) -> "JobFolder":
        """Opens a subfolder read-only. OSError."""
        return JobFolder(self.path / name, self._descriptor)

    def own(self) -> "OwnJobFolder":
        """Reopens it for writing. NotOwnError."""
        return OwnJobFolder(self.path, same_as=self)

    def _open(self, name: str, flags: int) -> int:
        try:
            return open_regular(name, flags, dir_fd=self._descriptor)
        except OSError as error:
            raise type(error)(error.errno, error.strerror, str(self.path / name)) from None


class OwnJobFolder(JobFolder):
    """Owned by the effective user and writable by no one else."""

    def __init__(self, path: Path, dir_fd: int | None = None, same_as: JobFolder | None = None) -> None:
        """`same_as`: the folder that has to be at that path. OSError: as `JobFolder`. NotOwnError."""
        try:
            super().__init__(path, dir_fd)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            raise NotOwnError(str(path), "is a link or a file, not a folder", fix=_removal_fix(path)) from None
        if same_as is not None and not os.path.samestat(same_as._opened, self._opened):
            raise FileNotFoundError(errno.ENOENT, "it was just replaced", str(path))
        if self.uid != os.geteuid():
            raise ForeignError(path, self.owner)
        if self._opened.st_mode & _OTHERS_WRITE:
            raise NotOwnError(
                str(path), "other users can write to it, so its content is not trusted",
                fix=f"check its content, then: chmod go-w {path}",
            )  # fmt: skip

    @classmethod
    def make(cls, path: Path) -> Self:
        """Opens the folder, or makes it with mode 700. OSError. NotOwnError: another user made it first."""
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        return cls(path)

    def subfolder(self, name: str) -> Self:
        """Like `make`, for a subfolder. OSError, NotOwnError."""
        with suppress(FileExistsError):
            os.mkdir(name, mode=0o700, dir_fd=self._descriptor)
        return self.own_subfolder(name)

    def own_subfolder(self, name: str) -> Self:
        """Opens an existing subfolder. OSError, NotOwnError."""
        return type(self)(self.path / name, self._descriptor)

    def make_folders(self, name: str) -> None:
        """Makes a subfolder and its parents. OSError: also if one of them is a link or a file."""
        at: JobFolder = self
        for part in Path(name).parts:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=at._descriptor)
            at = at.folder(part)

    def write(self, name: str, content: bytes, mode: int = 0o666) -> None:  # 0o600: readable only by the owner
        """Atomic: readers see the old content or the new. OSError: nothing has changed."""
        partial = f".{name}-{secrets.token_hex(8)}"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE
            with os.fdopen(os.open(partial, flags, mode, dir_fd=self._descriptor), "wb") as file:
                file.write(content)
            os.rename(partial, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except BaseException:
            with suppress(OSError):
                self.remove(partial)
            raise

    def save(self, name: str, content: bytes) -> None:
        """Like `write`. InputError: it cannot be written."""
        try:
            self.write(name, content)
        except OSError as error:
            raise InputError(
                str(self.path), f"cannot be written: {error.strerror}", allowed="a folder with free space",
                fix="free some space there" if error.errno in FULL else "make it writable, or submit the job elsewhere",
            ) from None  # fmt: skip

    def touch(self, name: str) -> bool:
        """Makes an empty file; whether it is new. OSError: also if the name exists and is not a file."""
        try:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o666, dir_fd=self._descriptor))
        except FileExistsError:
            os.close(self._open(name, os.O_RDONLY))
            return False
        return True

    def append_to(self, name: str) -> IO[bytes]:
        """Opens for appending, creating the file if needed. OSError: also if another user owns it."""
        try:
            return self._open_own(name, os.O_WRONLY | os.O_APPEND, "ab")
        except FileNotFoundError:
            self.touch(name)
            return self._open_own(name, os.O_WRONLY | os.O_APPEND, "ab")

    def overwrite(self, name: str, content: bytes) -> None:
        """Overwrites the start of an existing file in place, which needs no disk space. OSError."""
        with self._open_own(name, os.O_RDWR, "r+b") as file:
            file.write(content)

    def remove(self, name: str) -> None:
        """Removes a file if it exists. OSError."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)

    def move_to(self, path: Path) -> None:
        """Renames it within its parent. OSError: also if it was removed or replaced."""
        if not self.is_in_place:
            raise FileNotFoundError(errno.ENOENT, "it was removed or replaced", str(self.path))
        before, self.path = self.path, path
        try:
            before.rename(path)
        except BaseException:  # a signal may arrive before or after the rename
            if not self.is_in_place:
                self.path = before
            raise

    def remove_tree(self) -> None:
        """Removes it with its content, unless it was renamed or removed meanwhile. OSError."""
        if not self.is_in_place:
            return
        for entry in os.listdir(self._descriptor):  # noqa: PTH208 # of a descriptor
            if stat.S_ISDIR(os.stat(entry, dir_fd=self._descriptor, follow_symlinks=False).st_mode):
                shutil.rmtree(entry, dir_fd=self._descriptor)
            else:
                os.unlink(entry, dir_fd=self._descriptor)
        self.path.rmdir()  # only removes an empty folder, whatever has this name now

    def _open_own(self, name: str, flags: int, mode: str) -> IO[bytes]:
        descriptor = self._open(name, flags)
        if os.fstat(descriptor).st_uid != self.uid:
            os.close(descriptor)
            raise PermissionError(errno.EPERM, "it belongs to another user", str(self.path / name))
        return os.fdopen(descriptor, mode)


def open_regular(path: str | Path, flags: int, dir_fd: int | None = None) -> int:
    """The descriptor of a regular file, for the caller to close. OSError: not one, or a link."""
    try:
        descriptor = os.open(path, flags | _FILE, 0o666, dir_fd=dir_fd)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link, and links are not followed here", str(path)) from None
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def _removal_fix(path: Path) -> str:
    with suppress(OSError):
        uid = path.lstat().st_uid
        if os.geteuid() not in (0, uid):
            return f"ask {user_name(uid)}, who owns it, to remove {path}; or use another folder"
    return f"move {path} aside"


def user_name(uid: int) -> str:
    """A user's name, or the number if it has none, as in many containers."""
    try:
        return visible(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return str(uid)


def make_shared(folder: Path) -> None:
    """Makes a folder of jobs if needed. OSError. InputError: others can replace what is in it."""
    for each in reversed((folder, *folder.parents)):
        if not each.is_dir():
            each.mkdir(mode=0o755, exist_ok=True)  # parents too, independent of the umask
    raise_errors(sharing_findings(folder))


def raise_errors(findings: Iterable[Finding]) -> None:
    """InputError: one of the findings is an error."""
    for finding in findings:
        if finding.severity is Severity.ERROR:
            raise InputError(finding.path, finding.message, fix=finding.fix)


def sharing_findings(folder: Path) -> Iterator[Finding]:
    """Finds other users who can rename or replace a job's folder: at the folder of jobs, one above it or a link on its
    path. Jobs find their programs by path and would run those of someone else.

    An error if any user can, and always for root. A warning if only a folder's owner or the group of a parent folder
    can, often your own team on a cluster.
    """
    whole, is_root = folder.resolve(), os.geteuid() == 0
    danger = "can replace its content and run their programs as you"
    links = list(_links(folder))
    for link in links:
        if (owner := link.lstat().st_uid) not in (0, os.geteuid()) and not _is_unmapped(owner):
            finding = Finding.error if is_root else Finding.warning
            yield finding(
                "job.folder", str(link), f"this link belongs to {user_name(owner)}, who can point it to other files, "
                "which would run as you", f"use its target: {whole}",
            )  # fmt: skip
    for each in dict.fromkeys((whole, *whole.parents, *(above for link in links for above in link.parents))):
        try:
            seen = each.stat()
        except OSError:
            continue  # it will be made, or that fails
        if seen.st_mode & _OTHERS_WRITE and not seen.st_mode & stat.S_ISVTX and not _has_private_group(seen):
            finding = Finding.error if is_root or each == whole or seen.st_mode & stat.S_IWOTH else Finding.warning
            fix = f"chmod +t {each}"
            if os.geteuid() not in (0, seen.st_uid):
                fix = f"ask {user_name(seen.st_uid)}, who owns it, for {fix}; or use another folder"
            yield finding("job.folder", str(each), f"other users can write to it, so they {danger}", fix)
        elif seen.st_uid not in (0, os.geteuid()) and not _is_unmapped(seen.st_uid):
            finding = Finding.error if is_root else Finding.warning
            yield finding(
                "job.folder", str(each), f"{user_name(seen.st_uid)} owns it despite any sticky bit, so they {danger}",
                "use a folder that root or you own, as well as all folders above it",
            )  # fmt: skip


def _links(folder: Path) -> Iterator[Path]:
    at, parts = Path("/"), [*reversed(folder.absolute().parts[1:])]
    for _ in range(_MOST_PARTS):
        if not parts:
            return
        part = parts.pop()
        at = at.parent if part == ".." else at / part
        if at.is_symlink():
            yield at
            target = at.readlink()
            parts += reversed(target.parts[1:] if target.is_absolute() else target.parts)
            at = Path("/") if target.is_absolute() else at.parent


def _is_unmapped(uid: int) -> bool:
    """Whether the user is outside this container's user namespace, so no process here can act as them."""
    try:
        ranges = [line.split() for line in Path("/proc/self/uid_map").read_text("ascii").splitlines()]
        overflow = int(Path("/proc/sys/kernel/overflowuid").read_text("ascii"))
    except OSError:
        return False
    return uid == overflow and not any(int(first) <= uid < int(first) + int(count) for first, _, count in ranges)


def _has_private_group(seen: os.stat_result) -> bool:
    """A folder made with umask 002, where each user has a group with their name."""
    if seen.st_mode & stat.S_IWOTH or seen.st_uid != os.geteuid():
        return False
    try:
        user, group = pwd.getpwuid(seen.st_uid), grp.getgrgid(seen.st_gid)
    except KeyError:
        return False
    return user.pw_gid == group.gr_gid and user.pw_name == group.gr_name and not {*group.gr_mem} - {user.pw_name}


class ClosedError(UnreadableError):
    """This user cannot enter a folder on the way to a job."""

    def __init__(self, path: Path) -> None:
        found = file_problem(PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path)))
        assert found is not None, "a path, and an error that a user can correct"
        super().__init__(found.place, found.problem, fix=found.fix)


def check_open(folder: Path) -> None:
    """ClosedError: this user cannot enter the folder of jobs or one above it. A missing folder is fine."""
    try:
        os.stat(f"{folder}/.")  # noqa: PTH116 # pathlib would drop the dot, which requires entering the folder
    except PermissionError:
        raise ClosedError(folder / "*") from None
    except OSError:
        return


def list_names(folder: Path) -> list[str]:
    """All entries named like a job. ClosedError."""
    try:
        found = os.listdir(folder)  # noqa: PTH208 # iterdir() and glob() treat a closed folder as empty
    except PermissionError:
        raise ClosedError(folder) from None
    except OSError:
        return []  # there is none
    check_open(folder)
    return [name for name in found if _ID.fullmatch(name)]


def job_ids(folder: Path) -> list[str]:
    """All jobs in the folder, oldest first. ClosedError."""
    return sorted((name for name in list_names(folder) if is_job(folder / name)), key=get_number)


def list_own_jobs(folder: Path) -> list[OwnJobFolder]:
    """Jobs that this user may start and end, oldest first. ClosedError."""
    found = list[OwnJobFolder]()
    for job_id in job_ids(folder):
        with suppress(OSError, NotOwnError):
            found.append(OwnJobFolder(folder / job_id))
    return found


def open_job(path: Path) -> JobFolder:
    """Opens a job's folder; root opens any user's. ForeignError, UnreadableError, ClosedError, FileNotFoundError."""
    try:
        folder = JobFolder(path)
    except PermissionError:
        check_open(path.parent)
        owner = get_owner(path)
        if not is_own(path):
            raise ForeignError(path, owner) from None
        raise UnreadableError(str(path), f"is closed to {owner}, who owns it", fix=f"chmod u+rwx {path}") from None
    except OSError as error:
        raise FileNotFoundError(error.errno, error.strerror, str(path)) from None
    if os.geteuid() not in (0, folder.uid):
        raise ForeignError(path, folder.owner)
    return folder


def is_id(word: str) -> bool:
    """Whether the word is a valid job id."""
    return _ID.fullmatch(word) is not None


def is_job(path: Path) -> bool:
    """Whether a folder with a job's name holds a job; one that is closed to this user counts by its name."""
    try:
        return JobFolder(path).has_entry(STATE_FILE)
    except PermissionError:
        return True
    except OSError:
        return False  # or just removed


def is_own(path: Path) -> bool:
    """Whether it is this user's or was just removed."""
    with suppress(OSError):
        return path.lstat().st_uid == os.geteuid()
    return True


def get_owner(path: Path) -> str:
    """Empty if unknown."""
    with suppress(OSError):
        return user_name(path.lstat().st_uid)
    return ""


def get_number(job_id: str) -> int:
    """Orders jobs by submission."""
    return int(job_id.rpartition("-")[2])


def next_number(folder: Path, least: int) -> int:
    """Higher than `least` and every number in use, by any user and whatever the folder holds. ClosedError."""
    return 1 + max(least, *(_taken_number(folder / name) for name in list_names(folder)), 0)


def _taken_number(path: Path) -> int:
    number = get_number(path.name)
    return number if number <= _MOST_FOREIGN_NUMBER or is_own(path) else 0
