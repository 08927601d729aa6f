"""What a data set is made of: a list of items (a picture, a film, a batch file of CIFAR-10: what is decoded in one go),
and how one becomes images. A recipe travels to the decoding processes once.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainer.data.index import SourceNote

__all__ = ["BrokenItemError", "Decoded", "Recipe", "shard_size"]

_SHARD_BYTES = 128 << 20
_MOST_IMAGES = 16384


class BrokenItemError(Exception):
    """An item that cannot be used; the message says why, without the item's name."""


@dataclass(frozen=True)
class Decoded:
    """What one item became: images [n, C, H, W] or [n, C, T, H, W] uint8; labels [n] int64, None without any."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Recipe:
    """How a data set is made. Picklable.

    Attributes:
        shape: of one image.
        classes: names of the labels' classes; empty for none.
        items: what each item is called in messages; their order is the order of the images.
        decode: the images of the item of that number. Raises BrokenItemError.
    """

    dataset: str
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    items: tuple[str, ...]
    items_per_shard: int
    decode: Callable[[int], Decoded]
    note: SourceNote

    @property
    def num_shards(self) -> int:
        """Files of images."""
        return -(-len(self.items) // self.items_per_shard)

    def items_of(self, shard: int) -> range:
        """Numbers of the items that become one shard."""
        start = shard * self.items_per_shard
        return range(start, min(start + self.items_per_shard, len(self.items)))

    @property
    def sha256(self) -> str:
        """Identifies everything that decides the shards' content; where the source lies does not."""
        parts = {
            "dataset": self.dataset,
            "shape": self.shape,
            "classes": self.classes,
            "items": self.items,
            "items_per_shard": self.items_per_shard,
            "note": self.note.model_dump(exclude={"location", "skipped"}),
        }
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def shard_size(shape: tuple[int, ...]) -> int:
    """As many images as make a file of at most 128 MiB, which is what preparing one holds in memory."""
    return max(1, min(_MOST_IMAGES, _SHARD_BYTES // int(np.prod(shape))))
