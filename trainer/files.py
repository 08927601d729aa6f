"""Files that appear whole or not at all, and their hashes.

Every file the trainer must be able to trust goes through `write_atomically`: a crash, a full disk or a second
signal leaves the old file, never half a new one. Not a storage abstraction: paths are local or on a mounted
parallel file system.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from trainer.errors import TrainerError

__all__ = ["atomic_writer", "clean_temporaries", "sha256_of", "sync_directory", "write_atomically"]

_CHUNK_BYTES = 1 << 20
_TEMPORARY = ".partial-"


def sha256_of(path: Path) -> str:
    """The file's SHA-256 as hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def sync_directory(path: Path) -> None:
    """Makes a rename inside this directory survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def atomic_writer(path: Path) -> Iterator[IO[bytes]]:
    """A binary file to write to, which becomes `path` when the block ends without an error.

    Raises:
        TrainerError: the disk is full or the folder cannot be written; `path` is then what it was before.
    """
    temporary = path.with_name(f"{_TEMPORARY}{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        raise TrainerError(
            place=str(path),
            problem=f"cannot be written: {error.strerror or error}",
            fix="free some space or name a folder that can be written; the earlier files are intact",
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a whole small file.

    Raises:
        TrainerError: as `atomic_writer`.
    """
    with atomic_writer(path) as file:
        file.write(content)


def clean_temporaries(folder: Path) -> None:
    """Removes what a killed process left half written. Only for the one process that writes this folder."""
    for leftover in folder.glob(f"{_TEMPORARY}*"):
        leftover.unlink()
