"""Crops of the seven colour photographs that ship in scikit-image and scikit-learn, each a class: no download.

    python -m trainer data prepare photos --resolution 64 --out data/

The crops overlap much: a network learns seven pictures by heart, and nothing compares with published scores.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainer.data.index import SourceNote
from trainer.data.pictures import RESIZER, Box, opened, resized
from trainer.data.recipe import BrokenItemError, Decoded, Recipe
from trainer.data.sources import fingerprint
from trainer.data.wheels import in_wheel
from trainer.errors import TrainerError

__all__ = ["photos_recipe"]

_PHOTOS = (
    # name, package, file
    ("astronaut", "scikit-image", "skimage/data/astronaut.png"),
    ("chelsea", "scikit-image", "skimage/data/chelsea.png"),
    ("china", "scikit-learn", "sklearn/datasets/images/china.jpg"),
    ("coffee", "scikit-image", "skimage/data/coffee.png"),
    ("flower", "scikit-learn", "sklearn/datasets/images/flower.jpg"),
    ("hubble", "scikit-image", "skimage/data/hubble_deep_field.jpg"),
    ("rocket", "scikit-image", "skimage/data/rocket.jpg"),
)
_SIDES = (1.0, 0.75, 0.5, 0.375)
"""Of a crop, as parts of the photograph's shorter side."""
_STRIDES_PER_SIDE = 8
_SMALLEST = 300
"""Shorter side of the smallest photograph, pixels."""


def photos_recipe(*, resolution: int, channels: int = 3) -> Recipe:
    """The recipe of the photographs. TrainerError: a package is not installed here, or the photographs are smaller than
    the resolution.
    """
    if resolution > _SMALLEST:
        raise TrainerError(
            place="--resolution",
            problem="the photographs are smaller than that",
            value=resolution,
            allowed=f"at most {_SMALLEST}",
            fix="--resolution 256, for example",
        )
    paths = tuple(in_wheel(package, file) for _, package, file in _PHOTOS)
    names = tuple(name for name, _, _ in _PHOTOS)
    return Recipe(
        dataset="photos",
        shape=(channels, resolution, resolution),
        classes=names,
        items=names,
        items_per_shard=1,
        decode=_Crops(paths, resolution, channels),
        note=SourceNote(
            name="photographs in scikit-image and scikit-learn",
            content=fingerprint({name: path.stat().st_size for name, path in zip(names, paths, strict=True)}),
            official="by size, as in the installed packages",
            split="all crops",
            processing=(
                f"squares of {_SIDES} times the shorter side, from {resolution} pixels on, an eighth of their side "
                f"apart, {RESIZER}, to {resolution}x{resolution}"
            ),
            licence="public domain or CC0 (scikit-image's data/README), china and flower CC BY (scikit-learn)",
        ),
    )


@dataclass(frozen=True)
class _Crops:
    """Item n is the n-th photograph with all its crops."""

    paths: tuple[Path, ...]
    resolution: int
    channels: int

    def __call__(self, item: int) -> Decoded:
        try:
            image = opened(self.paths[item].read_bytes(), self.channels)
        except OSError as error:
            raise BrokenItemError(f"cannot be read: {error.strerror}") from None
        crops = [resized(image, self.resolution, box) for box in squares(*image.size, self.resolution)]
        return Decoded(np.stack(crops), np.full(len(crops), item, dtype=np.int64))


def squares(width: int, height: int, smallest: int) -> list[Box]:
    """The crops of a photograph of that size, none below `smallest` pixels."""
    boxes = []
    for part in _SIDES:
        side = int(part * min(width, height))
        if side >= smallest:
            stride = max(1, side // _STRIDES_PER_SIDE)
            corners = [(x, y) for y in range(0, height - side + 1, stride) for x in range(0, width - side + 1, stride)]
            boxes += [(x, y, x + side, y + side) for x, y in corners]
    return boxes
