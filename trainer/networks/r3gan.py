"""The networks of R3GAN (Huang et al. 2024, arXiv:2501.05441, section 4), written from the paper.

Sizes of filters and initial scales are those of the authors' code (github.com/brownvc/R3GAN, R3GAN/Networks.py and
R3GAN/Resamplers.py at commit 19a7ddf). Without normalisation: as in Fixup (Zhang et al. 2019, arXiv:1901.09321) each
block's last convolution starts at zero and the others are scaled down by depth. A class is a learnt vector beside the
latents, and the discriminator's logit the product of a vector of the image with one of the class.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gangway.trainer.networks import base
from gangway.trainer.networks.base import ClassEmbedding

_SMALLEST = 4
_BLOCKS = 2
_EXPANSION = 2
_SLOPE = 0.2
_LOW_PRECISION_STAGES = 4
"""Number of stages with the largest maps that use a 16-bit precision, never the first at 4x4, as in the authors' code
for 32x32 up to 256x256.
"""
_GAIN = math.sqrt(2 / (1 + _SLOPE**2))


class Widths(NamedTuple):
    """Channels of feature maps: `full` up to the size `full_up_to`, then halved with each doubling; `group` for 3x3."""

    full: int
    full_up_to: int
    group: int

    def from_smallest(self, resolution: int) -> list[int]:
        """Returns the channels at each resolution from 4x4 up."""
        sizes = (_SMALLEST << doubling for doubling in range(int(math.log2(resolution // _SMALLEST)) + 1))
        return [self.full // max(1, size // self.full_up_to) for size in sizes]


class Generator(base.Generator):
    """Latents to images, from 4x4 up. `resolution` is 16, 32, ...: 4 times a power of two; `num_classes` 0 for none."""

    finishing = ("to_image",)

    def __init__(self, z_dim: int, widths: Widths, channels: int, resolution: int, num_classes: int = 0) -> None:
        super().__init__()
        self.with_class = ClassEmbedding(z_dim, num_classes)
        if self.with_class.embedding is not None:
            nn.init.normal_(self.with_class.embedding.weight, std=1 / math.sqrt(num_classes))
        channels_by_size = widths.from_smallest(resolution)
        depth = _BLOCKS * len(channels_by_size)
        self.basis = nn.Parameter(torch.randn(channels_by_size[0], _SMALLEST, _SMALLEST))
        self.scale = nn.Linear(self.with_class.width, channels_by_size[0], bias=False)
        nn.init.normal_(self.scale.weight, std=1 / math.sqrt(self.with_class.width))
        before = [None, *channels_by_size]
        exact = max(1, len(channels_by_size) - _LOW_PRECISION_STAGES)
        self.stages = nn.ModuleList(
            _Stage(old, new, depth, 2.0, group_width=widths.group, exact=number < exact)
            for number, (old, new) in enumerate(zip(before, channels_by_size, strict=False))
        )
        self.to_image = _conv(channels_by_size[-1], channels, 1, gain=1.0)

    def begin(self, latents: Tensor, labels: Tensor | None) -> Tensor:
        """See `base.Generator`."""
        features: Tensor = self.basis * self.scale(self.with_class(latents, labels))[:, :, None, None]
        return self.arrange(features)

    def finish(self, features: Tensor) -> Tensor:
        """See `base.Generator`."""
        images: Tensor = self.to_image(features)
        return images

    def units(self) -> Sequence[nn.Module]:
        """See `Network`."""
        return list(self.stages)


class Discriminator(base.Discriminator):
    """Images to logits, down to 4x4; arguments as `Generator`. High means more real."""

    def __init__(self, widths: Widths, channels: int, resolution: int, num_classes: int = 0) -> None:
        super().__init__()
        channels_by_size = widths.from_smallest(resolution)[::-1]
        depth, last = _BLOCKS * len(channels_by_size), channels_by_size[-1]
        self.from_image = _conv(channels, channels_by_size[0], 1, gain=1.0)
        before = [None, *channels_by_size]
        low = len(channels_by_size) - max(1, len(channels_by_size) - _LOW_PRECISION_STAGES)
        self.stages = nn.ModuleList(
            _Stage(old, new, depth, 0.5, group_width=widths.group, exact=number >= low)
            for number, (old, new) in enumerate(zip(before, channels_by_size, strict=False))
        )
        self.window = _conv(last, last, _SMALLEST, gain=1.0, groups=last)
        self.last = nn.Linear(last, last if num_classes else 1, bias=False)
        nn.init.normal_(self.last.weight, std=1 / math.sqrt(last))
        self.class_vectors = nn.Embedding(num_classes, last) if num_classes else None
        if self.class_vectors is not None:
            nn.init.normal_(self.class_vectors.weight, std=1 / math.sqrt(num_classes * last))

    def forward(self, images: Tensor, labels: Tensor | None = None) -> Tensor:
        """[N, channels, resolution, resolution] in -1..1 to [N] logits."""
        features = self.from_image(images)
        for stage in self.stages:
            features = stage(features)
        vectors: Tensor = self.last(self.window(features).flatten(1))
        if self.class_vectors is None:
            return vectors.squeeze(1)
        assert labels is not None, "a network that knows classes is called with labels"
        logits: Tensor = (vectors * self.class_vectors(labels)).sum(dim=1)
        return logits

    def units(self) -> Sequence[nn.Module]:
        """See `Network`."""
        return list(self.stages)


class _Stage(nn.Module):
    """One resolution: a change of size by `scale`, and of width, but in the first; then blocks. `exact`: in float32."""

    def __init__(
        self, inputs: int | None, width: int, depth: int, scale: float, *, group_width: int, exact: bool
    ) -> None:
        super().__init__()
        self.exact = exact
        self._scale = None if inputs is None else scale
        self.widen = nn.Identity() if inputs in (None, width) else _conv(inputs, width, 1, gain=1.0)
        self.blocks = nn.Sequential(*[_Block(width, depth, group_width) for _ in range(_BLOCKS)])

    def forward(self, features: Tensor) -> Tensor:
        kind = features.device.type
        if not self.exact or kind == "meta" or not torch.is_autocast_enabled(kind):
            return self._compute(features)
        with torch.autocast(kind, enabled=False):
            return self._compute(features.float())

    def _compute(self, features: Tensor) -> Tensor:
        if self._scale == 2:
            features = _blur(F.interpolate(self.widen(features), scale_factor=2, mode="nearest"))
        elif self._scale is not None:
            features = self.widen(F.avg_pool2d(_blur(features), 2))
        blocks: Tensor = self.blocks(features)
        return blocks


class _Block(nn.Module):
    """x + branch(x); the branch's three convolutions are Fixup-initialised for a network of `depth` blocks."""

    def __init__(self, width: int, depth: int, group_width: int) -> None:
        super().__init__()
        hidden = width * _EXPANSION
        gain = _GAIN * depth ** (-1 / 4)  # L^(-1 / (2m - 2)) for branches of m = 3 convolutions
        self.expand = _conv(width, hidden, 1, gain=gain, bias=True)
        self.mix = _conv(hidden, hidden, 3, gain=gain, bias=True, groups=hidden // group_width, padding=1)
        self.project = _conv(hidden, width, 1, gain=0.0)

    def forward(self, features: Tensor) -> Tensor:
        hidden = F.leaky_relu(self.expand(features), _SLOPE)
        hidden = F.leaky_relu(self.mix(hidden), _SLOPE)
        combined: Tensor = features + self.project(hidden)
        return combined


def _blur(features: Tensor) -> Tensor:
    """Filters rows and columns of [N, C, H, W], padded with zeros, with [1, 2, 1] / 4.

    With the doubling before it or the halving after it, that is the authors' [1, 3, 3, 1].
    """
    return F.avg_pool2d(F.avg_pool2d(features, 2, stride=1, padding=1), 2, stride=1)


def _conv(
    inputs: int, outputs: int, kernel: int, *, gain: float, bias: bool = False, groups: int = 1, padding: int = 0
) -> nn.Conv2d:
    conv = nn.Conv2d(inputs, outputs, kernel, padding=padding, groups=groups, bias=bias)
    nn.init.normal_(conv.weight, std=gain / math.sqrt(inputs // groups * kernel**2))
    if bias and conv.bias is not None:
        nn.init.zeros_(conv.bias)
    return conv
