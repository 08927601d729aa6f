"""EfficientNet-Lite0: the published weights fit strictly and see what is in a photograph."""

import hashlib

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_sample_image
from torch import Tensor

from gangway.trainer.metrics.features import (
    EfficientNetLite0,
    EfficientNetLite0Features,
    FeatureExtractor,
    FrameFeatures,
)

DAISY, VIADUCT_LIKE = 985, {442, 483, 663, 698}
"""ImageNet classes: a flower's; and bell cote, castle, monastery, palace for the temple in the other photograph."""


@pytest.fixture(scope="module")
def extractor() -> EfficientNetLite0Features:
    return EfficientNetLite0Features(torch.device("cpu"), input_size=64)


def _photograph(name: str) -> torch.Tensor:
    pixels = torch.from_numpy(load_sample_image(name).copy()).permute(2, 0, 1)[None].float()
    square = pixels[..., 106:533]
    size = (224, 224)
    resized = torch.nn.functional.interpolate(square, size, mode="bicubic", antialias=True)
    return (resized.clamp(0, 255) - 127) / 128


def test_the_network_with_its_weights_recognises_photographs(extractor: EfficientNetLite0Features) -> None:
    network: EfficientNetLite0 = extractor._network
    with torch.no_grad():
        flower = int(network(_photograph("flower.jpg")).argmax())
        temple = int(network(_photograph("china.jpg")).argmax())
    assert flower == DAISY
    assert temple in VIADUCT_LIKE


def test_features_are_float64_and_do_not_depend_on_the_batch(extractor: EfficientNetLite0Features) -> None:
    metric: FeatureExtractor = extractor
    images = torch.randint(0, 256, (3, 1, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    features = metric(images)
    assert features.shape == (3, metric.dim)
    assert features.dtype == np.float64
    np.testing.assert_allclose(
        features, np.concatenate([metric(image[None]) for image in images]), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_array_equal(features, metric(images.repeat(1, 3, 1, 1)))


def test_the_protocol_names_the_weights(extractor: EfficientNetLite0Features) -> None:
    assert extractor.name == "FD-ENL0"
    assert len(extractor.weights_sha256) == len(hashlib.sha256().hexdigest())
    assert "64x64" in extractor.resizer


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
