"""The 1,797 real handwritten digits that ship inside scikit-learn, as grey images with their class.

    python -m trainer data prepare digits --out data/

E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998,
doi:10.24432/C50P49 (CC BY 4.0), test part, 8x8, values 0..16. Not MNIST: nothing compares with published scores.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainer.data.index import SourceNote
from trainer.data.prepare import prepare
from trainer.data.recipe import Decoded, Recipe

__all__ = ["digits_recipe", "load_digits_images", "prepare_digits"]

_RESOLUTION = 32
_HIGHEST = 16
_NUM_IMAGES = 1797


def load_digits_images(resolution: int = _RESOLUTION) -> NDArray[np.uint8]:
    """All digits, bicubically enlarged from 8x8, [1797, 1, resolution, resolution], white on black."""
    import torch
    from sklearn.datasets import load_digits
    from torch.nn import functional as F

    small = torch.from_numpy(load_digits().images).float()[:, None] / _HIGHEST
    large = F.interpolate(small, size=(resolution, resolution), mode="bicubic", align_corners=False)
    pixels: NDArray[np.uint8] = (large.clamp(0, 1) * 255).round().to(torch.uint8).numpy()
    return pixels


def digits_recipe(*, resolution: int = _RESOLUTION) -> Recipe:
    """The recipe of the digits: one item, because all of them come from one table."""
    return Recipe(
        dataset="digits",
        shape=(1, resolution, resolution),
        classes=tuple("0123456789"),
        items=("digits.csv.gz of scikit-learn",),
        items_per_shard=1,
        decode=_Table(resolution),
        note=SourceNote(
            name="Optical Recognition of Handwritten Digits, test part",
            content=f"{_NUM_IMAGES} digits of scikit-learn's load_digits",
            official="as in the installed package",
            split="all images",
            processing=f"bicubic, torch, from 8x8 to {resolution}x{resolution}",
            licence="CC BY 4.0, doi:10.24432/C50P49",
        ),
    )


@dataclass(frozen=True)
class _Table:
    """The one item: all digits."""

    resolution: int

    def __call__(self, item: int) -> Decoded:
        from sklearn.datasets import load_digits

        return Decoded(load_digits_images(self.resolution), load_digits().target.astype(np.int64))


def prepare_digits(folder: Path) -> None:
    """Writes the digits' shards, 32x32 (TrainerError: not writable)."""
    prepare(digits_recipe(), folder)
