"""The identity of a run, digests of records, and hashes of the files beside a record, which its signature covers.

A checkpoint's manifest has the checkpoint's hash. Names of files are looked up in the folder, never taken from an
untrusted record.
"""

import hashlib
import json
import os
import secrets
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.files import write_atomically
from gangway.trainer.core.host import program
from gangway.trainer.core.regular_files import open_regular
from gangway.trainer.records.quantity import Frozen
from gangway.trainer.records.stats_log import STATS_FILE, StatsLog

DIGEST = "digest"  # The key that is excluded from the content
WRONG_DIGEST = "wrong_digest"  # Type of pydantic's error for a wrong digest


def get_digest(values: Mapping[str, Any]) -> str:
    """SHA-256 (hexadecimal) of a record's plain JSON data without `digest`."""
    content = {key: value for key, value in values.items() if key != DIGEST}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def with_digest(values: Mapping[str, Any]) -> dict[str, Any]:
    """The data with its digest at the end."""
    return {**{key: value for key, value in values.items() if key != DIGEST}, DIGEST: get_digest(values)}


class DigestedRecord(Frozen):
    """Data whose file carries a digest of its content. `digest`: SHA-256 over the rest of the file; empty in memory
    until it is written, and in files from before there was one, which are not sealed.
    """

    digest: str = ""

    @model_validator(mode="before")
    @classmethod
    def _has_its_digest(cls, values: Any, info: ValidationInfo) -> Any:
        """Only for files: records in memory have no digest yet."""
        expected = values.get(DIGEST, "") if info.mode == "json" and isinstance(values, dict) else ""
        if expected and (found := get_digest(values)) != expected:
            raise PydanticCustomError(
                WRONG_DIGEST,
                "was changed after it was written: it was sealed with digest {expected}, its content has {found}",
                {"expected": str(expected), "found": found},
            )
        return values

    def write(self, path: Path) -> None:
        """Write the data with its digest atomically (TrainerError: not writable)."""
        values = with_digest(json.loads(self.model_dump_json()))
        write_atomically(path, (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode())


def wrong_digest_error(error: ValidationError, path: Path) -> TrainerError | None:
    """The error for a file with a wrong digest; None for other errors."""
    first = error.errors()[0]
    if first["type"] != WRONG_DIGEST:
        return None
    return TrainerError(
        place=str(path),
        problem="was changed after it was written",
        value=f"content with digest {first['ctx']['found']}",
        allowed=f"digest {first['ctx']['expected']}",
        fix=f"restore it from a copy, or write it again: {program()} record --run-dir {shlex.quote(str(path.parent))}",
    )


class RunIdentity(Frozen):
    """Identity of one session; `session` counts from 0 over all sessions, `dataset_sha256` is of its shards."""

    run_id: str
    session: int
    dataset_sha256: str


def identify(
    run_dir: Path, stats_log: StatsLog, saved: RunIdentity | None, wanted_id: str, preset: str, dataset_sha256: str
) -> RunIdentity:
    """The identity of a new session (TrainerError: stats.jsonl and checkpoint are of two runs)."""
    started_id = stats_log.beginnings[0]["run_id"] if stats_log.beginnings else ""
    if saved is not None and started_id and started_id != saved.run_id:
        raise TrainerError(
            place=str(run_dir / STATS_FILE),
            problem="is of another run than the checkpoints beside it",
            value=started_id,
            allowed=saved.run_id,
            fix=f"move {STATS_FILE} away, or put the checkpoints back that belong to it",
        )
    known = [line["session"] for line in stats_log.lines] + ([] if saved is None else [saved.session])
    return RunIdentity(
        # Random digits distinguish runs started in the same second, as by a loop over seeds.
        run_id=(saved.run_id if saved else started_id)
        or wanted_id
        or f"{preset}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}",
        session=1 + max(known, default=-1),
        dataset_sha256=dataset_sha256,
    )


def check_dataset(saved: RunIdentity, dataset_sha256: str, data_dir: Path) -> None:
    """TrainerError if a checkpoint was trained on other shards."""
    if saved.dataset_sha256 != dataset_sha256:
        raise TrainerError(
            place="--data",
            problem=f"the shards in {data_dir} are not those the run was trained on",
            value=f"sha256 {dataset_sha256}",
            allowed=f"sha256 {saved.dataset_sha256}",
            fix="name the folder of the run's own shards with --data, or start a new run in another --run-dir",
        )


_FILES = (STATS_FILE, "reals.png", "samples.png")
_FOLDERS = (("samples", ".png"), ("checkpoints", ".json"))
_BLOCK_BYTES = 1 << 20


class FileSum(Frozen):
    """Length and SHA-256 of a file when the record was written."""

    bytes: int = Field(ge=0)
    sha256: str


def get_sums(folder: Path) -> dict[str, FileSum]:
    """Length and hash of each file that a record covers, by name; unreadable files are left out."""
    found = {}
    for name in _names(folder):
        try:
            found[name] = _sum(folder, name)
        except OSError:
            continue
    return found


def changed_since(folder: Path, sums: Mapping[str, FileSum], *, done: bool) -> list[str]:
    """Names of changed or unknown files. Files may be missing, and grow while a run is not `done`."""
    return [name for name in _names(folder) if not _is_unchanged(folder, name, sums.get(name), done)]


def _is_unchanged(folder: Path, name: str, recorded: FileSum | None, done: bool) -> bool:
    if recorded is None:
        return not done
    may_grow = name == STATS_FILE and not done
    try:
        return _sum(folder, name, recorded.bytes if may_grow else None) == recorded
    except OSError:
        return False


def _names(folder: Path) -> list[str]:
    found = [name for name in _FILES if os.path.lexists(folder / name)]
    for inner, ending in _FOLDERS:
        names = sorted(path.name for path in (folder / inner).glob(f"*{ending}"))
        found += [f"{inner}/{name}" for name in names if not name.startswith(".")]
    return found


def _sum(folder: Path, name: str, first_bytes: int | None = None) -> FileSum:
    content = hashlib.sha256()
    with os.fdopen(open_regular(folder, name), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        remaining = size = size if first_bytes is None else min(size, first_bytes)
        while remaining and (block := file.read(min(remaining, _BLOCK_BYTES))):
            content.update(block)
            remaining -= len(block)
    return FileSum(bytes=size - remaining, sha256=content.hexdigest())
