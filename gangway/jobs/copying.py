"""Copies a run folder between object stores and folders: each file is hashed and read back, what an earlier copy sent
is not sent again, and times and modes are kept.

Stores show a file completely or not at all, so a killed copy leaves no partial files. MANIFEST lists the copied files
and is updated during the copy. An entry counts only if the file is unchanged at both ends: at the source by size, tag
and time; in a target folder by hash, since a crash may keep only name and size; in a target bucket by size. In a bucket
it stays, because buckets keep no times and modes.

Checkpoints are checked by their manifests: a trainer skips a damaged one, but a moved job may have no other.
"""

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes, urlsplit

from pydantic import BaseModel, ValidationError

from gangway.components.core.findings import InputError
from gangway.components.core.whole_files import lock
from gangway.jobs.job_folder import JobFolder, OwnJobFolder, make_shared
from gangway.jobs.run_folder import (
    CopyDamagedError,
    FileMetadata,
    FolderStore,
    RunFolder,
    copy_folder_metadata,
    is_odd,
    remove_others,
)
from gangway.runs.run_store import object_store
from gangway.stacks.config.job_file import JobFile

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    Store = ObjectStore | FolderStore
    from obstore.store import ObjectStore

    from gangway.jobs.run_folder import FolderStore

MANIFEST = ".gangway-copied.json"
_PART_BYTES = 8 << 20
_SAVE_EVERY_SEC = 2.0

CopyPlace = str | JobFolder
"""A source or target: a URL of `gangway.runs.run_store.object_store`, or an open folder."""
OnProgress = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""
_CHECKPOINT = re.compile(r"(checkpoints/[0-9]+)\.pt")


@dataclass(frozen=True)
class Copied:
    """`new_bytes` of `bytes` were sent now; `unmarked`: one reason per file without its time and mode."""

    files: int
    bytes: int
    new_bytes: int
    sec: float
    left_out: tuple[str, ...] = ()
    unmarked: tuple[str, ...] = ()


def copy_run(source_place: CopyPlace, target_place: CopyPlace, on_progress: OnProgress, *, whole: bool) -> Copied:
    """Copies a run folder; `whole` as in `files_of_run`. Other files at the target are removed, since an interrupted
    copy may have left them. InputError: a store cannot be read or written, or the source is empty now and was not at an
    earlier copy; CopyDamagedError as in `copy_folder`.
    """
    with _open_stores(source_place, target_place) as (source, target):
        here, there = _folder(source), _folder(target)
        found, not_copied = _list_files(source)
        files, damaged = _select_files(source, found, on_progress, whole=whole)
        if not files:
            _check_not_emptied(source_place, target_place)
        odd = [name for name in files if (here is None or there is None) and is_odd(name)]
        _remove_others(target, files.keys())  # before the copy: a file may block a new folder's name
        copied = copy_folder(source, target, {name: files[name] for name in files if name not in odd}, on_progress)
        if there is not None:
            forget_copy(target)
        on_folders = () if here is None or there is None else copy_folder_metadata(here, there, files)
    unmarked = (*copied.unmarked, *on_folders)
    marks = [f"times and modes of {len(unmarked)} files and folders ({unmarked[0]})"] if unmarked else []
    nameless = (f"{name} (not a valid name in a bucket)" for name in odd)
    left_out = sorted((*damaged, *nameless, *not_copied, *marks))
    return replace(copied, left_out=tuple(left_out), unmarked=unmarked)


def _check_not_emptied(source_place: CopyPlace, target_place: CopyPlace) -> None:
    """A folder that is not mounted looks empty too, and the target may be all that is left."""
    if any(name != MANIFEST for name in files_at(target_place)):
        there = _display_name(target_place)
        raise InputError(
            _display_name(source_place), f"is empty now, but {there} has the files of an earlier copy",
            allowed="a mounted, complete folder",
            fix=f"restore its files, or move the content of {there} elsewhere; then try again",
        )  # fmt: skip


def files_at(place: CopyPlace) -> dict[str, int]:
    """Name -> bytes of all files that a copy would have. InputError: it cannot be read."""
    with _open_stores(place) as (store,):
        found = files_of_run(store, whole=True)
    return {name: size for name, size in found.items() if isinstance(store, FolderStore) or not is_odd(name)}


@contextmanager
def _open_stores(*places: CopyPlace) -> Iterator[list["Store"]]:
    from obstore.exceptions import BaseError

    stores: list[Store] = []
    try:
        for place in places:
            stores.append(_store(place))
        yield stores
    except (BaseError, OSError) as error:
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        for each in stores:
            first = first.replace(f"{each.path}/", f"{each.folder.path}/") if isinstance(each, FolderStore) else first
        there = _display_name(places[1]) if len(places) > 1 else "anywhere"
        raise InputError(
            _display_name(places[0]), f"cannot be copied to {there}: {first}",
            allowed="a readable source, and a target with space", fix="fix that, then repeat the move to resume it",
        ) from error  # fmt: skip


def _display_name(place: CopyPlace) -> str:
    return place if isinstance(place, str) else str(place.path)


def _store(place: CopyPlace) -> "Store":
    if isinstance(place, JobFolder):
        return FolderStore(place)
    parts = urlsplit(place)
    if parts.scheme != "file":
        return object_store(place, "")
    return FolderStore(
        JobFolder(Path(os.fsdecode(unquote_to_bytes(parts.path))).resolve())
    )  # the user may have named a link


def copy_folder(source: "Store", target: "Store", names: Mapping[str, int], on_progress: OnProgress) -> Copied:
    """Copies these files, name -> bytes. CopyDamagedError; OSError or obstore's errors: a store does not answer."""
    began, total, done, new = time.monotonic(), sum(names.values()), 0, 0
    known, saved_at = _read_manifest(target), began
    here, there, unmarked = _folder(source), _folder(target), list[str]()
    source_manifest = _read_manifest(source) if here is None else {}
    for name, size in sorted(names.items()):
        meta = source.head(name)
        stamp = [meta["size"], meta["e_tag"], meta["last_modified"].isoformat()]  # identifies the version
        is_new = known.get(name, {}).get("source") != stamp or not _has(target, name, size, known[name]["sha256"])
        entry: Mapping[str, Any] = {"source": stamp, "sha256": _copy(source, target, name)} if is_new else known[name]
        if here is None:
            stored_at = datetime.fromisoformat(entry["source"][-1])
            marks = FileMetadata.from_entry(source_manifest.get(name, {}), entry["sha256"], stored_at)
        else:
            marks = FileMetadata.of(here / name)
        if there is not None and (problem := marks.apply_to(there / name)):
            unmarked.append(problem)
        known[name] = {**entry, **marks.entry()}
        new += size if is_new else 0
        if is_new and time.monotonic() - saved_at > _SAVE_EVERY_SEC:
            _write_manifest(target, known)
            saved_at = time.monotonic()
        done += size
        on_progress(done, total)
    _write_manifest(target, {name: known[name] for name in names})
    return Copied(len(names), total, new, time.monotonic() - began, unmarked=tuple(unmarked))


def _folder(store: "Store") -> Path | None:
    """None for a bucket."""
    return store.path if isinstance(store, FolderStore) else None


def _has(target: "Store", name: str, size: int, sha256: str) -> bool:
    return _size(target, name) == size and (_folder(target) is None or get_sha256(target, name) == sha256)


def files_of_run(source: "Store", *, whole: bool) -> dict[str, int]:
    """The files that a run needs to resume elsewhere, name -> bytes; unless `whole`, with one checkpoint only."""
    return _select_files(source, _list_files(source)[0], lambda done, total: None, whole=whole)[0]


def _list_files(source: "Store") -> tuple[Mapping[str, int], tuple[str, ...]]:
    """All files, name -> bytes, and a line for each thing that cannot be copied."""
    if isinstance(source, FolderStore):
        found = RunFolder.scan(source.folder)
        return found.files, found.left_out
    return {each["path"]: each["size"] for page in source.list() for each in page}, ()


def _select_files(
    source: "Store", found: Mapping[str, int], on_progress: OnProgress, *, whole: bool
) -> tuple[dict[str, int], tuple[str, ...]]:
    newest, damaged = ("checkpoints/", ()) if whole else find_newest_intact(source, found, on_progress)
    files = {
        name: size
        for name, size in found.items()
        if name != MANIFEST and (not name.startswith("checkpoints/") or name.startswith(newest))
    }
    return files, damaged


def _remove_others(target: "Store", kept: Collection[str]) -> None:
    if isinstance(target, FolderStore):
        remove_others(target.path, {*kept, MANIFEST})
        return
    others = [each["path"] for page in target.list() for each in page if each["path"] not in kept]
    for name in others:
        if name != MANIFEST:
            target.delete(name)


def forget_copy(target: "Store") -> None:
    """Removes the manifest of a target that keeps times and modes itself."""
    if _size(target, MANIFEST) is not None:
        target.delete(MANIFEST)


def _copy(source: "Store", target: "Store", name: str) -> str:
    sent = hashlib.sha256()
    with _writer(target, name) as writer:
        for part in source.get(name).stream(_PART_BYTES):
            sent.update(part)
            writer.write(part)
    if get_sha256(target, name) != sent.hexdigest():
        raise CopyDamagedError(name)
    return sent.hexdigest()


@contextmanager
def _writer(target: "Store", name: str) -> Iterator[Any]:
    """Closed only after a complete write: an unclosed file never appears."""
    from obstore import open_writer

    if isinstance(target, FolderStore):
        with target.writer(name) as file:
            yield file
        return
    writer = open_writer(target, name, buffer_size=_PART_BYTES)
    yield writer
    writer.close()


def _size(store: "Store", name: str) -> int | None:
    try:
        return int(store.head(name)["size"])
    except (FileNotFoundError, NotADirectoryError):
        return None


def _read_manifest(target: "Store") -> dict[str, dict[str, Any]]:
    try:
        content = bytes(target.get(MANIFEST).bytes())
    except FileNotFoundError:
        return {}
    try:
        known: dict[str, dict[str, Any]] = json.loads(content)
    except ValueError:
        raise InputError(
            MANIFEST, "not a list of copied files", fix="move it aside; everything is then copied again"
        ) from None
    return known


def _write_manifest(target: "Store", known: Mapping[str, Any]) -> None:
    target.put(MANIFEST, json.dumps(known).encode())


class _Part(BaseModel):
    file: str
    sha256: str


class _Sums(BaseModel):
    """The part of a manifest that every version has (gangway.trainer.checkpoint.store)."""

    sha256: str
    parts: tuple[_Part, ...] = ()


def get_sha256(store: "ObjectStore | FolderStore", name: str) -> str:
    """Of its current content."""
    found = hashlib.sha256()
    for part in store.get(name).stream(8 << 20):
        found.update(part)
    return found.hexdigest()


def find_newest_intact(
    store: "ObjectStore | FolderStore", sizes: Mapping[str, int], on_progress: Callable[[int, int], None]
) -> tuple[str, tuple[str, ...]]:
    """The name prefix of the newest intact checkpoint, and a line for each newer, damaged one. The newest if all are
    damaged; a single one is not checked; `checkpoints/` if there is none. `sizes`: of all files of the run.
    """
    states = sorted((match[1] for name in sizes if (match := _CHECKPOINT.fullmatch(name))), reverse=True)
    passed_over = list[str]()
    for state in states if len(states) > 1 else ():
        if not (damage := _find_damage(store, sizes, state, on_progress)):
            return f"{state}.", tuple(passed_over)
        passed_over.append(f"{state}.pt (damaged: {damage})")
    return f"{states[0]}." if states else "checkpoints/", ()


def _find_damage(
    store: "ObjectStore | FolderStore", sizes: Mapping[str, int], state: str, on_progress: Callable[[int, int], None]
) -> str:
    try:
        sums = _Sums.model_validate_json(bytes(store.get(f"{state}.json").bytes()))
    except (FileNotFoundError, ValidationError):
        return "its manifest is missing or invalid"
    wanted = {f"{state}.pt": sums.sha256, **{f"checkpoints/{part.file}": part.sha256 for part in sums.parts}}
    if missing := [name for name in wanted if name not in sizes]:
        return f"{missing[0]} is missing"
    total, done = sum(sizes[name] for name in wanted), 0
    for name, sha256 in wanted.items():
        if get_sha256(store, name) != sha256:
            return f"{name} does not match its manifest"
        done += sizes[name]
        on_progress(done, total)
    return ""


# Data sets of jobs, copied once per user into an engine's folder of jobs. Not shared between users: a job would train
# on whatever another user put there.
#
# FOLDER/.data-<uid>/<key>/files        the source's files; unchanged once complete
# FOLDER/.data-<uid>/<key>/whole.json   files and sizes, written when all are there
# FOLDER/.data-<uid>/<key>/lock         held during the copy
#
# The next submit resumes an interrupted copy and sends only the missing files.

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

    if job.data is None or (source := job.data.source) is None:
        return None
    files = _list_copied(source)
    place = _place(jobs_folder, source)
    try:
        make_shared(jobs_folder)
        folder = OwnJobFolder.make(place.parent).subfolder(place.name)
        copy = folder.subfolder(_FILES)
        with folder.append_to(_LOCK) as held:
            if _wait_for_lock(held, source, on_wait):
                files = _list_copied(source)  # hours may have passed
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


def _list_copied(source: str) -> dict[str, int]:

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
