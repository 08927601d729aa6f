"""Shards of images in memory, for tests that need some data set."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gangway.trainer.data.encoding import Encoding
from gangway.trainer.data.index import Decoded, Recipe, SourceNote, shard_size
from gangway.trainer.data.prepare import prepare


@dataclass(frozen=True)
class _Slices:
    images: NDArray[np.uint8]
    labels: NDArray[np.int64] | None
    size: int

    def __call__(self, item: int) -> Decoded:
        part = slice(item * self.size, (item + 1) * self.size)
        return Decoded(self.images[part], None if self.labels is None else self.labels[part])


def write_shards(
    folder: Path,
    dataset: str,
    images: NDArray[np.uint8],
    images_per_shard: int | None = None,
    *,
    labels: NDArray[np.int64] | None = None,
    classes: tuple[str, ...] = (),
    note: SourceNote | None = None,
    encoding: Encoding | None = None,
) -> None:
    """Writes uint8 images or clips as shards of at most 128 MiB, raw without `encoding` (TrainerError)."""
    shape = images.shape[1:]
    size = images_per_shard or shard_size(shape)
    content = hashlib.sha256(np.ascontiguousarray(images).data).hexdigest()
    unknown = SourceNote(
        name="an array", content=f"sha256 {content}", official="no", split="all", processing="none", licence="unknown"
    )
    recipe = Recipe(
        dataset=dataset,
        shape=shape,
        classes=classes,
        items=tuple(f"{dataset} {start}" for start in range(0, len(images), size)),
        items_per_shard=1,
        decode=_Slices(images, labels, size),
        note=note or unknown,
        encoding=encoding,
    )
    prepare(recipe, folder)
