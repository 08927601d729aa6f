"""The residual networks of WGAN-GP (Gulrajani et al. 2017, arXiv:1704.00028, appendix F), of one width throughout.

At 32x32 they are the paper's; elsewhere the numbers of blocks follow. The generator has PixelNorm for BatchNorm.
"""

import math
from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from gangway.trainer.networks import base
from gangway.trainer.networks.base import ClassEmbedding, ProjectionHead
from gangway.trainer.networks.layers import PixelNorm

_SMALLEST, _LAST_MAP = 4, 8
_PLAIN_BLOCKS = 2


class Generator(base.Generator):
    """Latents to images by blocks that double the size from 4x4; `resolution` is 4 times a power of two from 16."""

    finishing = ("last",)

    def __init__(self, z_dim: int, width: int, channels: int, resolution: int, num_classes: int = 0) -> None:
        super().__init__()
        self.with_class = ClassEmbedding(z_dim, num_classes)
        self.first = nn.Linear(self.with_class.width, width * _SMALLEST**2)
        doublings = int(math.log2(resolution // _SMALLEST))
        self.blocks = nn.Sequential(*[_Block(width, width, "up") for _ in range(doublings)])
        self.last = nn.Sequential(PixelNorm(), nn.ReLU(), nn.Conv2d(width, channels, 3, padding=1), nn.Tanh())
        self.apply(_initialise)

    def begin(self, latents: Tensor, labels: Tensor | None) -> Tensor:
        """See `base.Generator`."""
        # Not len(): torch.export would take that for a constant.
        features: Tensor = self.first(self.with_class(latents, labels))
        return self.arrange(features.reshape(latents.shape[0], -1, _SMALLEST, _SMALLEST))

    def finish(self, features: Tensor) -> Tensor:
        """See `base.Generator`."""
        images: Tensor = self.last(features)
        return images

    def units(self) -> Sequence[nn.Module]:
        """See `Network`."""
        return list(self.blocks)


class Discriminator(base.Discriminator):
    """Images to logits by residual blocks that halve the size, to 8x8 (times a power of two). High means real."""

    def __init__(self, width: int, channels: int, resolution: int, num_classes: int = 0) -> None:
        super().__init__()
        halvings = int(math.log2(resolution // _LAST_MAP))
        blocks: list[nn.Module] = [_FirstBlock(channels, width)]
        blocks += [_Block(width, width, "down") for _ in range(halvings - 1)]
        blocks += [_Block(width, width, "same") for _ in range(_PLAIN_BLOCKS)]
        self.blocks = nn.Sequential(*blocks)
        self.last = nn.Linear(width, 1)
        self.with_projection = ProjectionHead(width, num_classes)
        self.apply(_initialise)

    def forward(self, images: Tensor, labels: Tensor | None = None) -> Tensor:
        """[N, channels, resolution, resolution] in -1..1 to [N] logits."""
        features = F.relu(self.blocks(images)).mean(dim=(2, 3))
        logits: Tensor = self.with_projection(self.last(features).squeeze(1), features, labels)
        return logits

    def units(self) -> Sequence[nn.Module]:
        """See `Network`."""
        return list(self.blocks)


class _Block(nn.Module):
    """Two 3x3 convolutions, each after a non-linearity, with a shortcut; the generator's are normalised."""

    def __init__(self, inputs: int, outputs: int, resample: Literal["up", "down", "same"]) -> None:
        super().__init__()
        self._resample = resample
        self.norms = nn.ModuleList([PixelNorm(), PixelNorm()]) if resample == "up" else None
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Identity() if resample == "same" else nn.Conv2d(inputs, outputs, 1)

    def forward(self, features: Tensor) -> Tensor:
        hidden = self._normed(0, features)
        hidden = self.first(_double(hidden) if self._resample == "up" else hidden)
        hidden = self.second(self._normed(1, hidden))
        shortcut = self.shortcut(_double(features) if self._resample == "up" else features)
        combined: Tensor = hidden + shortcut
        return F.avg_pool2d(combined, 2) if self._resample == "down" else combined

    def _normed(self, number: int, features: Tensor) -> Tensor:
        return F.relu(features if self.norms is None else self.norms[number](features))


class _FirstBlock(nn.Module):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.shortcut = nn.Conv2d(channels, width, 1)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.second(F.relu(self.first(images)))
        shortcut: Tensor = self.shortcut(F.avg_pool2d(images, 2))
        return F.avg_pool2d(hidden, 2) + shortcut


def _double(features: Tensor) -> Tensor:
    return F.interpolate(features, scale_factor=2, mode="nearest")


def _initialise(module: nn.Module) -> None:
    """He's initialisation before a ReLU (3x3), Glorot's elsewhere, as the paper's own code has it."""
    if isinstance(module, nn.Conv2d | nn.Linear):
        if isinstance(module, nn.Conv2d) and module.kernel_size == (3, 3):
            nn.init.kaiming_uniform_(module.weight, nonlinearity="relu")
        else:
            nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
