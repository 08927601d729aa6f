"""Files that appear whole or not at all, and their hashes; paths are local or on a mounted parallel file system.

What must be trusted goes through `write_atomically`: a crash or full disk leaves the old file. What people write, or
may be damaged, is read by `read_input`, which names it in its error.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import IO, cast

from trainer.core.errors import TrainerError
from trainer.core.regular_files import MOST_BYTES, UnfitFileError, open_file, read_file

_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
_TEMPORARY, _PROBE = ".partial-", ".probe-"


def sha256_of(path: Path) -> str:
    """The file's SHA-256 as hexadecimal digits."""
    with open_file(path) as file:
        return hashlib.file_digest(cast(BufferedReader, file), "sha256").hexdigest()


def is_intact(path: Path, sha256: str) -> bool:
    """Whether there is a file of that hash."""
    return path.is_file() and sha256_of(path) == sha256


def try_lock(file: IO[bytes]) -> bool | None:
    """Whether the kernel's lock is this process's now, until its last descriptor closes or the process ends. None on a
    file system without locks; OSError where it has locks, and fails.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return None
        raise
    return True


def read_input(path: Path, fix: str, missing: str = "no such file", most_bytes: int = MOST_BYTES) -> bytes:
    """A whole file's content. TrainerError with `fix`: unreadable, no regular file, too large, or there is none
    (`missing` is how to call that).
    """
    try:
        return read_file(path, most_bytes)
    except (FileNotFoundError, NotADirectoryError):
        problem = missing
    except UnfitFileError as error:
        problem = str(error.strerror).removeprefix("it ")
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    raise TrainerError(
        place=str(path), problem=problem, value=str(path), allowed="a file that this user can read", fix=fix
    )


def read_text_input(path: Path, fix: str) -> str:
    """`read_input` of a file that people write; TrainerError also for no text, which is not shown."""
    content = read_input(path, fix)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TrainerError(
            place=str(path),
            problem=f"is not a text file: byte {error.start} is not UTF-8",
            value=f"{len(content):,} bytes",
            allowed="text in UTF-8",
            fix=fix,
        ) from None


def check_folder(path: Path, flag: str) -> None:
    """TrainerError for a folder that cannot be made or written, before anything is written; `flag` named it."""
    problem, fix = _hindrance(path)
    if problem:
        allowed, fix = "a folder that can be written", f"{fix}name another {flag}"
        raise TrainerError(place=flag, problem=problem, value=str(path), allowed=allowed, fix=fix)


def _hindrance(path: Path) -> tuple[str, str]:
    """Why a folder cannot be made or written, and what helps besides another; empty where it can."""
    if (odd := _oddity(path)) is not None:
        return f"no such folder can be: {odd.strerror}", ""
    existing = path.absolute()
    while not os.access(existing, os.F_OK) and not existing.is_symlink():
        existing = existing.parent
    if not existing.exists():
        return f"{existing} is a link to nowhere: {existing.readlink()}", "mend the link, or "
    if not existing.is_dir():
        return f"{existing} is a file where a folder is needed", "move that file away, or "
    if (error := _refusal(existing)) is not None:
        return f"{existing} takes no new files: {error.strerror}", f"{_remedy(error)}, or "
    return "", ""


def _oddity(path: Path) -> OSError | None:
    """What the system makes of a path that can never be: too long a name, links in a circle."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except OSError as error:
        return error
    return None


def _refusal(folder: Path) -> OSError | None:
    """Why nothing can be written there; None where it can. Tried, as root is told that it may write on any disk."""
    try:
        Path(tempfile.mkdtemp(prefix=_PROBE, dir=folder)).rmdir()
    except OSError as error:
        return error
    return None


def _remedy(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "get the right to write"
    return "mend what the system reports"


def sync_directory(path: Path) -> None:
    """Makes a rename inside this directory survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cannot_be_written(path: Path, error: OSError) -> TrainerError:
    """What to tell of a file that the system did not take; what was written before it is intact."""
    return TrainerError(
        place=str(path),
        problem=f"cannot be written: {error.strerror or error}",
        value=str(path),
        allowed="a file in a folder that this user can write, on a disk with room",
        fix=f"{_remedy(error)}, or name another folder; the earlier files are intact",
    )


@contextlib.contextmanager
def atomic_writer(path: Path) -> Iterator[IO[bytes]]:
    """A binary file to write to, which becomes `path` when the block ends without an error. TrainerError: disk full or
    not writable; `path` is then what it was before.
    """
    temporary = path.with_name(f"{_TEMPORARY}{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_file(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        raise cannot_be_written(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a whole small file (TrainerError as `atomic_writer`)."""
    with atomic_writer(path) as file:
        file.write(content)


def clean_temporaries(folder: Path) -> None:
    """Removes what a killed process left half written. Only for the one process that writes this folder."""
    for leftover in folder.glob(f"{_TEMPORARY}*"):
        leftover.unlink()
