"""Checkpoints: written whole or not at all, hashed, and read back only when the hash is right."""

import contextlib
import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from trainer.config.train_config import RESUMABLE_CHANGES, TrainConfig
from trainer.core.console import info
from trainer.core.errors import TrainerError, diverged, from_validation
from trainer.core.files import atomic_writer, clean_temporaries, read_input, sha256_of, write_atomically
from trainer.records.digest import RunIdentity


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


def is_finite(value: object) -> bool:
    """Whether every number in nested dicts and lists of tensors is one."""
    if isinstance(value, Tensor):
        # One pass without a copy; only a sum that is not finite, which may be an overflow, needs the second look.
        return bool(torch.isfinite(value.sum())) or bool(torch.isfinite(value).all())
    if isinstance(value, Mapping):
        return all(is_finite(item) for item in value.values())
    return all(is_finite(item) for item in value) if isinstance(value, list | tuple) else True


_STATE_KEYS = MappingProxyType(
    {
        "g": "the generator",
        "d": "the discriminator",
        "ema": "the averaged generator",
        "opt_g": "the generator's optimiser",
        "opt_d": "the discriminator's optimiser",
    }
)
"""Of a state, in words."""

State = dict[str, Any]


class Manifest(BaseModel):
    """What stands beside a checkpoint: hash and size of its file, and its origin. `state_sha256` is of each part's
    tensors, so that two runs can be compared without loading them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    images: int
    sha256: str
    bytes: int
    state_sha256: dict[str, str]
    config: TrainConfig
    identity: RunIdentity


class Checkpoint(NamedTuple):
    """A verified checkpoint in memory, tensors on the CPU."""

    manifest: Manifest
    state: State


def save(folder: Path, state: State, config: TrainConfig, images: int, identity: RunIdentity) -> Path:
    """Writes a checkpoint, then deletes what is older than the newest `config.keep_checkpoints` intact ones.

    The first one at or after each multiple of `config.keep_every_kimg` stays for good. `state` is nested dicts and
    lists of tensors and numbers. TrainerError: a number is not finite, the disk is full or the folder cannot be
    written; earlier checkpoints are intact.
    """
    # Losses are looked at once in a while; a state gone bad in between must not push good checkpoints out.
    for part, value in state.items():
        if not is_finite(value):
            place = f"{_STATE_KEYS.get(part, part)} at step {state['step']}, {images} images, not saved"
            raise diverged(place, "nan or inf, found when it was to be saved; earlier checkpoints are as they were")
    # Through memory: torch reports a full disk as RuntimeError when it writes a file itself, and the hash is free.
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getbuffer()
    path = folder / f"{images:012d}.pt"
    manifest = Manifest(
        images=images,
        sha256=hashlib.sha256(content).hexdigest(),
        bytes=len(content),
        state_sha256=state_digests(state),
        config=config,
        identity=identity,
    )
    _write(path, content, manifest)
    clean_temporaries(folder)
    _prune(folder, config, identity.run_id)
    return path


def _write(path: Path, content: memoryview, manifest: Manifest) -> None:
    """The manifest, then the file. Where that fails, on a full disk, what stood there before stands there again."""
    beside = _manifest_path(path)
    before = beside.read_bytes() if beside.exists() else None
    write_atomically(beside, manifest.model_dump_json(indent=2).encode())
    try:
        with atomic_writer(path) as file:
            file.write(content)
    except TrainerError:
        with contextlib.suppress(OSError, TrainerError):
            beside.unlink() if before is None else write_atomically(beside, before)
        raise


def load(path: Path) -> Checkpoint:
    """Reads one checkpoint. TrainerError: missing, without manifest, not what that promises, or code."""
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
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise TrainerError(
            place=str(path),
            problem="checkpoint holds more than tensors and numbers, and none of it was run",
            value=str(error).splitlines()[0],
            allowed="what this trainer has saved",
            fix="find out who wrote it; resume without it: the newest valid checkpoint is taken",
        ) from None
    if set(state) != set(manifest.state_sha256):
        raise TrainerError(
            place=str(path),
            problem="checkpoint has not the parts that its manifest names",
            value=", ".join(sorted(state)),
            allowed=", ".join(sorted(manifest.state_sha256)),
            fix="resume without it: the newest valid checkpoint is taken",
        )
    return Checkpoint(manifest, state)


def load_newest_valid(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest valid checkpoint, None where the folder has none, and a sentence on each newer one passed over.
    TrainerError: every one is corrupt: starting anew silently would lose the run.
    """
    passed_over: list[str] = []
    for path in _files(folder):
        try:
            return load(path), passed_over
        except TrainerError as error:
            passed_over.append(error.headline)
    if passed_over:
        raise TrainerError(
            place=str(folder),
            problem=f"all {len(passed_over)} checkpoints are corrupt",
            value=passed_over[0],
            fix="restore the folder from a copy, or start anew in another --run-dir",
        )
    return None, []


def newest_of_run(run_dir: Path, purpose: str = "", *, aloud: bool = True) -> Checkpoint:
    """The newest valid checkpoint of a run, for those who do not go on with it (TrainerError: none yet). `purpose` is
    such as " to judge"; `aloud` tells of newer, corrupt ones on stdout: on one of several workers is enough.
    """
    found, passed_over = load_newest_valid(run_dir / "checkpoints")
    for sentence in passed_over if aloud else ():
        info(f"passed over a checkpoint: {sentence}")
    if found is None:
        raise TrainerError(
            place="--run-dir",
            problem=f"holds no checkpoint{purpose} yet",
            value=str(run_dir),
            allowed="a run with at least one checkpoint",
            fix="train on until its first checkpoint, or name another --run-dir",
        )
    return found


def newest(folder: Path) -> Path | None:
    """The newest checkpoint file by its name, unverified; None where there is none."""
    return next(iter(_files(folder)), None)


def check_config(saved: TrainConfig, current: TrainConfig, run_dir: Path) -> None:
    """TrainerError for the first field deciding what a step computes that differs, with both values."""
    for field in TrainConfig.model_fields:
        before, now = getattr(saved, field), getattr(current, field)
        if field not in RESUMABLE_CHANGES and before != now:
            raise TrainerError(
                place=f"TrainConfig.{field}",
                problem=f"the run in {run_dir} was started with another value",
                value=now if isinstance(now, int | float | str) else current.shown(field),
                allowed=saved.shown(field),
                fix=f"go on with {saved.shown(field)}, or start a new run in another --run-dir",
            )


def _prune(folder: Path, config: TrainConfig, run_id: str) -> None:
    """Deletes what is older than the newest `keep_checkpoints` that look intact, but for those that stay for good.

    Corrupt ones do not count, or they would push the good ones out. Only manifest, run and size are looked at: hashing
    every kept file would cost as much as the save itself, `keep` times.
    """
    kept, files = 0, _files(folder)
    stay = _milestones(files, config.keep_every_kimg)
    for path in files:
        if kept < config.keep_checkpoints:
            kept += _looks_intact(path, run_id)
        elif path not in stay:
            path.unlink()
            _manifest_path(path).unlink(missing_ok=True)


def _milestones(newest_first: list[Path], every_kimg: float) -> set[Path]:
    """The first checkpoint at or after each multiple of so many thousand images; none where that is 0. It was the first
    when written and still is: what came before it in the same stretch cannot come later.
    """
    if not every_kimg:
        return set()
    first_of = {int(path.stem) // (every_kimg * 1000): path for path in newest_first}
    return {path for stretch, path in first_of.items() if stretch > 0}


def _looks_intact(checkpoint: Path, run_id: str) -> bool:
    try:
        manifest = _read_manifest(checkpoint)
    except TrainerError:
        return False
    return manifest.identity.run_id == run_id and manifest.bytes == checkpoint.stat().st_size


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("[0-9]*.pt"), reverse=True)


def _manifest_path(checkpoint: Path) -> Path:
    return checkpoint.with_suffix(".json")


def _read_manifest(checkpoint: Path) -> Manifest:
    path = _manifest_path(checkpoint)
    content = read_input(path, "restore it from a copy", missing="the checkpoint's manifest is missing")
    try:
        return Manifest.model_validate_json(content)
    except ValidationError as error:
        raise from_validation(error, str(path)) from None
