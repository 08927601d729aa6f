"""An extractor of features that needs no weights."""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn


class Shrunk:
    """A FeatureExtractor that sees a 4x4 picture: enough to tell digits from noise."""

    name = "FD-4x4"
    network = "mean of 8x8 blocks"
    dim = 16
    weights_sha256 = "abc"
    resizer = "none"

    def __call__(self, images: Tensor) -> NDArray[np.float64]:
        return nn.functional.avg_pool2d(images.double(), 8).flatten(1).numpy()
