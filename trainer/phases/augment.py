"""DiffAugment (Zhao et al. 2020, arXiv:2006.10738); its probability may adapt (ADA, Karras et al. 2020, 2006.06676)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from gangway.trainer.config.train_config import TrainConfig

UNIFORMS = 7  # Uniform numbers in [0, 1) consumed for each image: 3 colour, 2 translation, 2 cutout

GATES = 3  # Further columns where not every image is augmented: 1 for each part that this image gets, else 0

_SHIFT = 1 / 8
_HOLE = 1 / 2
EVERY_STEPS = 4  # Steps between two adjustments, over which the signs are averaged, as in the paper


def diffaugment(images: Tensor, policy: str, uniforms: Tensor | None) -> Tensor:
    """Augments each image [N, C, H, W] in -1..1, or clip [N, C, T, H, W], differentiably.

    `policy` is comma-separated parts of color, translation, cutout, applied in this order; or "none". `uniforms` are
    [N, UNIFORMS] in [0, 1), on the images' device; or [N, UNIFORMS + GATES] to leave parts out; None for "none".
    """
    if policy == "none":
        return images
    assert uniforms is not None, "they are drawn for every other policy"
    gates = uniforms[:, UNIFORMS:].bool() if uniforms.shape[1] > UNIFORMS else None
    parts = ("color", _color, slice(0, 3)), ("translation", _translation, slice(3, 5)), ("cutout", _cutout, slice(5, 7))
    for number, (part, augment, columns) in enumerate(parts):
        if part in policy.split(","):
            augmented = augment(images, uniforms[:, columns])
            is_augmented = None if gates is None else _per_image(gates[:, number], images)
            images = augmented if is_augmented is None else torch.where(is_augmented, augmented, images)
    return images


def _per_image(values: Tensor, images: Tensor) -> Tensor:
    return values.reshape(-1, *[1] * (images.dim() - 1))


def _color(images: Tensor, uniforms: Tensor) -> Tensor:
    """Changes brightness by -0.5..0.5, saturation by 0..2, contrast by 0.5..1.5; `uniforms` is [N, 3]."""
    brightness, saturation, contrast = (_per_image(column, images) for column in uniforms.unbind(1))
    images = images + (brightness - 0.5)
    grey = images.mean(dim=1, keepdim=True)
    images = (images - grey) * (saturation * 2) + grey
    mean = images.mean(dim=tuple(range(1, images.dim())), keepdim=True)
    coloured: Tensor = (images - mean) * (contrast + 0.5) + mean
    return coloured


def _translation(images: Tensor, uniforms: Tensor) -> Tensor:
    """The paper pads with zero, mid-grey in -1..1; digits are on black, so a grey band would be a new object."""
    if images.dim() == 5:
        return _translation(images.flatten(1, 2), uniforms).reshape(images.shape)
    num, channels, height, width = images.shape
    reach_y, reach_x = int(height * _SHIFT), int(width * _SHIFT)
    padded = _with_border(images, reach_y, reach_x)
    top = (uniforms[:, 0] * (2 * reach_y + 1)).long()
    left = (uniforms[:, 1] * (2 * reach_x + 1)).long()
    rows = top[:, None] + torch.arange(height, device=images.device)
    columns = left[:, None] + torch.arange(width, device=images.device)
    rows = rows[:, None, :, None].expand(num, channels, height, padded.shape[3])
    columns = columns[:, None, None, :].expand(num, channels, height, width)
    return padded.gather(2, rows).gather(3, columns)


def _with_border(images: Tensor, reach_y: int, reach_x: int) -> Tensor:
    if not torch.compiler.is_compiling():
        return F.pad(images, (reach_x, reach_x, reach_y, reach_y), mode="replicate")
    # The same pixels by index. The compiler expects another layout of the pad's gradient than a CPU gives for
    # channels_last images, and its assertion fails in the backward.
    rows, columns = (
        torch.arange(-reach, length + reach, device=images.device).clamp(0, length - 1)
        for reach, length in zip((reach_y, reach_x), images.shape[2:], strict=True)
    )
    return images[:, :, rows[:, None], columns]


def _cutout(images: Tensor, uniforms: Tensor) -> Tensor:
    in_rows = _near(uniforms[:, 0], images.shape[-2])
    in_columns = _near(uniforms[:, 1], images.shape[-1])
    hole = in_rows[:, :, None] & in_columns[:, None, :]
    frames = (1,) * (images.dim() - 3)
    return images * hole.logical_not().reshape(len(images), *frames, *hole.shape[1:])


def _near(uniforms: Tensor, length: int) -> Tensor:
    reach = int(length * _HOLE) // 2
    centre = (uniforms * length).long()[:, None]
    positions = torch.arange(length, device=uniforms.device)
    return (positions >= centre - reach) & (positions < centre + reach)


def first_p(config: TrainConfig) -> float:
    """Returns the probability of each part at the run's start: 1 where it does not adapt."""
    return 0.0 if config.ada_target else 1.0


def is_due(config: TrainConfig, step: int) -> bool:
    """Whether to adjust p after `step`."""
    return config.ada_target > 0 and step % EVERY_STEPS == 0


def adapt_p(p: Tensor, sum_of_signs: Tensor, images: int, config: TrainConfig) -> Tensor:
    """Returns the next p, float64 on p's device, equal on all workers; the signs' mean is the paper's r_t."""
    mean_sign = sum_of_signs.double() / images
    change = images / (config.ada_kimg * 1000)
    return torch.where(mean_sign > config.ada_target, p + change, p - change).clamp(0.0, 1.0)
