"""DiffAugment (Zhao et al. 2020, arXiv:2006.10738): differentiable augmentation of what the discriminator sees.

Written from the paper. Unlike the usual implementation it draws nothing itself: the random numbers come in as a
matrix of uniforms, so that the result is a pure function of its arguments and every image's augmentation is the
same however the batch is spread over workers. Not here: adaptive strength (ADA).
"""

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["UNIFORMS", "diffaugment"]

UNIFORMS = 7
"""Uniform numbers in [0, 1) consumed for each image: 3 colour, 2 translation, 2 cutout."""

_SHIFT = 1 / 8
_HOLE = 1 / 2


def diffaugment(images: Tensor, policy: str, uniforms: Tensor) -> Tensor:
    """Augments each image on its own.

    Args:
        images: [N, C, H, W] in -1..1.
        policy: comma-separated parts of color, translation, cutout, applied in this order; or "none".
        uniforms: [N, UNIFORMS] in [0, 1), on the images' device.

    Returns:
        [N, C, H, W], differentiable with respect to `images`.
    """
    parts = policy.split(",")
    if "color" in parts:
        images = _color(images, uniforms[:, 0:3, None, None])
    if "translation" in parts:
        images = _translation(images, uniforms[:, 3:5])
    if "cutout" in parts:
        images = _cutout(images, uniforms[:, 5:7])
    return images


def _color(images: Tensor, uniforms: Tensor) -> Tensor:
    """Brightness by -0.5..0.5, saturation by 0..2, contrast by 0.5..1.5; `uniforms` is [N, 3, 1, 1]."""
    brightness, saturation, contrast = uniforms[:, 0:1], uniforms[:, 1:2], uniforms[:, 2:3]
    images = images + (brightness - 0.5)
    grey = images.mean(dim=1, keepdim=True)
    images = (images - grey) * (saturation * 2) + grey
    mean = images.mean(dim=(1, 2, 3), keepdim=True)
    coloured: Tensor = (images - mean) * (contrast + 0.5) + mean
    return coloured


def _translation(images: Tensor, uniforms: Tensor) -> Tensor:
    """Shifts by up to an eighth of the side, whole pixels; the edge that comes in repeats the border's value.

    The paper pads with zero, mid-grey in -1..1; digits stand on black, so a grey band would be a new object.
    """
    num, channels, height, width = images.shape
    reach_y, reach_x = int(height * _SHIFT), int(width * _SHIFT)
    padded = F.pad(images, (reach_x, reach_x, reach_y, reach_y), mode="replicate")
    top = (uniforms[:, 0] * (2 * reach_y + 1)).long()
    left = (uniforms[:, 1] * (2 * reach_x + 1)).long()
    rows = top[:, None] + torch.arange(height, device=images.device)
    columns = left[:, None] + torch.arange(width, device=images.device)
    rows = rows[:, None, :, None].expand(num, channels, height, padded.shape[3])
    columns = columns[:, None, None, :].expand(num, channels, height, width)
    return padded.gather(2, rows).gather(3, columns)


def _cutout(images: Tensor, uniforms: Tensor) -> Tensor:
    """Clears a square of half the side, centred anywhere in the image, to mid-grey."""
    in_rows = _near(uniforms[:, 0], images.shape[2])
    in_columns = _near(uniforms[:, 1], images.shape[3])
    hole = in_rows[:, None, :, None] & in_columns[:, None, None, :]
    return images * hole.logical_not()


def _near(uniforms: Tensor, length: int) -> Tensor:
    """Which of `length` positions lie in a stretch of half of it around a drawn centre, [N, length] bool."""
    reach = int(length * _HOLE) // 2
    centre = (uniforms * length).long()[:, None]
    positions = torch.arange(length, device=uniforms.device)
    return (positions >= centre - reach) & (positions < centre + reach)
