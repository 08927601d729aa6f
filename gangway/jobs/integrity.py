"""Checks files by hash, and the trainer's checkpoints by their manifests. A trainer skips a damaged checkpoint, but a
moved job may have no other.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from gangway.jobs.run_folder import FolderStore

_STATE = re.compile(r"(checkpoints/[0-9]+)\.pt")
_PART_BYTES = 8 << 20


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
    for part in store.get(name).stream(_PART_BYTES):
        found.update(part)
    return found.hexdigest()


def find_newest_intact(
    store: "ObjectStore | FolderStore", sizes: Mapping[str, int], on_progress: Callable[[int, int], None]
) -> tuple[str, tuple[str, ...]]:
    """The name prefix of the newest intact checkpoint, and a line for each newer, damaged one. The newest if all are
    damaged; a single one is not checked; `checkpoints/` if there is none. `sizes`: of all files of the run.
    """
    states = sorted((match[1] for name in sizes if (match := _STATE.fullmatch(name))), reverse=True)
    passed_over = list[str]()
    for state in states if len(states) > 1 else ():
        if not (damage := _find_damage(store, sizes, state, on_progress)):
            return f"{state}.", tuple(passed_over)
        passed_over.append(f"{state}.pt (damaged: {damage})")
    return f"{states[0]}." if states else "checkpoints/", ()


def _find_damage(
    store: "ObjectStore | FolderStore", sizes: Mapping[str, int], state: str, on_progress: Callable[[int, int], None]
) -> str:
    """What is wrong with a checkpoint; empty if intact."""
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
