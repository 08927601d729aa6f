"""A run's folder copied from one object store to another, or between folders: each file is hashed and read back, and
what was copied before is not copied again.

A store shows a file whole or not at all, so a copy that was killed leaves none by half. What it had done stands in
MANIFEST, which is written as it goes and counts only for files that are still the same at both ends.
"""

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copyfile
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from components.core.findings import InputError
from stacks.bench.run_store import object_store

if TYPE_CHECKING:
    from obstore.store import ObjectStore

MANIFEST = ".gangway-copied.json"
_PART_BYTES = 8 << 20
_SAVE_EVERY_SEC = 2.0
_ODD = re.compile(r"#[0-9]+$")
"""What obstore calls a file of a folder that it has by half: it lists none of that name, and writes none."""

Told = Callable[[int, int], None]
"""Bytes done, and bytes in all."""


@dataclass(frozen=True)
class Copied:
    """What a copy came to; `new_bytes` of `bytes` were sent now; `left_out`: what does not travel."""

    files: int
    bytes: int
    new_bytes: int
    sec: float
    left_out: tuple[str, ...] = ()


class CopyDamagedError(Exception):
    """What was read back is not what was sent."""


def copy_run(source_url: str, target_url: str, tell: Told, *, whole: bool) -> Copied:
    """A run's folder, `whole` as of `files_of_run`. Raises as `copy_folder` does."""
    source, target = object_store(source_url, ""), object_store(target_url, "")
    copied = copy_folder(source, target, files_of_run(source, whole=whole), tell)
    forget_copy(target)
    here, there = _folder(source_url), _folder(target_url)
    if here is None or there is None:
        return copied
    files, size = _copy_odd(here, there)
    return replace(
        copied, files=copied.files + files, bytes=copied.bytes + size, new_bytes=copied.new_bytes + size,
        left_out=tuple(sorted(_left_out(here))),
    )  # fmt: skip


def _folder(url: str) -> Path | None:
    """None of a bucket, in which every name is as good as another."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def _copy_odd(source: Path, target: Path) -> tuple[int, int]:
    """Files whose names obstore keeps to itself; how many, and their bytes. Raises as `copy_folder` does."""
    for path in target.rglob("*"):
        if _ODD.search(path.name) and not path.is_dir():
            path.unlink()  # of a copy that was killed, by half
    files = size = 0
    for path in source.rglob("*"):
        if _ODD.search(path.name) and path.is_file() and not path.is_symlink():
            name = path.relative_to(source)
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            copyfile(path, target / name)
            if _sha256(path) != _sha256(target / name):
                raise _damaged(str(name))
            files, size = files + 1, size + path.stat().st_size
    return files, size


def _left_out(folder: Path) -> Iterator[str]:
    """Empty folders, links that lead nowhere, and what is no file at all."""
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            if not path.exists() or _ODD.search(path.name):
                yield f"{name} (a link)"
        elif path.is_dir():
            if not any(path.iterdir()):
                yield f"{name}/ (empty)"
        elif not path.is_file():
            yield f"{name} (no file)"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _damaged(name: str) -> CopyDamagedError:
    return CopyDamagedError(f"{name}: what arrived is not what was sent; copy it again")


def copy_folder(source: "ObjectStore", target: "ObjectStore", names: Mapping[str, int], tell: Told) -> Copied:
    """Copies these files, name -> bytes. CopyDamagedError: one arrived otherwise; OSError, or obstore's own errors: a
    store does not answer.
    """
    began, total, done, new = time.monotonic(), sum(names.values()), 0, 0
    known, saved_at = _read_manifest(target), began
    for name, size in sorted(names.items()):
        stamp = _stamp(source, name)
        if known.get(name, {}).get("source") != stamp or _size(target, name) != size:
            known[name] = {"source": stamp, "sha256": _copy(source, target, name)}
            new += size
            if time.monotonic() - saved_at > _SAVE_EVERY_SEC:
                _write_manifest(target, known)
                saved_at = time.monotonic()
        done += size
        tell(done, total)
    _write_manifest(target, known)
    return Copied(len(names), total, new, time.monotonic() - began)


def files_of_run(source: "ObjectStore", *, whole: bool) -> dict[str, int]:
    """What a run needs to go on elsewhere, name -> bytes: `whole`, or without the trainer's older checkpoints."""
    found = {each["path"]: each["size"] for page in source.list() for each in page}
    checkpoints = sorted(name for name in found if name.startswith("checkpoints/") and name.endswith(".json"))
    newest = checkpoints[-1].removesuffix(".json") if checkpoints else ""
    return {
        name: size
        for name, size in found.items()
        if name != MANIFEST and (whole or not name.startswith("checkpoints/") or name.startswith(newest))
    }


def forget_copy(target: "ObjectStore") -> None:
    """Takes away what only a copy in the making needs."""
    if _size(target, MANIFEST) is not None:
        target.delete(MANIFEST)


def _copy(source: "ObjectStore", target: "ObjectStore", name: str) -> str:
    """One file; its SHA-256."""
    from obstore import open_writer

    sent = hashlib.sha256()
    # Closed where all is written alone: what is not closed never appears.
    writer = open_writer(target, name, buffer_size=_PART_BYTES)
    for part in source.get(name).stream(_PART_BYTES):
        sent.update(part)
        writer.write(part)
    writer.close()
    arrived = hashlib.sha256()
    for part in target.get(name).stream(_PART_BYTES):
        arrived.update(part)
    if arrived.digest() != sent.digest():
        raise _damaged(name)
    return sent.hexdigest()


def _stamp(store: "ObjectStore", name: str) -> list[Any]:
    """By which a file is known to be the same."""
    meta = store.head(name)
    return [meta["size"], meta["e_tag"], meta["last_modified"].isoformat()]


def _size(store: "ObjectStore", name: str) -> int | None:
    try:
        return int(store.head(name)["size"])
    except FileNotFoundError:
        return None


def _read_manifest(target: "ObjectStore") -> dict[str, dict[str, Any]]:
    try:
        content = bytes(target.get(MANIFEST).bytes())
    except FileNotFoundError:
        return {}
    try:
        known: dict[str, dict[str, Any]] = json.loads(content)
    except ValueError:
        raise InputError(MANIFEST, "no list of what was copied", fix="remove it: everything is copied again") from None
    return known


def _write_manifest(target: "ObjectStore", known: Mapping[str, Any]) -> None:
    target.put(MANIFEST, json.dumps(known).encode())
