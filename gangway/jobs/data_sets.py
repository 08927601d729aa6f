"""Data sets of jobs, copied once per user into an engine's folder of jobs. Not shared between users: a job would train
on whatever another user put there.

FOLDER/.data-<uid>/<key>/files        the source's files; unchanged once complete
FOLDER/.data-<uid>/<key>/whole.json   files and sizes, written when all are there
FOLDER/.data-<uid>/<key>/lock         held during the copy

The next submit resumes an interrupted copy and sends only the missing files.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from gangway.components.core.findings import InputError
from gangway.components.core.whole_files import lock
from gangway.jobs.job_folder import OwnJobFolder, make_shared
from gangway.stacks.config.job_file import JobFile

if TYPE_CHECKING:
    from gangway.jobs.copying import Copied, OnProgress

_FILES, _WHOLE, _LOCK = "files", "whole.json", "lock"
_POLL_SEC = 0.2
_MOST_BYTES = 2_000_000_000
"""For the list of a data set's files, possibly millions."""


def with_data(job: JobFile, jobs_folder: Path) -> JobFile:
    """The job with `data_dir` set to the copy in that folder. NotOwnError: another user's folder is in its place."""
    if job.data is None or job.data.source is None:
        return job
    place = _place(jobs_folder, job.data.source)
    with suppress(FileNotFoundError):
        OwnJobFolder(place.parent).own_subfolder(place.name)
    return job.model_copy(update={"data_dir": str(place / _FILES)})


def has_data(job: JobFile, jobs_folder: Path) -> bool:
    """Whether the complete data set is there."""
    if job.data is None or job.data.source is None:
        return False
    place = _place(jobs_folder, job.data.source)
    try:
        return OwnJobFolder(place.parent).own_subfolder(place.name).has(_WHOLE)
    except FileNotFoundError:
        return False


def bring_data(
    job: JobFile, jobs_folder: Path, on_progress: "OnProgress", on_wait: Callable[[str], None] | None = None
) -> "Copied | None":
    """Copies the data set; None without one. InputError: the source is unusable or has changed, or the disk is full."""
    from gangway.jobs.copying import copy_run

    if job.data is None or (source := job.data.source) is None:
        return None
    files = _list_files(source)
    place = _place(jobs_folder, source)
    try:
        make_shared(jobs_folder)
        folder = OwnJobFolder.make(place.parent).subfolder(place.name)
        copy = folder.subfolder(_FILES)
        with folder.append_to(_LOCK) as held:
            if _wait_for_lock(held, source, on_wait):
                files = _list_files(source)  # hours may have passed
            if folder.has(_WHOLE):
                _check_same(source, files, folder)
                return None
            copied = copy_run(source, copy, on_progress, whole=True)
            _check_whole(source, files, copied)
            folder.write(_WHOLE, json.dumps({"source": source, "files": files}).encode())
    except OSError as error:
        raise InputError(
            str(place),
            f"the data set cannot be stored there: {error.strerror}",
            fix="free some space there, and submit again",
        ) from None
    return copied


def _list_files(source: str) -> dict[str, int]:
    from gangway.jobs.copying import files_at

    if not (files := files_at(source)):
        raise InputError("data.source", "is empty", value=source, fix="name the folder with the data set")
    return files


def _wait_for_lock(held: IO[bytes], source: str, on_wait: Callable[[str], None] | None) -> bool:
    """Takes the lock, however long that takes (it dies with its holder); whether it had to wait."""
    waited = False
    while True:
        try:
            lock(held)
        except BlockingIOError:
            if on_wait is not None and not waited:
                on_wait(f"{source} is being copied there by another submit or move; waiting")
            waited = True
            time.sleep(_POLL_SEC)
        else:
            return waited


def _check_whole(source: str, files: dict[str, int], copied: "Copied") -> None:
    size = sum(files.values())
    if (copied.files, copied.bytes) != (len(files), size):
        raise InputError(
            "data.source",
            f"changed while it was copied: {len(files)} files, {size} bytes before; {copied.files} files, "
            f"{copied.bytes} bytes now",
            value=source, allowed="a folder that does not change", fix="submit again once nothing writes there",
        )  # fmt: skip


def _check_same(source: str, files: dict[str, int], folder: OwnJobFolder) -> None:
    known: dict[str, int] = json.loads(folder.read(_WHOLE, _MOST_BYTES))["files"]
    if known == files:
        return
    odd = sorted(name for name in known.keys() | files.keys() if known.get(name) != files.get(name))
    raise InputError(
        "data.source", f"has changed since it was copied: {len(odd)} files differ, such as {odd[0]}", value=source,
        allowed="a folder that does not change, since jobs may be reading the copy",
        fix=f"put the new data set into another folder, or move {folder.path} aside once no job reads it",
    )  # fmt: skip


def _place(jobs_folder: Path, source: str) -> Path:
    return jobs_folder / f".data-{os.geteuid()}" / hashlib.sha256(source.rstrip("/").encode()).hexdigest()[:16]
