"""Atomic writes, input files and hashes; paths are local or on a mounted parallel file system."""

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import IO, cast

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.regular_files import MOST_BYTES, UnfitFileError, open_file, read_file

_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
_TEMPORARY, _PROBE = ".partial-", ".probe-"


def sha256_of(path: Path) -> str:
    """The file's SHA-256 as hexadecimal digits."""
    with open_file(path) as file:
        return hashlib.file_digest(cast(BufferedReader, file), "sha256").hexdigest()


def is_intact(path: Path, sha256: str) -> bool:
    """Whether the file exists and has this hash."""
    return path.is_file() and sha256_of(path) == sha256


def try_lock(file: IO[bytes]) -> bool | None:
    """Whether this process now holds the lock; None on a file system without locks (OSError: locking fails)."""
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
    """A whole file's content. TrainerError with `fix`: unreadable, too large, or none (`missing` is its problem)."""
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
    """Read a UTF-8 text file; TrainerError also for binary content, which is not shown."""
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
    """Raise TrainerError for a folder that cannot be created or written; `flag` is the flag that names it."""
    problem, fix = _folder_problem(path)
    if problem:
        allowed, fix = "a folder that can be written", f"{fix}name another {flag}"
        raise TrainerError(place=flag, problem=problem, value=str(path), allowed=allowed, fix=fix)


def _folder_problem(path: Path) -> tuple[str, str]:
    if (invalid := _invalid_path_error(path)) is not None:
        return f"no such folder can be: {invalid.strerror}", ""
    existing = path.absolute()
    while not os.access(existing, os.F_OK) and not existing.is_symlink():
        existing = existing.parent
    if not existing.exists():
        return f"{existing} is a link to nowhere: {existing.readlink()}", "fix the link, or "
    if not existing.is_dir():
        return f"{existing} is a file where a folder is needed", "move that file away, or "
    if (error := _write_error(existing)) is not None:
        return f"{existing} takes no new files: {error.strerror}", f"{_remedy(error)}, or "
    return "", ""


def _invalid_path_error(path: Path) -> OSError | None:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except OSError as error:
        return error
    return None


def _write_error(folder: Path) -> OSError | None:
    """The error of creating a file there. Tries it: os.access lets root write to a read-only disk."""
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
    return "fix what the system reports"


def sync_directory(path: Path) -> None:
    """Make a rename in this directory survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cannot_be_written(path: Path, error: OSError) -> TrainerError:
    """The error for a failed write; the old file is intact."""
    return TrainerError(
        place=str(path),
        problem=f"cannot be written: {error.strerror or error}",
        value=str(path),
        allowed="a file in a folder that this user can write, on a disk with room",
        fix=f"{_remedy(error)}, or name another folder; the earlier files are intact",
    )


@contextlib.contextmanager
def atomic_writer(path: Path) -> Iterator[IO[bytes]]:
    """Open a binary file that replaces `path` when the block succeeds. Its random name defeats planted links."""
    temporary = path.with_name(f"{_TEMPORARY}{secrets.token_hex(8)}-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
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
    """Write a small file atomically (TrainerError as `atomic_writer`)."""
    with atomic_writer(path) as file:
        file.write(content)


def clean_temporaries(folder: Path) -> None:
    """Remove partial files of a killed process. Only for the one process that writes this folder."""
    for leftover in folder.glob(f"{_TEMPORARY}*"):
        leftover.unlink()
