"""Check a source against its publisher's hash or count; --allow-other-hash accepts others, and the index records it."""

import hashlib
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path
from typing import cast

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.regular_files import open_file

FLAG = "--allow-other-hash"


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
