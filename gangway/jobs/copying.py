"""A run's folder copied from one object store to another, or between folders: each file is hashed and read back, and
what was copied before is not copied again. A file's time and mode go along.

A store shows a file whole or not at all, so a copy that was killed leaves none by half. What it had done stands in
MANIFEST, which is written as it goes and counts only for files that are still the same at both ends: at the source by
size, tag and time; at the target by hash in a folder, where a machine that crashed may have kept a file's name and size
alone, and by size in a bucket, which keeps what it has confirmed. In a bucket it stays, for a bucket keeps no times and
modes of files.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes, urlsplit

from components.core.findings import InputError
from gangway.jobs.file_hashes import Marks, mark_folders, unmarked_line
from gangway.jobs.integrity import newest_intact, sha256_of
from gangway.jobs.job_folder import JobFolder
from gangway.jobs.run_folder import CopyDamagedError, FolderStore, RunFolder, is_odd, remove_others
from gangway.runs.run_store import object_store

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    Store = ObjectStore | FolderStore

MANIFEST = ".gangway-copied.json"
_PART_BYTES = 8 << 20
_SAVE_EVERY_SEC = 2.0

OfCopy = str | JobFolder
"""What is copied, and where to: a URL of `gangway.runs.run_store.object_store`, or a folder that is held open."""
Told = Callable[[int, int], None]
"""Bytes done, and bytes in all."""


@dataclass(frozen=True)
class Copied:
    """What a copy came to; `new_bytes` of `bytes` were sent now; `left_out`: what does not travel; `unmarked`: why
    files do not have their times and modes, each.
    """

    files: int
    bytes: int
    new_bytes: int
    sec: float
    left_out: tuple[str, ...] = ()
    unmarked: tuple[str, ...] = ()


def copy_run(source_place: OfCopy, target_place: OfCopy, tell: Told, *, whole: bool) -> Copied:
    """A run's folder, `whole` as of `files_of_run`; what else is at the target, which is the copy's alone, is removed:
    an earlier copy that was cut off has left what the source no longer has. InputError: the folder, or a store, cannot
    be read or written, or is empty now and was not at an earlier copy; CopyDamagedError as of `copy_folder`.
    """
    with _opened(source_place, target_place) as (source, target):
        here, there = _folder(source), _folder(target)
        found, not_copied = _listed(source)
        files, damaged = _needed(source, found, tell, whole=whole)
        if not files:
            _check_never_had(source_place, target_place)
        odd = [name for name in files if (here is None or there is None) and is_odd(name)]
        _remove_others(target, files.keys())  # before the copy: a file may stand where a folder is to be
        copied = copy_folder(source, target, {name: files[name] for name in files if name not in odd}, tell)
        if there is not None:
            forget_copy(target)
        on_folders = () if here is None or there is None else mark_folders(here, there, files)
    unmarked = (*copied.unmarked, *on_folders)
    nameless = (f"{name} (no name of a bucket's)" for name in odd)
    left_out = sorted((*damaged, *nameless, *not_copied, *unmarked_line(unmarked)))
    return replace(copied, left_out=tuple(left_out), unmarked=unmarked)


def _check_never_had(source_place: OfCopy, target_place: OfCopy) -> None:
    """Of a source without a file. InputError: an earlier copy found some. A folder that is not mounted now looks the
    same, and what is at the target may be all that is left.
    """
    if any(name != MANIFEST for name in files_at(target_place)):
        there = _named(target_place)
        raise InputError(
            _named(source_place), f"holds no file now, and {there} has those of an earlier copy",
            allowed="a folder that is mounted, and whole",
            fix=f"bring its files back, or move what is in {there} elsewhere; then the same once more",
        )  # fmt: skip


def files_at(place: OfCopy) -> dict[str, int]:
    """Name -> bytes of all that a copy of it would have. InputError: it cannot be read."""
    with _opened(place) as (store,):
        found = files_of_run(store, whole=True)
    return {name: size for name, size in found.items() if isinstance(store, FolderStore) or not is_odd(name)}


@contextmanager
def _opened(*places: OfCopy) -> Iterator[list["Store"]]:
    """The source, and the target where there is one. InputError: what goes wrong with them meanwhile."""
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
        there = _named(places[1]) if len(places) > 1 else "anywhere"
        raise InputError(
            _named(places[0]), f"cannot be copied to {there}: {first}",
            allowed="what can be read, and a place with room", fix="mend that; the same move again goes on with it",
        ) from error  # fmt: skip


def _named(place: OfCopy) -> str:
    return place if isinstance(place, str) else str(place.path)


def _store(place: OfCopy) -> "Store":
    """OSError: there is no such folder."""
    if isinstance(place, JobFolder):
        return FolderStore(place)
    parts = urlsplit(place)
    if parts.scheme != "file":
        return object_store(place, "")
    return FolderStore(JobFolder(Path(os.fsdecode(unquote_to_bytes(parts.path))).resolve()))  # a link was named so


def copy_folder(source: "Store", target: "Store", names: Mapping[str, int], tell: Told) -> Copied:
    """Copies these files, name -> bytes. CopyDamagedError: one arrived otherwise; OSError, or obstore's own errors: a
    store does not answer.
    """
    began, total, done, new = time.monotonic(), sum(names.values()), 0, 0
    known, saved_at = _read_manifest(target), began
    here, there, unmarked = _folder(source), _folder(target), list[str]()
    said = _read_manifest(source) if here is None else {}
    for name, size in sorted(names.items()):
        stamp = _stamp(source, name)
        is_new = known.get(name, {}).get("source") != stamp or not _has(target, name, size, known[name]["sha256"])
        entry = {"source": stamp, "sha256": _copy(source, target, name)} if is_new else known[name]
        marks = _said_marks(said, name, entry) if here is None else Marks.of(here / name)
        if there is not None and (problem := marks.put_on(there / name)):
            unmarked.append(problem)
        known[name] = {**entry, **marks.entry()}
        new += size if is_new else 0
        if is_new and time.monotonic() - saved_at > _SAVE_EVERY_SEC:
            _write_manifest(target, known)
            saved_at = time.monotonic()
        done += size
        tell(done, total)
    _write_manifest(target, {name: known[name] for name in names})
    return Copied(len(names), total, new, time.monotonic() - began, unmarked=tuple(unmarked))


def _folder(store: "Store") -> Path | None:
    """None of a bucket."""
    return store.path if isinstance(store, FolderStore) else None


def _has(target: "Store", name: str, size: int, sha256: str) -> bool:
    """Whether a file that had arrived is there still."""
    return _size(target, name) == size and (_folder(target) is None or sha256_of(target, name) == sha256)


def _said_marks(said: Mapping[str, Mapping[str, Any]], name: str, entry: Mapping[str, Any]) -> Marks:
    """Of a bucket's object, by its manifest and the entry that the target has of it now."""
    return Marks.said(said.get(name, {}), entry["sha256"], datetime.fromisoformat(entry["source"][-1]))


def files_of_run(source: "Store", *, whole: bool) -> dict[str, int]:
    """What a run needs to go on elsewhere, name -> bytes: `whole`, or of the trainer's checkpoints that of
    `newest_intact` alone.
    """
    return _needed(source, _listed(source)[0], lambda done, total: None, whole=whole)[0]


def _listed(source: "Store") -> tuple[Mapping[str, int], tuple[str, ...]]:
    """All files, name -> bytes; and a line for each thing that no copy can have."""
    if isinstance(source, FolderStore):
        found = RunFolder.look(source.folder)
        return found.files, found.left_out
    return {each["path"]: each["size"] for page in source.list() for each in page}, ()


def _needed(
    source: "Store", found: Mapping[str, int], tell: Told, *, whole: bool
) -> tuple[dict[str, int], tuple[str, ...]]:
    """As `files_of_run`, of all files of a run; and a line for each newer checkpoint that is left behind."""
    newest, damaged = ("checkpoints/", ()) if whole else newest_intact(source, found, tell)
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
    """Takes away what only a copy in the making needs, where its files have their times and modes themselves."""
    if _size(target, MANIFEST) is not None:
        target.delete(MANIFEST)


def _copy(source: "Store", target: "Store", name: str) -> str:
    """One file; its SHA-256."""
    sent = hashlib.sha256()
    with _writer(target, name) as writer:
        for part in source.get(name).stream(_PART_BYTES):
            sent.update(part)
            writer.write(part)
    if sha256_of(target, name) != sent.hexdigest():
        raise CopyDamagedError(name)
    return sent.hexdigest()


@contextmanager
def _writer(target: "Store", name: str) -> Iterator[Any]:
    """Closed where all is written alone: what is not closed never appears."""
    from obstore import open_writer

    if isinstance(target, FolderStore):
        with target.writer(name) as file:
            yield file
        return
    writer = open_writer(target, name, buffer_size=_PART_BYTES)
    yield writer
    writer.close()


def _stamp(store: "Store", name: str) -> list[Any]:
    """By which a file is known to be the same."""
    meta = store.head(name)
    return [meta["size"], meta["e_tag"], meta["last_modified"].isoformat()]


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
            MANIFEST, "no list of what was copied", fix="move it aside: everything is copied again"
        ) from None
    return known


def _write_manifest(target: "Store", known: Mapping[str, Any]) -> None:
    target.put(MANIFEST, json.dumps(known).encode())
