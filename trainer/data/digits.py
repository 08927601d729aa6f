"""The 1,797 real handwritten digits that ship inside scikit-learn, as 32x32 grey images.

Source: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998,
doi:10.24432/C50P49 (CC BY 4.0), its test part, 8x8 pixels with values 0..16. They need no download, so demo and
tests train on real data anywhere. Not MNIST, and nothing to compare published scores on.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainer.data.shards import write_shards

__all__ = ["load_digits_images", "prepare_digits"]

_RESOLUTION = 32
_HIGHEST = 16


def load_digits_images() -> NDArray[np.uint8]:
    """All digits, bicubically enlarged from 8x8, [1797, 1, 32, 32], white on black."""
    import torch
    from sklearn.datasets import load_digits
    from torch.nn import functional as F

    small = torch.from_numpy(load_digits().images).float()[:, None] / _HIGHEST
    large = F.interpolate(small, size=(_RESOLUTION, _RESOLUTION), mode="bicubic", align_corners=False)
    pixels: NDArray[np.uint8] = (large.clamp(0, 1) * 255).round().to(torch.uint8).numpy()
    return pixels


def prepare_digits(folder: Path) -> None:
    """Writes the digits' shards.

    Raises:
        TrainerError: the folder cannot be written.
    """
    write_shards(folder, "digits", load_digits_images())
