"""The phases of progressive networks (Karras et al. 2018, arXiv:1710.10196), a function of images seen.

Each resolution from 4x4 lasts `stable_kimg`, and all but the first fade in over `fade_kimg`; clips grow in time, too.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from gangway.trainer.config.network_size import SMALLEST, size_at
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.data.loader import to_device


class ProgressiveStage(NamedTuple):
    """The resolution, and the newest layers' share, a scalar tensor in 0..1 on the device; None after the fade."""

    resolution: int
    fade: Tensor | None = None


def phase_at(config: TrainConfig, images: int, device: torch.device) -> ProgressiveStage:
    """Returns the phase of the step that begins after `images`."""
    resolution, fade = fade_at(config, images)
    # A tensor, as a number would be a constant of the compiled program, and new in every step.
    return ProgressiveStage(resolution, None if fade == 1 else to_device(torch.tensor(fade), device))


def fade_at(config: TrainConfig, images: int) -> tuple[int, float]:
    """Returns resolution and its layers' share in 0..1 in the step that begins after `images`."""
    if config.architecture != "progressive":
        return config.resolution, 1.0
    kimg, resolution = images / 1000, SMALLEST
    if kimg < config.stable_kimg:
        return resolution, 1.0
    kimg -= config.stable_kimg
    while True:
        resolution *= 2
        if kimg < config.fade_kimg:
            return resolution, kimg / config.fade_kimg
        kimg -= config.fade_kimg
        if kimg < config.stable_kimg or resolution == config.resolution:
            return resolution, 1.0
        kimg -= config.stable_kimg


def shrink(images: Tensor, phase: ProgressiveStage) -> Tensor:
    """Averages full-size reals [N, C, H, W] or [N, C, T, H, W] to the phase's size, faded like the networks."""
    frames = images.shape[2] if images.dim() == 5 else 1
    small = pool(images, size_at(phase.resolution, frames))
    if phase.fade is None:
        return small
    before = enlarge(pool(small, size_at(phase.resolution // 2, frames)), tuple(small.shape[2:]))
    return before + (small - before) * phase.fade


def pool(images: Tensor, size: tuple[int, ...]) -> Tensor:
    """Averages pixels (and frames) down to a size that divides theirs."""
    if tuple(images.shape[2:]) == size:
        return images
    ratio = tuple(now // then for now, then in zip(images.shape[2:], size, strict=True))
    if len(size) == 2:
        return F.avg_pool2d(images, ratio)
    # Frame by frame, then over time: avg_pool3d has no backward on CUDA that gives the same bits each time.
    num, channels, frames = images.shape[:3]
    flat = F.avg_pool2d(images.reshape(num, channels * frames, *images.shape[3:]), ratio[1:])
    return flat.reshape(num, channels, size[0], ratio[0], *size[1:]).mean(dim=3)


def enlarge(images: Tensor, size: tuple[int, ...]) -> Tensor:
    """Repeats pixels (and frames) up to a size that is a multiple of theirs."""
    return images if tuple(images.shape[2:]) == size else F.interpolate(images, size=size, mode="nearest")
