"""DCGAN (Radford et al. 2016, arXiv:1511.06434) from 16x16 up, in grey or colour, without BatchNorm.

Batch statistics make R1 of one image depend on its neighbours, and SyncBatchNorm has no double backward; the generator
has PixelNorm (arXiv:1710.10196). So there are no buffers, and a step does not depend on the number of workers.
"""

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gangway.trainer.networks import base
from gangway.trainer.networks.base import ClassEmbedding, ProjectionHead
from gangway.trainer.networks.layers import Doubling, Halving, PixelNorm

_SMALLEST = 4
_SLOPE = 0.2
_TO_FEATURES = -2  # Index of the discriminator's last convolution


class _FromVector(nn.ConvTranspose2d):
    """A transposed convolution of one pixel as a matrix product, in the weight's layout: faster on a CPU."""

    def forward(self, vectors: Tensor, output_size: list[int] | None = None) -> Tensor:
        assert self.bias is not None, "made with one"
        assert output_size is None, "the kernel's"
        last = self.weight.is_contiguous(memory_format=torch.channels_last)
        weight = self.weight.movedim(1, -1) if last else self.weight
        pixels = (vectors @ weight.flatten(1)).reshape(-1, *weight.shape[1:])
        # Autocast also casts a convolution's bias; a float32 one would make the features float32 again.
        bias = self.bias.to(pixels.dtype)
        return (pixels + bias).movedim(-1, 1) if last else pixels + bias[:, None, None]


class _ToNumber(nn.Conv2d):
    """A convolution with a kernel as large as the feature maps, as a matrix product."""

    def forward(self, features: Tensor) -> Tensor:
        # In channels_last order, in which neither is copied.
        vectors, weight = features.movedim(1, -1), self.weight.movedim(1, -1)
        return nn.functional.linear(vectors.flatten(1), weight.flatten(1), self.bias)


class Generator(base.Generator):
    """Latents to images from 4x4 up; `width` is the last map's; `resolution` 4 times a power of two from 16."""

    def __init__(self, z_dim: int, width: int, channels: int, resolution: int, num_classes: int = 0) -> None:
        super().__init__()
        self.with_class = ClassEmbedding(z_dim, num_classes)
        doublings = int(math.log2(resolution // _SMALLEST))
        widths = [width << step for step in reversed(range(doublings))]
        layers: list[nn.Module] = [
            _FromVector(self.with_class.width, widths[0], _SMALLEST),
            PixelNorm(),
            nn.ReLU(),
        ]
        for wide, narrow in itertools.pairwise(widths):
            layers += [Doubling(wide, narrow), PixelNorm(), nn.ReLU()]
        layers += [Doubling(widths[-1], channels), nn.Tanh()]
        self.layers = nn.Sequential(*layers)
        self.apply(_initialise)

    def forward(self, latents: Tensor, labels: Tensor | None = None) -> Tensor:
        """[N, z_dim] standard normal to [N, channels, resolution, resolution] in -1..1."""
        images: Tensor = self.layers(self.with_class(latents, labels))
        return images

    def units(self) -> Sequence[nn.Module]:
        """See `Network`."""
        return _with_weights(self.layers)


class Discriminator(base.Discriminator):
    """Images to logits by convolutions that halve the size, to 4x4. `width` is the first map's. High means real."""

    def __init__(self, width: int, channels: int, resolution: int, num_classes: int = 0) -> None:
        super().__init__()
        halvings = int(math.log2(resolution // _SMALLEST))
        widths = [width << step for step in range(halvings)]
        # In place: nothing else needs a convolution's output, and it saves a pass over the memory.
        layers: list[nn.Module] = [Halving(channels, width), nn.LeakyReLU(_SLOPE, inplace=True)]
        for narrow, wide in itertools.pairwise(widths):
            layers += [Halving(narrow, wide), nn.LeakyReLU(_SLOPE, inplace=True)]
        layers += [_ToNumber(widths[-1], 1, _SMALLEST), nn.Flatten(0)]
        self.layers = nn.Sequential(*layers)
        self.with_projection = ProjectionHead(widths[-1], num_classes)
        self.apply(_initialise)

    def forward(self, images: Tensor, labels: Tensor | None = None) -> Tensor:
        """[N, channels, resolution, resolution] in -1..1 to [N] logits."""
        features = self.layers[:_TO_FEATURES](images)
        logits: Tensor = self.with_projection(self.layers[_TO_FEATURES:](features), features, labels)
        return logits

    def units(self) -> Sequence[nn.Module]:
        """See `Network`."""
        return _with_weights(self.layers)


def _with_weights(layers: nn.Sequential) -> Sequence[nn.Module]:
    return [layer for layer in layers if any(True for _ in layer.parameters())]


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
        kernel = module.kernel_size[0] * module.kernel_size[1]
        # A transposed convolution with stride s spreads a kernel over s x s outputs: each sums kernel / s^2 of them.
        # From a 1x1 input each output sees one position only.
        per_output = kernel
        if isinstance(module, nn.ConvTranspose2d):
            per_output = kernel // module.stride[0] ** 2 if module.stride[0] > 1 else 1
        nn.init.normal_(module.weight, std=math.sqrt(2 / (module.in_channels * per_output)))
        if module.bias is not None:
            nn.init.zeros_(module.bias)
