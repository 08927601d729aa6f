"""Checkpoints: written whole or not at all, hashed, and read back only when the hash is right.

`checkpoints/000000123456.pt` (named by images seen) with `000000123456.json` beside it, the manifest with the file's
SHA-256. The manifest is written first: a .pt file in place therefore always has one. Loading uses
torch.load(weights_only=True), so a checkpoint is data and cannot run code. Not here: what the state consists of
(trainer.state) and when to save (trainer.loop).
"""

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from trainer.config import RESUMABLE_CHANGES, TrainConfig
from trainer.errors import TrainerError, from_validation
from trainer.files import clean_temporaries, sha256_of, write_atomically

__all__ = ["Checkpoint", "Manifest", "check_config", "load", "load_newest_valid", "newest", "save", "state_digests"]

State = dict[str, Any]


class Manifest(BaseModel):
    """What stands beside a checkpoint.

    Attributes:
        images: images seen.
        sha256: of the checkpoint file.
        state_sha256: of each part's tensors, so that two runs can be compared without loading them.
        config: the configuration it was made with.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    images: int
    sha256: str
    state_sha256: dict[str, str]
    config: TrainConfig


class Checkpoint(NamedTuple):
    """A verified checkpoint in memory, tensors on the CPU."""

    manifest: Manifest
    state: State


def save(folder: Path, state: State, config: TrainConfig, images: int) -> Path:
    """Writes a checkpoint and deletes all but the newest `config.keep_checkpoints`.

    Args:
        folder: where checkpoints are; made where missing.
        state: nested dicts and lists of tensors and numbers.
        config: kept in the manifest.
        images: images seen; names the file.

    Returns:
        The checkpoint file.

    Raises:
        TrainerError: the disk is full or the folder cannot be written; earlier checkpoints are intact.
    """
    # Through memory: torch reports a full disk as RuntimeError when it writes a file itself, and the hash is free.
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getvalue()
    path = folder / f"{images:012d}.pt"
    manifest = Manifest(
        images=images, sha256=hashlib.sha256(content).hexdigest(), state_sha256=state_digests(state), config=config
    )
    write_atomically(_manifest_path(path), manifest.model_dump_json(indent=2).encode())
    write_atomically(path, content)
    clean_temporaries(folder)
    for old in _files(folder)[config.keep_checkpoints :]:
        old.unlink()
        _manifest_path(old).unlink(missing_ok=True)
    return path


def load(path: Path) -> Checkpoint:
    """Reads one checkpoint.

    Raises:
        TrainerError: it is missing, has no manifest, or its content is not what the manifest promises.
    """
    if not path.is_file():
        raise TrainerError(place=str(path), problem="no such checkpoint", fix="name one of the folder's .pt files")
    manifest = _read_manifest(path)
    found = sha256_of(path)
    if found != manifest.sha256:
        raise TrainerError(
            place=str(path),
            problem="checkpoint is corrupt: its hash is not the one in its manifest",
            value=f"sha256 {found}",
            allowed=f"sha256 {manifest.sha256}",
            fix="resume without naming it: the newest valid checkpoint is taken",
        )
    return Checkpoint(manifest, torch.load(path, map_location="cpu", weights_only=True))


def load_newest_valid(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """Reads the newest checkpoint that is valid.

    Returns:
        The checkpoint, or None where the folder has none; and one sentence for each newer one that was passed over.

    Raises:
        TrainerError: there are checkpoints, and every one is corrupt: starting anew silently would lose the run.
    """
    passed_over: list[str] = []
    for path in _files(folder):
        try:
            return load(path), passed_over
        except TrainerError as error:
            passed_over.append(str(error))
    if passed_over:
        raise TrainerError(
            place=str(folder),
            problem=f"all {len(passed_over)} checkpoints are corrupt; the newest: {passed_over[0]}",
            fix="restore the folder from a copy, or start anew in another --run-dir",
        )
    return None, []


def newest(folder: Path) -> Path | None:
    """The newest checkpoint file by its name, unverified; None where there is none."""
    return next(iter(_files(folder)), None)


def check_config(saved: TrainConfig, current: TrainConfig, place: str) -> None:
    """Compares the fields that decide what a step computes.

    Raises:
        TrainerError: naming the first field that differs, with both values.
    """
    for field in TrainConfig.model_fields:
        before, now = getattr(saved, field), getattr(current, field)
        if field not in RESUMABLE_CHANGES and before != now:
            raise TrainerError(
                place=f"{place}: {field}",
                problem="the run in this directory was started with another value",
                value=now,
                allowed=repr(before),
                fix=f"go on with {before!r}, or start a new run in another --run-dir",
            )


def state_digests(state: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 over the tensors of each top-level part, by name, type, shape and bits, whatever their memory layout."""
    return {part: _digest(value) for part, value in state.items()}


def _digest(value: object) -> str:
    digest = hashlib.sha256()
    _update(digest, value)
    return digest.hexdigest()


def _update(digest: "hashlib._Hash", value: object) -> None:
    if isinstance(value, Tensor):
        digest.update(f"{value.dtype}{tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    elif isinstance(value, Mapping):
        for key in value:
            digest.update(repr(key).encode())
            _update(digest, value[key])
    elif isinstance(value, list | tuple):
        for item in value:
            _update(digest, item)
    else:
        digest.update(repr(value).encode())


def _files(folder: Path) -> list[Path]:
    """Checkpoint files, newest first."""
    return sorted(folder.glob("[0-9]*.pt"), reverse=True)


def _manifest_path(checkpoint: Path) -> Path:
    return checkpoint.with_suffix(".json")


def _read_manifest(checkpoint: Path) -> Manifest:
    path = _manifest_path(checkpoint)
    if not path.is_file():
        raise TrainerError(place=str(path), problem="the checkpoint's manifest is missing", fix="restore it")
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise from_validation(error, str(path)) from None
