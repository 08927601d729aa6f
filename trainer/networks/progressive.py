"""Growing networks for images (Karras et al. 2018, arXiv:1710.10196) and clips (Acharya et al. 2018, arXiv:1810.02419).

The minibatch deviation is over groups of successive images in the global batch that are never divided
(`TrainConfig.group`), so that a step does not depend on the number of workers. All layers exist from the start.
"""

import itertools
import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gangway.trainer.config.network_size import SMALLEST, WIDEST, size_at
from gangway.trainer.networks import base
from gangway.trainer.networks.base import ClassEmbedding, ProjectionHead
from gangway.trainer.networks.layers import PixelNorm
from gangway.trainer.networks.progressive_schedule import ProgressiveStage, enlarge, pool

_SLOPE = 0.2
_GAIN = math.sqrt(2)
_TINY = 1e-8  # From the paper's code; keeps the root differentiable where a group's images are equal


class EqualConv(nn.Module):
    """A convolution of standard normal weights scaled when used; `gain`: the outputs' deviation; `dims` 3 for clips."""

    def __init__(self, inputs: int, outputs: int, kernel: int, dims: int, gain: float = _GAIN) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs, *[kernel] * dims))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self._scale = gain / math.sqrt(inputs * kernel**dims)
        self._padding = kernel // 2

    def forward(self, features: Tensor) -> Tensor:
        """[N, inputs, ...] to [N, outputs, ...]."""
        convolve = F.conv2d if features.dim() == 4 else F.conv3d
        return convolve(features, self.weight * self._scale, self.bias, padding=self._padding)


class _EqualLinear(nn.Module):
    def __init__(self, inputs: int, outputs: int, gain: float = _GAIN) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self._scale = gain / math.sqrt(inputs)

    def forward(self, features: Tensor) -> Tensor:
        return F.linear(features, self.weight * self._scale, self.bias)


class _Sizes:
    def __init__(self, width: int, resolution: int, frames: int) -> None:
        self.frames, self.dims = frames, 2 if frames == 1 else 3
        self.resolutions = [SMALLEST << step for step in range(int(math.log2(resolution // SMALLEST)) + 1)]
        self.widths = {each: min(WIDEST, width * resolution // each) for each in self.resolutions}
        self.first_size = size_at(SMALLEST, frames)
        self.full_size = size_at(resolution, frames)

    def in_use(self, phase: ProgressiveStage) -> list[int]:
        return [each for each in self.resolutions if each <= phase.resolution]


class _Growing(base.Network):
    _ports: ClassVar[str]  # Name of those layers
    blocks: nn.ModuleDict
    _sizes: _Sizes
    _phase: ProgressiveStage

    def enter(self, phase: ProgressiveStage) -> None:
        self._phase = phase

    def idle(self) -> list[nn.Parameter]:
        phase, ports = self._phase, getattr(self, self._ports)
        in_use = {phase.resolution} | ({phase.resolution // 2} if phase.fade is not None else set())
        idle = [self.blocks[name] for name in self.blocks if int(name) > phase.resolution]
        idle += [ports[name] for name in ports if int(name) not in in_use]
        return list(itertools.chain.from_iterable(module.parameters() for module in idle))

    def units(self) -> Sequence[nn.Module]:
        return list(self.blocks.values())


def with_group_deviation(features: Tensor, group: int) -> Tensor:
    """Adds a channel with the mean deviation over each `group` successive images: [N, C, ...] to [N, C + 1, ...]."""
    num = features.shape[0]
    # At least in float32, as in the paper's code: 16 bits cannot represent squares of small differences.
    apart = features.to(torch.promote_types(features.dtype, torch.float32)).reshape(
        -1, min(group, num), *features.shape[1:]
    )
    variance = (apart - apart.mean(dim=1, keepdim=True)).square().mean(dim=1)
    deviation = (variance + _TINY).sqrt().flatten(1).mean(dim=1)
    each = deviation.repeat_interleave(min(group, num)).to(features.dtype)
    channel = each.reshape(num, *[1] * (features.dim() - 1)).expand(num, 1, *features.shape[2:])
    return torch.cat([features, channel], dim=1)


class Generator(_Growing, base.Generator):
    """Latents to images or clips. `width` is the last feature map's, `resolution` 4 times a power of two, from 16."""

    _ports = "to_image"

    def __init__(
        self, z_dim: int, width: int, channels: int, resolution: int, frames: int = 1, num_classes: int = 0
    ) -> None:
        super().__init__()
        self._sizes = sizes = _Sizes(width, resolution, frames)
        self.with_class = ClassEmbedding(z_dim, num_classes)
        self.norm = PixelNorm()
        # The gain is the paper's: a sixteenth of the sum over a 4x4 kernel.
        pixels = math.prod(sizes.first_size)
        self.first = _EqualLinear(self.with_class.width, sizes.widths[SMALLEST] * pixels, gain=_GAIN / 4)
        self.blocks, self.to_image = nn.ModuleDict(), nn.ModuleDict()
        for smaller, each in itertools.pairwise([SMALLEST, *sizes.resolutions]):
            inputs, outputs = sizes.widths[smaller], sizes.widths[each]
            convs = [EqualConv(outputs, outputs, 3, sizes.dims)]
            if each > SMALLEST:
                convs.insert(0, EqualConv(inputs, outputs, 3, sizes.dims))
            layers = [layer for conv in convs for layer in (conv, nn.LeakyReLU(_SLOPE), PixelNorm())]
            self.blocks[str(each)] = nn.Sequential(*layers)
            self.to_image[str(each)] = EqualConv(outputs, channels, 1, sizes.dims, gain=1.0)
        self._phase = ProgressiveStage(resolution)

    def forward(self, latents: Tensor, labels: Tensor | None = None) -> Tensor:
        """[N, z_dim] to [N, C, H, W] or [N, C, T, H, W], about -1..1; of full size in evaluation."""
        sizes, phase = self._sizes, self._phase
        features = self.first(self.with_class(self.norm(latents), labels))
        # Not len(): torch.export would take that for a constant.
        features = self.arrange(features.reshape(latents.shape[0], sizes.widths[SMALLEST], *sizes.first_size))
        features = self.norm(F.leaky_relu(features, _SLOPE))
        before = features
        for each in sizes.in_use(phase):
            before = features
            features = self.blocks[str(each)](enlarge(features, size_at(each, sizes.frames)))
        images: Tensor = self.to_image[str(phase.resolution)](features)
        if phase.fade is not None:
            older = self.to_image[str(phase.resolution // 2)](before)
            older = enlarge(older, tuple(images.shape[2:]))
            images = older + (images - older) * phase.fade
        return images if self.training else enlarge(images, sizes.full_size)


class Discriminator(_Growing, base.Discriminator):
    """Images or clips to logits, the generator's mirror; adds the deviation over `group` images. High means real."""

    _ports = "from_image"

    def __init__(
        self, width: int, channels: int, resolution: int, frames: int = 1, num_classes: int = 0, group: int = 0
    ) -> None:
        super().__init__()
        self._group = group
        self._sizes = sizes = _Sizes(width, resolution, frames)
        self.blocks, self.from_image = nn.ModuleDict(), nn.ModuleDict()
        for smaller, each in itertools.pairwise([SMALLEST, *sizes.resolutions]):
            inputs, outputs = sizes.widths[each], sizes.widths[smaller]
            self.from_image[str(each)] = EqualConv(channels, inputs, 1, sizes.dims)
            num_inputs = inputs + (each == SMALLEST and group > 0)
            layers: list[nn.Module] = [EqualConv(num_inputs, inputs, 3, sizes.dims), nn.LeakyReLU(_SLOPE)]
            if each > SMALLEST:
                layers += [EqualConv(inputs, outputs, 3, sizes.dims), nn.LeakyReLU(_SLOPE)]
            self.blocks[str(each)] = nn.Sequential(*layers)
        widest = sizes.widths[SMALLEST]
        self.dense = _EqualLinear(widest * math.prod(sizes.first_size), widest)
        self.last = _EqualLinear(widest, 1, gain=1.0)
        self.with_projection = ProjectionHead(widest, num_classes)
        self._phase = ProgressiveStage(resolution)

    def forward(self, images: Tensor, labels: Tensor | None = None) -> Tensor:
        """[N, C, H, W] or [N, C, T, H, W] of the phase's size, in -1..1, to [N] logits."""
        sizes, phase = self._sizes, self._phase
        features = self._from_image(phase.resolution, images)
        for each in reversed(sizes.in_use(phase)):
            if each == SMALLEST and self._group:
                features = self.arrange(with_group_deviation(features, self._group))
            features = self.blocks[str(each)](features)
            if each > SMALLEST:
                features = pool(features, size_at(each // 2, sizes.frames))
            if each == phase.resolution and phase.fade is not None:
                older = self._from_image(each // 2, pool(images, size_at(each // 2, sizes.frames)))
                features = older + (features - older) * phase.fade
        features = F.leaky_relu(self.dense(features.flatten(1)), _SLOPE)
        logits: Tensor = self.with_projection(self.last(features).squeeze(1), features, labels)
        return logits

    def _from_image(self, resolution: int, images: Tensor) -> Tensor:
        return F.leaky_relu(self.from_image[str(resolution)](images), _SLOPE)
