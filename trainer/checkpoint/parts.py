"""Checkpoints of sharded networks: each worker writes its part, and any number of workers can read them.

torch.distributed.checkpoint plans what to write and read; its own files are pickles, which run code, so files here are
plain bytes, which the checkpoint, written last, describes.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from gangway.trainer.core.files import atomic_writer, sha256_of
from gangway.trainer.core.regular_files import open_file
from gangway.trainer.distributed.sharded_modules import map_tensors, tensors
from gangway.trainer.records.quantity import Frozen

State = dict[str, Any]


class Part(Frozen):
    """One worker's file in the manifest."""

    file: str
    sha256: str
    bytes: int


class Piece(NamedTuple):
    """A block of a tensor: its offsets and sizes, and its part and first byte. `name` joins the tensor's keys."""

    name: str
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    part: int
    start: int


class Written(NamedTuple):
    """A worker's file, its pieces, and digests of its bits by part of the state."""

    part: Part
    pieces: list[Piece]
    digests: dict[str, str]


_PIECES = TypeAdapter(list[Piece])


def part_name(checkpoint: Path, number: int, count: int) -> str:
    """Returns the name of a worker's file."""
    return f"{checkpoint.stem}.part-{number}-of-{count}"


def to_meta(state: State) -> State:
    """Returns the state with its tensors on meta, which keep shape and type."""
    empty: State = map_tensors(state, lambda each: torch.empty(each.shape, dtype=each.dtype, device="meta"))
    return empty


class Block(NamedTuple):
    """The block of a tensor that a worker writes."""

    name: str
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


def get_blocks(state: State, *, split: bool, whole: bool) -> list[Block]:
    """Returns what this worker writes: its parts of split tensors and, if `whole`, those that all have."""
    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
    from torch.distributed.tensor import DTensor

    here = ((name, each) for name, each in tensors(state) if not each.is_meta)
    named = {name: each for name, each in here if (split if isinstance(each, DTensor) else whole)}
    planner = DefaultSavePlanner(flatten_state_dict=False)
    planner.set_up_planner(named, is_coordinator=True)
    found = []
    for item in planner.create_local_plan().items:
        assert item.tensor_data is not None, "all are tensors"
        chunk = item.tensor_data.chunk
        if chunk.sizes.numel():
            found.append(Block(item.index.fqn, tuple(chunk.offsets), tuple(chunk.sizes)))
    return found


def write_part(path: Path, number: int, blocks: Sequence[Block], numbers: Mapping[str, Tensor]) -> Written:
    """Writes a worker's part (TrainerError: the disk is full or the folder cannot be written)."""
    total, at = hashlib.sha256(), 0
    digests: dict[str, Any] = {}
    pieces = []
    with atomic_writer(path) as file:
        for block in blocks:
            tensor = numbers[block.name].contiguous()
            content = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
            file.write(content)
            total.update(content)
            digest = digests.setdefault(block.name.partition("/")[0], hashlib.sha256())
            digest.update(f"{block}{tensor.dtype}".encode() + content)
            pieces.append(Piece(*block, number, at))
            at += len(content)
    part = Part(file=path.name, sha256=total.hexdigest(), bytes=at)
    return Written(part, pieces, {name: digest.hexdigest() for name, digest in digests.items()})


def get_damage(folder: Path, part: Part) -> str:
    """Returns what is wrong with a worker's file; empty for nothing."""
    path = folder / part.file
    if Path(part.file).name != part.file or not path.is_file():
        return f"{part.file} is missing"
    found = sha256_of(path)
    return "" if found == part.sha256 else f"the hash of {part.file} is not the one in its manifest"


def get_pieces(found: object, empty: State, parts: Sequence[Part]) -> list[Piece]:
    """Returns a checkpoint's pieces (ValueError: one is outside its tensor or part, or some are missing)."""
    try:
        pieces = _PIECES.validate_python(found, strict=True)
    except ValidationError as error:
        raise ValueError(f"no list of pieces: {error.errors()[0]['msg']}") from None
    known, num_found = dict(tensors(empty)), dict.fromkeys((name for name, _ in tensors(empty)), 0)
    for piece in pieces:
        tensor = known.get(piece.name)
        if tensor is None or not len(piece.offsets) == len(piece.sizes) == tensor.dim():
            raise ValueError(f"a piece of {piece.name}, which is no such tensor")
        if any(not 0 <= at <= at + size <= side for at, size, side in zip(*piece[1:3], tensor.shape, strict=True)):
            raise ValueError(f"a piece of {piece.name} that is not inside it")
        size = math.prod(piece.sizes) * tensor.element_size()
        if not 0 <= piece.part < len(parts) or not 0 <= piece.start <= piece.start + size <= parts[piece.part].bytes:
            raise ValueError(f"a piece of {piece.name} that no part has")
        num_found[piece.name] += math.prod(piece.sizes)
    missing = next((name for name, count in num_found.items() if count != known[name].numel()), None)
    if missing is not None:
        raise ValueError(f"{missing} is not all there")
    return pieces


def fill(state: State, pieces: Sequence[Piece], folder: Path, parts: Sequence[Part]) -> None:
    """Reads the pieces into the state's tensors, whole or split; skips meta tensors."""
    from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
    from torch.distributed.checkpoint.metadata import (
        ChunkStorageMetadata,
        Metadata,
        TensorProperties,
        TensorStorageMetadata,
    )

    named = {name: each for name, each in tensors(state) if not each.is_meta}
    pieces = [piece for piece in pieces if piece.name in named]
    chunks: dict[str, list[ChunkStorageMetadata]] = {name: [] for name in named}
    places = {(piece.name, piece.offsets): piece for piece in pieces}
    for piece in pieces:
        chunks[piece.name].append(ChunkStorageMetadata(torch.Size(piece.offsets), torch.Size(piece.sizes)))
    metadata = Metadata(
        {
            name: TensorStorageMetadata(TensorProperties(dtype=each.dtype), each.size(), chunks[name])
            for name, each in named.items()
        }
    )
    planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    planner.set_up_planner(named, metadata, is_coordinator=True)
    for item in planner.create_local_plan().items:
        assert item.storage_index.offset is not None, "set above"
        piece = places[item.storage_index.fqn, tuple(item.storage_index.offset)]
        target = planner.resolve_tensor(item).detach()
        source = _read(folder / parts[piece.part].file, piece, target.dtype)
        for dimension, (at, size) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
            source = source.narrow(dimension, at, size)
        target.copy_(source)
        planner.commit_tensor(item, target)


def _read(path: Path, piece: Piece, dtype: torch.dtype) -> Tensor:
    count = math.prod(piece.sizes)
    with open_file(path) as file:
        file.seek(piece.start)
        content = bytearray(file.read(count * dtype.itemsize))
    return torch.frombuffer(content, dtype=dtype, count=count).reshape(piece.sizes)
