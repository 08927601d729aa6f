"""Checkpoints: written atomically, hashed, and loaded only if the hash is right; bad ones are skipped with a reason."""

import contextlib
import hashlib
import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from pickle import UnpicklingError
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import torch
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from torch import Tensor

from gangway.trainer.checkpoint import parts as parted
from gangway.trainer.checkpoint.compatibility import SavedConfig, misfit
from gangway.trainer.checkpoint.parts import Part, Piece, Written
from gangway.trainer.config.train_config import RESUMABLE_CHANGES, TrainConfig
from gangway.trainer.core.console import info
from gangway.trainer.core.errors import TrainerError, diverged
from gangway.trainer.core.files import atomic_writer, clean_temporaries, read_input, sha256_of, write_atomically
from gangway.trainer.core.regular_files import check_file, read_file
from gangway.trainer.core.validation import from_validation
from gangway.trainer.distributed.sharded_modules import map_tensors, tensors, whole
from gangway.trainer.distributed.world import World
from gangway.trainer.networks.factory import revision
from gangway.trainer.records.digest import RunIdentity
from gangway.trainer.records.quantity import Frozen


def state_digests(state: Mapping[str, Any]) -> dict[str, str]:
    """Returns the SHA-256 of each top-level part, for any layout; gathers split tensors one by one. Collective."""
    return {part: _digest(value) for part, value in state.items()}


def _digest(value: object) -> str:
    digest = hashlib.sha256()
    _update(digest, value)
    return digest.hexdigest()


def _update(digest: "hashlib._Hash", value: object) -> None:
    if isinstance(value, Tensor):
        tensor: Tensor = whole(value)
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
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
    """Whether all numbers in nested dicts and lists of tensors are finite."""
    # One pass without a copy; a sum that is not finite may be an overflow, and needs the second.
    return all(bool(torch.isfinite(each.sum())) or bool(torch.isfinite(each).all()) for _, each in tensors(value))


_STATE_KEYS = MappingProxyType(
    {
        "g": "the generator",
        "d": "the discriminator",
        "ema": "the averaged generator",
        "opt_g": "the generator's optimiser",
        "opt_d": "the discriminator's optimiser",
    }
)
"""A state's parts in words."""

State = dict[str, Any]
Misfit = Callable[[TrainConfig, State], str]
"""Returns how a state differs from the networks, in a sentence; empty where it fits."""
FORMAT = 1  # Of manifests and a state's parts. A newer trainer may write a higher one.
_UNREADABLE = (RuntimeError, EOFError, OSError, TypeError, ValueError, LookupError, AttributeError, AssertionError)
"""What torch.load raises, besides UnpicklingError, for unreadable bytes."""


class OtherVersionError(TrainerError):
    """A whole checkpoint of another version of the trainer, which this one cannot load."""

    @classmethod
    def of(cls, path: Path, why: str) -> Self:
        """Creates the error; `why` names what this version does not know."""
        return cls(
            place=str(path),
            problem=f"is of another version of the trainer: {why}",
            allowed=f"what this version saves, format {FORMAT}",
            fix="go on with the version that wrote it, or start anew in another --run-dir",
        )


class Manifest(Frozen):
    """A checkpoint's manifest."""

    images: int
    sha256: str  # of the file
    bytes: int  # size of the file
    # of each part's tensors, to compare runs without loading them; sharded, with equal workers
    state_sha256: dict[str, str]
    config: SavedConfig
    identity: RunIdentity
    format: int = 1  # `FORMAT` when it was written
    parts: tuple[Part, ...] = ()  # files of sharded networks, one per worker
    revision: int = 1  # of the networks' architecture (gangway.trainer.networks.factory)


class _FormatOnly(BaseModel):
    format: int = 1


class Checkpoint(NamedTuple):
    """A verified checkpoint with tensors on the CPU; one in parts has meta tensors until `read`."""

    manifest: Manifest
    state: State
    pieces: tuple[Piece, ...] = ()
    folder: Path = Path()

    def read(self, room: State | None = None) -> State:
        """Returns the state on the CPU; a checkpoint in parts is read into `room`, whose tensors may be split."""
        if not self.manifest.parts:
            return self.state
        if room is None:
            room = map_tensors(self.state, lambda each: torch.empty(each.shape, dtype=each.dtype))
        parted.fill(room, self.pieces, self.folder, self.manifest.parts)
        return room


def save(folder: Path, state: State, config: TrainConfig, images: int, identity: RunIdentity) -> Path:
    """Writes a checkpoint, then deletes others but milestones and the newest `config.keep_checkpoints` intact ones.

    TrainerError: a number is not finite, or the folder cannot be written; earlier checkpoints stay intact.
    """
    # Losses are checked at intervals; a state that diverged in between must not replace good checkpoints.
    for part, value in state.items():
        if not is_finite(value):
            raise not_finite(part, state["step"], images)
    return _commit(folder, state, state_digests(state), config, images, identity)


def not_finite(part: str, step: int, images: int) -> TrainerError:
    """Returns the error for a state that is not saved because of a number in `part`."""
    place = f"{_STATE_KEYS.get(part, part)} at step {step}, {images} images, not saved"
    return diverged(place, "nan or inf, found when it was to be saved; earlier checkpoints are as they were")


def save_parts(
    folder: Path, empty: State, written: Sequence[Written], config: TrainConfig, images: int, identity: RunIdentity
) -> Path:
    """Saves a state in parts that all workers have `written`; `empty` has its shapes."""
    digests = state_digests({name: value for name, value in empty.items() if not dict(tensors(value))})
    for name in empty:
        if name not in digests:
            digests[name] = _digest([each.digests.get(name, "") for each in written])
    content = {"state": empty, "pieces": [tuple(piece) for each in written for piece in each.pieces]}
    parts = tuple(each.part for each in written)
    return _commit(folder, content, {name: digests[name] for name in empty}, config, images, identity, parts)


def _commit(
    folder: Path,
    content: State,
    digests: dict[str, str],
    config: TrainConfig,
    images: int,
    identity: RunIdentity,
    parts: tuple[Part, ...] = (),
) -> Path:
    # Through memory: torch itself reports a full disk as RuntimeError, and the hash is free.
    buffer = io.BytesIO()
    torch.save(content, buffer)
    archive = buffer.getbuffer()
    path = folder / f"{images:012d}.pt"
    manifest = Manifest(
        images=images,
        sha256=hashlib.sha256(archive).hexdigest(),
        bytes=len(archive),
        state_sha256=digests,
        config=config,
        identity=identity,
        format=FORMAT,
        parts=parts,
        revision=revision(config),
    )
    _write(path, archive, manifest)
    clean_temporaries(folder)
    _prune(folder, config, identity.run_id)
    return path


def _write(path: Path, content: memoryview, manifest: Manifest) -> None:
    """Writes the manifest, then the file; where that fails, on a full disk, restores the earlier manifest."""
    manifest_path = _manifest_path(path)
    before = read_file(manifest_path) if manifest_path.exists() else None
    # Omitted at their defaults, so that older versions can read it.
    left_out = {name for name, first in (("parts", ()), ("revision", 1)) if getattr(manifest, name) == first}
    write_atomically(manifest_path, manifest.model_dump_json(indent=2, exclude=left_out).encode())
    try:
        with atomic_writer(path) as file:
            file.write(content)
    except TrainerError:
        with contextlib.suppress(OSError, TrainerError):
            manifest_path.unlink() if before is None else write_atomically(manifest_path, before)
        raise


def load(path: Path, damaged: Mapping[str, str] | None = None) -> Checkpoint:
    """Reads a checkpoint; `damaged` None checks its parts here (TrainerError: unusable; OtherVersionError)."""
    if not path.is_file():
        raise TrainerError(place=str(path), problem="no such checkpoint", fix="name one of the folder's .pt files")
    manifest = _read_manifest(path)
    if (here := revision(manifest.config)) != manifest.revision:
        networks = f"its {manifest.config.architecture} networks are of revision {manifest.revision}"
        raise OtherVersionError.of(path, f"{networks}, and this version builds revision {here}")
    found = sha256_of(path)
    if found != manifest.sha256:
        problem = "its hash is not the one in its manifest"
        raise _corrupt(path, problem, f"sha256 {found}", f"sha256 {manifest.sha256}")
    state, pieces = _read_state(path), tuple[Piece, ...]()
    if manifest.parts:
        state, pieces = _get_parts(path, state, manifest, damaged)
    if set(state) != set(manifest.state_sha256):
        found, wanted = (", ".join(sorted(each)) for each in (state, manifest.state_sha256))
        raise _unfit(path, "has not the parts that its manifest names", found, wanted)
    return Checkpoint(manifest, state, pieces, path.parent)


def _get_parts(
    path: Path, content: State, manifest: Manifest, damaged: Mapping[str, str] | None
) -> tuple[State, tuple[Piece, ...]]:
    for part in manifest.parts:
        found = parted.get_damage(path.parent, part) if damaged is None else damaged.get(part.file, "")
        if found:
            raise _corrupt(path, found, None, f"the {len(manifest.parts)} files that its workers wrote")
    state = _named_parts(path, content.get("state"))
    try:
        return state, tuple(parted.get_pieces(content.get("pieces"), state, manifest.parts))
    except ValueError as error:
        raise _unreadable(path, str(error)) from None


def damaged_parts(folder: Path, world: World) -> Mapping[str, str]:
    """Returns damage by worker's file in a folder; all workers call it together, and each checks some."""
    found = {}
    for path in _files(folder):
        try:
            parts = _read_manifest(path).parts
        except TrainerError:  # reported where it is loaded
            continue
        for part in parts[world.rank :: world.world_size]:
            if damage := parted.get_damage(folder, part):
                found[part.file] = damage
    return {file: damage for each in world.gather(found, dict[str, str]) for file, damage in each.items()}


def _read_state(path: Path) -> State:
    try:
        # Before torch tries older formats, which this trainer never wrote.
        check_file(path)
        if not zipfile.is_zipfile(path):
            raise _unreadable(path, f"{path.stat().st_size} bytes that are no archive of torch.save")
        state = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        problem, allowed = "holds more than tensors and numbers, and none of it was run", "what this trainer has saved"
        fix = "find out who wrote it; resume without it"
        raise _unfit(path, problem, str(error).splitlines()[0], allowed, fix) from None
    except _UNREADABLE as error:
        raise _unreadable(path, f"{type(error).__name__}: {(str(error) or 'no reason').splitlines()[0]}") from None
    return _named_parts(path, state)


def _named_parts(path: Path, state: object) -> State:
    if not isinstance(state, dict) or not all(isinstance(part, str) for part in state):
        raise _unreadable(path, f"a {type(state).__name__} in place of named parts")
    return state


def _unfit(path: Path, problem: str, value: str | None, allowed: str, fix: str = "resume without it") -> TrainerError:
    fix = f"{fix}: the newest valid checkpoint is taken"
    return TrainerError(place=str(path), problem=f"checkpoint {problem}", value=value, allowed=allowed, fix=fix)


def _corrupt(path: Path, problem: str, value: str | None, allowed: str) -> TrainerError:
    return _unfit(path, f"is corrupt: {problem}", value, allowed, "resume without naming it")


def _unreadable(path: Path, found: str) -> TrainerError:
    problem = "holds nothing that can be loaded, though its hash is the one in its manifest"
    return _unfit(path, problem, found, "what this trainer has saved")


def load_newest_valid(
    folder: Path, unlike: Misfit = lambda *_: "", damaged: Mapping[str, str] | None = None
) -> tuple[Checkpoint | None, list[str]]:
    """Returns the newest valid checkpoint, if any, and a sentence per skipped one (TrainerError: all are bad)."""
    passed_over: list[TrainerError] = []
    for path in _files(folder):
        try:
            found = load(path, damaged)
            if why := unlike(found.manifest.config, found.state):
                raise OtherVersionError.of(path, why)
        except TrainerError as error:
            passed_over.append(error)
        else:
            return found, [each.headline for each in passed_over]
    if passed_over:
        raise _none_left(folder, passed_over)
    return None, []


def _none_left(folder: Path, passed_over: list[TrainerError]) -> TrainerError:
    others = sum(isinstance(error, OtherVersionError) for error in passed_over)
    damaged = len(passed_over) - others
    if not others:
        problem, fix = f"all {damaged} checkpoints are corrupt", "restore the folder from a copy"
    elif not damaged:
        problem = f"all {others} checkpoints are whole, but of another version of the trainer"
        fix = "go on with the version that wrote them"
    else:
        problem = f"of {len(passed_over)} checkpoints {damaged} are corrupt and {others} of another trainer's version"
        fix = "go on with the version that wrote those, or restore the others from a copy"
    return TrainerError(
        place=str(folder),
        problem=problem,
        value=passed_over[0].headline,
        allowed="one checkpoint at least that this version can load",
        fix=f"{fix}; or start anew in another --run-dir",
    )


def newest_of_run(run_dir: Path, purpose: str = "", *, aloud: bool = True) -> Checkpoint:
    """Returns a run's newest valid checkpoint (TrainerError: none yet); `aloud` reports skipped ones on stdout."""
    found, passed_over = load_newest_valid(run_dir / "checkpoints", misfit)
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
    """Returns the newest checkpoint file by its name, unverified; None where there is none."""
    return next(iter(_files(folder)), None)


def check_config(saved: TrainConfig, current: TrainConfig, run_dir: Path) -> None:
    """Raises TrainerError for the first differing field that affects a step; its fix names all that differ."""
    fixed = [field for field in TrainConfig.model_fields if field not in RESUMABLE_CHANGES]
    before = {field: saved.shown(field) for field in fixed if getattr(saved, field) != getattr(current, field)}
    for field, value in before.items():
        others = ", ".join(f"{name} {each}" for name, each in before.items() if name != field)
        now = getattr(current, field)
        raise TrainerError(
            place=f"TrainConfig.{field}",
            problem=f"the run in {run_dir} was started with another value",
            value=now if isinstance(now, int | float | str) else current.shown(field),
            allowed=value,
            fix=f"go on with {value}{f' (and {others})' if others else ''}, or start a new run in another --run-dir"
            + (f"; --config {run_dir / 'config.json'} has them all" if others else ""),
        )


def _prune(folder: Path, config: TrainConfig, run_id: str) -> None:
    """Corrupt ones do not count, or they would replace good ones; hashing all of them would cost a save each."""
    num_kept, files = 0, _files(folder)
    milestones = set[Path]()
    if every := config.keep_every_kimg * 1000:  # the first at or after each multiple
        first_of = {int(path.stem) // every: path for path in files}
        milestones = {path for multiple, path in first_of.items() if multiple > 0}
    for path in files:
        if num_kept < config.keep_checkpoints:
            num_kept += _looks_intact(path, run_id)
        elif path not in milestones:
            path.unlink()
            _manifest_path(path).unlink(missing_ok=True)
    stems = {path.stem for path in _files(folder)}
    for part in folder.glob("[0-9]*.part-*"):  # also of a save that has failed
        if part.name.partition(".")[0] not in stems:
            part.unlink()


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
        written = _FormatOnly.model_validate_json(content)
        if written.format != FORMAT:
            raise OtherVersionError.of(path, f"its format is {written.format}")
        return Manifest.model_validate_json(content)
    except ValidationError as error:
        found = from_validation(error, str(path))
        if any(_is_of_another_version(finding) for finding in error.errors()):
            accepted = f": {found.value!r}, where this version takes {found.allowed}" if found.allowed else ""
            raise OtherVersionError.of(path, f"{found.headline.removeprefix(f'{path}: ')}{accepted}") from None
        raise found from None


def _is_of_another_version(finding: ErrorDetails) -> bool:
    """Whether pydantic's finding is a field or configuration that another version may well write."""
    kind, where = finding["type"], finding["loc"]
    return kind in ("extra_forbidden", "rule") or (where[:1] == ("config",) and where != ("config",))
