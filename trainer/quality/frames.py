"""FD-ENL0-frames: single frames of clips through an image network, blind to motion, where C3D's weights are not at
hand.

Never the score that papers report for UCF101.
"""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from trainer.quality.features import FeatureExtractor

__all__ = ["FrameFeatures"]


class FrameFeatures:
    """FeatureExtractor of clips: every frame is an image of its own."""

    def __init__(self, images: FeatureExtractor) -> None:
        self._images = images
        self.name = f"{images.name}-frames"
        self.network = f"{images.network}, each frame by itself"
        self.dim, self.weights_sha256, self.resizer = images.dim, images.weights_sha256, images.resizer

    def __call__(self, images: Tensor) -> NDArray[np.float64]:
        """Features [N * T, dim] of uint8 clips [N, 1 or 3, T, H, W]."""
        return self._images(images.transpose(1, 2).flatten(0, 1))
