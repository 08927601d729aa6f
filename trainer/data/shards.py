"""Images on disk as training reads them: raw uint8 shards, memory-mapped, with an index that holds their hashes.

A folder has `index.json` and `00000.npy`, `00001.npy`, ... (NumPy's own format, [n, C, H, W] uint8). The index is
written last and in one step: a folder with an index is complete. Not here: decoding of image files.
"""

import hashlib
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from trainer.errors import TrainerError, from_validation
from trainer.files import atomic_writer, clean_temporaries, read_input, sha256_of, write_atomically

__all__ = ["INDEX_FILE", "Shard", "ShardIndex", "ShardedImages", "write_shards"]

INDEX_FILE = "index.json"
_IMAGES_PER_SHARD = 16384


class Shard(BaseModel):
    """One file of images."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    num_images: int
    sha256: str


class ShardIndex(BaseModel):
    """What a folder of shards holds.

    Attributes:
        dataset: its name, as in TrainConfig.
        image_shape: channels, height, width.
        num_images: over all shards.
        sha256: of the data set: over all shards' hashes, in order.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    dataset: str
    image_shape: tuple[int, int, int]
    num_images: int
    sha256: str
    shards: tuple[Shard, ...]


def write_shards(
    folder: Path, dataset: str, images: NDArray[np.uint8], images_per_shard: int = _IMAGES_PER_SHARD
) -> None:
    """Writes images as shards.

    Args:
        folder: is made where missing.
        dataset: name of the data set.
        images: [N, C, H, W] uint8.
        images_per_shard: at most so many in one file.

    Raises:
        TrainerError: the disk is full or the folder cannot be written; it then has no index, so nothing reads it.
    """
    shards = []
    for number, start in enumerate(range(0, len(images), images_per_shard)):
        part = np.ascontiguousarray(images[start : start + images_per_shard])
        path = folder / f"{number:05d}.npy"
        with atomic_writer(path) as file:
            np.lib.format.write_array(file, part, allow_pickle=False)
        shards.append(Shard(file=path.name, num_images=len(part), sha256=sha256_of(path)))
    _, channels, height, width = images.shape
    index = ShardIndex(
        dataset=dataset,
        image_shape=(channels, height, width),
        num_images=len(images),
        sha256=_dataset_sha256(shards),
        shards=tuple(shards),
    )
    clean_temporaries(folder)
    write_atomically(folder / INDEX_FILE, (index.model_dump_json(indent=2) + "\n").encode())


class ShardedImages:
    """A folder of shards, read through memory maps. Use `open`.

    Attributes:
        index: what the folder says it holds, verified.
    """

    def __init__(self, index: ShardIndex, maps: list[NDArray[np.uint8]]) -> None:
        self.index = index
        self._maps = maps
        self._starts = np.cumsum([0, *(len(part) for part in maps)])

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Opens the shards and compares every hash.

        Raises:
            TrainerError: no index, a missing shard, or one whose content is not what the index promises.
        """
        index = _read_index(folder)
        for shard in index.shards:
            _verify(folder / shard.file, shard.sha256, folder)
        return cls(index, [np.load(folder / shard.file, mmap_mode="r") for shard in index.shards])

    def __len__(self) -> int:
        """Number of images."""
        return self.index.num_images

    def take(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The images of these numbers in this order, copied, [len(indices), C, H, W]."""
        images = np.empty((len(indices), *self.index.image_shape), dtype=np.uint8)
        shard_of = np.searchsorted(self._starts, indices, side="right") - 1
        for number in np.unique(shard_of):
            here = shard_of == number
            images[here] = self._maps[number][indices[here] - self._starts[number]]
        return images


def _read_index(folder: Path) -> ShardIndex:
    path = folder / INDEX_FILE
    fix = f"python -m trainer data prepare digits --out {folder}"
    try:
        return ShardIndex.model_validate_json(read_input(path, fix, missing="no data set here"))
    except ValidationError as error:
        raise from_validation(error, str(path)) from None


def _verify(path: Path, expected: str, folder: Path) -> None:
    found = sha256_of(path) if path.is_file() else "no such file"
    if found != expected:
        raise TrainerError(
            place=str(path),
            problem="shard is corrupt: its hash is not the one in the index",
            value=f"sha256 {found}",
            allowed=f"sha256 {expected}",
            fix=f"delete {folder} and prepare the data set again",
        )


def _dataset_sha256(shards: list[Shard]) -> str:
    return hashlib.sha256("".join(shard.sha256 for shard in shards).encode()).hexdigest()
