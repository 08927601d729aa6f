"""Inception features: the same numbers as torch-fidelity's forward, and resizers that are what they are called."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from gangway.trainer.metrics.features import FeatureExtractor
from gangway.trainer.metrics.inception import (
    InceptionFeatures,
    _resize_clean,
    _resize_like_tensorflow,
    reference_network,
)
from tools.bench.feature_speed import RANDOM_WEIGHTS

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def extractor(random_weights: Path) -> InceptionFeatures:
    return InceptionFeatures(CPU, random_weights, published=RANDOM_WEIGHTS)


def _images(num: int, channels: int, side: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(side)
    return torch.randint(0, 256, (num, channels, side, side), dtype=torch.uint8, generator=generator)


@pytest.mark.slow
def test_features_and_logits_are_torch_fidelitys(extractor: InceptionFeatures, random_weights: Path) -> None:
    images = _images(2, 3, 24)
    network = reference_network(random_weights, ("2048", "logits_unbiased"))
    with torch.no_grad():
        features, logits = network(images)
    metric: FeatureExtractor = extractor
    ours = metric(images)
    assert ours.dtype == np.float64
    np.testing.assert_allclose(ours, features.numpy(), atol=1e-5 * features.abs().max())
    np.testing.assert_allclose(
        extractor.logits(ours.astype(np.float32)), logits.numpy(), atol=1e-5 * logits.abs().max()
    )


def test_grey_is_repeated(extractor: InceptionFeatures) -> None:
    grey = _images(1, 1, 20)
    np.testing.assert_allclose(extractor(grey), extractor(grey.repeat(1, 3, 1, 1)), rtol=1e-5)


@pytest.mark.parametrize("side", [32, 128, 299, 400])
def test_legacy_resizing_is_tensorflows(side: int) -> None:
    from torch_fidelity.interpolate_compat_tensorflow import (  # type: ignore[import-untyped]  # publishes no types
        interpolate_bilinear_2d_like_tensorflow1x,
    )

    pixels = _images(1, 3, side).float()
    expected = interpolate_bilinear_2d_like_tensorflow1x(pixels, size=(299, 299), align_corners=False)
    torch.testing.assert_close(_resize_like_tensorflow(pixels), expected, atol=2e-3, rtol=0)


@pytest.mark.parametrize("side", [32, 400])
def test_clean_resizing_is_pillows_in_float(side: int) -> None:
    pixels = _images(1, 1, side).float()
    image = Image.fromarray(pixels[0, 0].numpy(), mode="F").resize((299, 299), Image.Resampling.BICUBIC)
    expected = torch.from_numpy(np.asarray(image).clip(0, 255))
    torch.testing.assert_close(_resize_clean(pixels)[0, 0], expected, atol=2e-2, rtol=0)


def test_the_two_resizers_have_two_names(extractor: InceptionFeatures, random_weights: Path) -> None:
    clean = InceptionFeatures(CPU, random_weights, "clean", published=RANDOM_WEIGHTS)
    assert (extractor.name, clean.name) == ("FID", "FID-clean")
    assert extractor.resizer != clean.resizer
    assert clean(_images(1, 3, 320)).shape == (1, clean.dim)
