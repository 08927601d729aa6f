"""A convolution of kernel 4, stride 2, padding 1, its transpose and their weight's gradient, as matrix products.

Each window of an image becomes a row of a matrix, of which a processor's matrix unit makes short work. The copies cost
four times the image's memory, so they are made for some images at a time. All in the order of channels_last, without
gradients; sums over many images are kept in float32.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["as_kernel_two", "doubled", "halved", "interleave", "weight_gradient"]

_KERNEL, _HALF = 4, 2
_AT_ONCE = 1 << 22
"""Numbers in a matrix of windows: what a cache holds, and what the allocator keeps instead of fetching it anew."""


def halved(images: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The convolution: [N, C, 2 H, 2 W] by [O, C, 4, 4], bias [O], to [N, O, H, W], channels last."""
    num, _, high, wide = images.shape
    features = _empty(images, (num, len(weight), high // 2, wide // 2))
    made = features.movedim(1, -1).view(-1, len(weight))
    columns = weight.movedim(1, -1).reshape(len(weight), -1).t()
    for rows, windows in _windows(images, _KERNEL, 2):
        made[rows] = _product(windows, columns, bias)
    return features


def weight_gradient(images: Tensor, features: Tensor) -> Tensor:
    """Derivative of sum(convolution(images) * features) by the convolution's weight, [O, C, 4, 4], channels last.
    `images` are [N, C, 2 H, 2 W], `features` [N, O, H, W].
    """
    width, channels = features.shape[1], images.shape[1]
    given = features.movedim(1, -1).reshape(-1, width)
    total = images.new_zeros((width, channels * _KERNEL**2), dtype=torch.promote_types(images.dtype, torch.float32))
    for rows, windows in _windows(images, _KERNEL, 2):
        total += given[rows].t() @ windows
    return total.to(images.dtype).reshape(width, _KERNEL, _KERNEL, channels).movedim(-1, 1)


def doubled(features: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The transposed convolution: [N, O, H, W] by [O, C, 4, 4], bias [C], to [N, C, 2 H, 2 W], channels last."""
    num, _, high, wide = features.shape
    channels = weight.shape[1]
    columns = as_kernel_two(weight).movedim(1, -1).reshape(4 * channels, -1).t()
    biases = None if bias is None else bias.repeat(4)
    framed = (high + 1) * (wide + 1)
    images = _empty(features, (num, channels, 2 * high, 2 * wide))
    for rows, windows in _windows(features, _HALF, 1):
        part = slice(rows.start // framed, rows.stop // framed)
        pixels = _product(windows, columns, biases).reshape(-1, high + 1, wide + 1, 2, 2, channels)
        interleave(pixels.permute(0, 3, 4, 5, 1, 2), images[part])
    return images


def interleave(pixels: Tensor, images: Tensor) -> None:
    """Puts the four pixels of each window of `as_kernel_two`, [N, 2, 2, C, H + 1, W + 1] (the pixel's row and column
    before the channel), where they belong in `images`, [N, C, 2 H, 2 W].
    """
    high, wide = (side - 1 for side in pixels.shape[-2:])
    for row in (0, 1):
        for column in (0, 1):
            part = pixels[:, row, column, :, row : row + high, column : column + wide]
            images[:, :, row::2, column::2] = part


def as_kernel_two(weight: Tensor) -> Tensor:
    """The transposed convolution's weight [O, C, 4, 4] as that of a convolution of kernel 2 that makes four pixels of
    each window, [4 C, O, 2, 2], the pixel's row and column before the channel.

    Row 2 i + p of an image sums rows i + p - 1 and i + p of the features, by the kernel's rows 3 - p and 1 - p.
    """
    width, channels = weight.shape[:2]
    taps = weight.reshape(width, channels, 2, 2, 2, 2).flip(2, 3, 4, 5).permute(3, 5, 1, 0, 2, 4)
    return taps.reshape(4 * channels, width, 2, 2)


def _product(rows: Tensor, columns: Tensor, bias: Tensor | None) -> Tensor:
    return rows @ columns if bias is None else torch.addmm(bias, rows, columns)


def _empty(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=torch.channels_last)


def _windows(tensor: Tensor, kernel: int, stride: int) -> Iterator[tuple[slice, Tensor]]:
    """Windows of a tensor with a frame of zeros, as rows [kernel x kernel x C], and which of all rows they are."""
    _, channels, high, wide = tensor.shape
    down, across = ((side + 2 - kernel) // stride + 1 for side in (high, wide))
    length = kernel**2 * channels
    first = 0
    for part in torch.split(tensor.movedim(1, -1), max(1, _AT_ONCE // (down * across * length))):
        framed = F.pad(part, (0, 0, 1, 1, 1, 1)).contiguous()
        image, row, pixel, _ = framed.stride()
        shape = (len(part), down, across, kernel, kernel * channels)
        windows = framed.as_strided(shape, (image, stride * row, stride * pixel, row, 1)).reshape(-1, length)
        yield slice(first, first + len(windows)), windows
        first += len(windows)
