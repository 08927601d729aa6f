"""Inception features: TensorFlow's network of 2015 that FID, IS and KID are defined by, as torch-fidelity ports it,
but faster; its own forward is the tests' reference. Never torchvision's: other weights and pooling, other scores.
"""

import io
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from gangway.trainer.metrics.features import fold_norms
from gangway.trainer.metrics.weights import WeightsFile, check_shapes, load_tensors

INCEPTION = WeightsFile(
    file="weights-inception-2015-12-05-6726825d.pth",
    flag="--weights",
    variable="GANGWAY_INCEPTION_WEIGHTS",
    published="torch-fidelity's GitHub releases, tag v0.2.0: github.com/toshas/torch-fidelity/releases",
    sha256_prefix="6726825d",
    what_for="FID, IS, KID and Inception precision/recall",
    instead="fd-enl0",
)
"""The official TensorFlow weights of 2015-12-05 as torch-fidelity converted them; the hash is in its name."""

Resizer = Literal["legacy", "clean"]
_SIDE = 299
_LAYERS = (
    *("Conv2d_1a_3x3", "Conv2d_2a_3x3", "Conv2d_2b_3x3", "MaxPool_1", "Conv2d_3b_1x1", "Conv2d_4a_3x3", "MaxPool_2"),
    *("Mixed_5b", "Mixed_5c", "Mixed_5d", "Mixed_6a", "Mixed_6b", "Mixed_6c", "Mixed_6d", "Mixed_6e"),
    *("Mixed_7a", "Mixed_7b", "Mixed_7c", "AvgPool"),
)
"""torch-fidelity's names of the layers, in the order of its forward."""
_RESIZERS = {
    "legacy": "TensorFlow 1 bilinear, not antialiased, as torch-fidelity",
    "clean": "bicubic, antialiased, in float, clipped to 0..255",
}


class InceptionFeatures:
    """FeatureExtractor of FID, IS and KID (TrainerError: no weights, or not the published); legacy and clean differ."""

    network = "Inception, TensorFlow 2015-12-05 (torch-fidelity's port), 2048 pooled features"
    dim = 2048

    def __init__(
        self,
        device: torch.device,
        weights: Path | None = None,
        resizer: Resizer = "legacy",
        published: WeightsFile | None = None,
    ) -> None:
        accepted = published or INCEPTION
        path = accepted.find(weights)
        self.weights_sha256 = accepted.verify(path)
        reference = reference_network(path)
        self._to_logits: NDArray[np.float64] = reference.get_parameter("fc.weight").double().numpy().T
        self._layers = nn.Sequential(*(reference.get_submodule(name) for name in _LAYERS))
        self._layers.apply(partial(fold_norms, pairs=[("conv", "bn")]))
        self._layers = self._layers.to(memory_format=torch.channels_last).to(device)
        self._device, self._legacy = device, resizer == "legacy"
        self.name = "FID" if self._legacy else "FID-clean"
        self.resizer = f"{_RESIZERS[resizer]}, to {_SIDE}x{_SIDE}; grey repeated to RGB"

    def __call__(self, images: Tensor) -> NDArray[np.float64]:
        """Features [N, 2048] of uint8 images [N, 1 or 3, H, W]."""
        pixels = images.to(self._device).float()
        resized = (_resize_like_tensorflow(pixels) if self._legacy else _resize_clean(pixels)).expand(-1, 3, -1, -1)
        normalised = ((resized - 128) / 128).contiguous(memory_format=torch.channels_last)
        with torch.no_grad():
            pooled: Tensor = self._layers(normalised)
        features: NDArray[np.float64] = pooled.flatten(1).double().cpu().numpy()
        return features

    def logits(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Class logits [N, 1008] of features, without the bias, as the Inception Score takes them."""
        logits: NDArray[np.float64] = features.astype(np.float64) @ self._to_logits
        return logits


def reference_network(path: Path | None = None, features: Sequence[str] = ("2048",)) -> nn.Module:
    """Returns torch-fidelity's network, handed tensors in memory, as it unpickles anything; `path` None: untrained."""
    # torch-fidelity publishes no types.
    from torch_fidelity.feature_extractor_inceptionv3 import (  # type: ignore[import-untyped]
        FeatureExtractorInceptionV3,
    )

    class Unloaded(FeatureExtractorInceptionV3):  # type: ignore[misc]  # as above
        """The network before it has loaded its weights, to compare the shapes."""

        def load_state_dict(self, *_: object, **__: object) -> None:
            """Loads nothing."""

    def make(kind: type[nn.Module], state: dict[str, Tensor]) -> nn.Module:
        buffer = io.BytesIO()
        torch.save(state, buffer)
        buffer.seek(0)
        return kind("inception-v3-compat", list(features), feature_extractor_weights_path=buffer)

    if path is None:
        return make(Unloaded, {})
    state = load_tensors(path)
    check_shapes(path, state, make(Unloaded, {}).state_dict())
    return make(FeatureExtractorInceptionV3, state)


def _resize_like_tensorflow(pixels: Tensor) -> Tensor:
    height, width = (_interpolation(length, pixels.device) for length in pixels.shape[2:])
    resized: Tensor = height @ pixels @ width.T
    return resized


def _interpolation(length: int, device: torch.device) -> Tensor:
    where = torch.arange(_SIDE, dtype=torch.float32) * torch.tensor(length / _SIDE, dtype=torch.float32)
    lower = where.long()
    share = (where - lower)[:, None]
    rows = torch.eye(length)
    return (rows[lower] * (1 - share) + rows[(lower + 1).clamp_max(length - 1)] * share).to(device)


def _resize_clean(pixels: Tensor) -> Tensor:
    """Resizes with Pillow's antialiased bicubic in float, as Parmar et al. 2022 (arXiv:2104.11222) recommend."""
    resized = F.interpolate(pixels, size=(_SIDE, _SIDE), mode="bicubic", antialias=True)
    return resized.clamp(0, 255)
