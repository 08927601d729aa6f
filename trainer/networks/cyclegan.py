"""CycleGAN's networks (Zhu et al. 2017, arXiv:1703.10593, section 7.2): images to images, and images to patches.

After Johnson et al. (arXiv:1603.08155) and pix2pix's 70x70 PatchGAN (arXiv:1611.07004). Instance normalisation treats
images apart and cancels a bias before it, so there are no buffers and no such biases.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from gangway.trainer.config.network_size import patch_halvings, residual_blocks
from gangway.trainer.networks.base import Network

_FIRST_KERNEL, _BORDER = 7, 3
_HALVINGS = 2
_SLOPE = 0.2
_DEVIATION = 0.02


class Translator(Network):
    """Images of one domain to the other's. `width` is that of the first and last feature maps."""

    def __init__(self, width: int, channels: int, resolution: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.ReflectionPad2d(_BORDER),
            nn.Conv2d(channels, width, _FIRST_KERNEL, bias=False),
            _instance_norm(width),
            nn.ReLU(),
        ]
        for narrow in (width << step for step in range(_HALVINGS)):
            halving = nn.Conv2d(narrow, 2 * narrow, 3, stride=2, padding=1, bias=False)
            layers += [halving, _instance_norm(2 * narrow), nn.ReLU()]
        layers += [_Block(width << _HALVINGS) for _ in range(residual_blocks(resolution))]
        for narrow in (width << step for step in reversed(range(_HALVINGS))):
            doubling = nn.ConvTranspose2d(2 * narrow, narrow, 3, stride=2, padding=1, output_padding=1, bias=False)
            layers += [doubling, _instance_norm(narrow), nn.ReLU()]
        layers += [nn.ReflectionPad2d(_BORDER), nn.Conv2d(width, channels, _FIRST_KERNEL), nn.Tanh()]
        self.layers = nn.Sequential(*layers)
        self.apply(_initialise)

    def forward(self, images: Tensor) -> Tensor:
        """[N, channels, H, W] in -1..1 to the same shape and range."""
        translated: Tensor = self.layers(images)
        return translated

    def units(self) -> Sequence[nn.Module]:
        """See `Network`."""
        return [layer for layer in self.layers if isinstance(layer, _Block)]

    # So that a call has forward's types.
    def __call__(self, images: Tensor) -> Tensor:
        """See `forward`."""
        return self._run(images, twice=False)


class PatchDiscriminator(Network):
    """Images to logits of their overlapping patches. High means real. `width` is of the first feature map."""

    def __init__(self, width: int, channels: int, resolution: int) -> None:
        super().__init__()
        halvings = patch_halvings(resolution)
        widths = [width << step for step in range(halvings + 1)]
        layers: list[nn.Module] = [nn.Conv2d(channels, width, 4, stride=2, padding=1), nn.LeakyReLU(_SLOPE)]
        for step in range(1, halvings + 1):
            stride = 1 if step == halvings else 2
            conv = nn.Conv2d(widths[step - 1], widths[step], 4, stride=stride, padding=1, bias=False)
            layers += [conv, _instance_norm(widths[step]), nn.LeakyReLU(_SLOPE)]
        layers.append(nn.Conv2d(widths[-1], 1, 4, padding=1))
        self.layers = nn.Sequential(*layers)
        self.apply(_initialise)

    def forward(self, images: Tensor) -> Tensor:
        """[N, channels, H, W] in -1..1 to [N, 1, h, w] logits."""
        logits: Tensor = self.layers(images)
        return logits

    def __call__(self, images: Tensor) -> Tensor:
        """See `forward`."""
        return self._run(images, twice=False)


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ReflectionPad2d(1),
            nn.Conv2d(width, width, 3, bias=False),
            _instance_norm(width),
            nn.ReLU(),
            nn.ReflectionPad2d(1),
            nn.Conv2d(width, width, 3, bias=False),
            _instance_norm(width),
        )

    def forward(self, features: Tensor) -> Tensor:
        changed: Tensor = self.layers(features)
        return features + changed


def _instance_norm(width: int) -> nn.Module:
    """One channel per group: torch 2.15's InstanceNorm2d has wrong gradients on a CPU for one channels_last image."""
    return nn.GroupNorm(width, width, affine=False)


def _initialise(module: Any) -> None:
    if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.normal_(module.weight, std=_DEVIATION)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
