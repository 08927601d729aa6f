"""FD-ENL0-frames: every frame of a clip is an image of its own, in order."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gangway.trainer.metrics.features import FrameFeatures


class Means:
    """A FeatureExtractor of mean values."""

    name, network, dim, weights_sha256, resizer = "FD-means", "means", 1, "abc", "none"

    def __call__(self, images: Tensor) -> NDArray[np.float64]:
        return images.double().mean(dim=(1, 2, 3)).numpy()[:, None]


def test_frames_are_images() -> None:
    extractor = FrameFeatures(Means())
    clips = torch.arange(6, dtype=torch.uint8).reshape(2, 1, 3, 1, 1).expand(-1, 3, -1, 4, 4)
    np.testing.assert_array_equal(extractor(clips), np.arange(6)[:, None])
    assert (extractor.name, extractor.dim, extractor.weights_sha256) == ("FD-means-frames", 1, "abc")
    assert "each frame by itself" in extractor.network
