"""The two layers that touch images, whose one to four channels make a CPU's transposed convolution slow.

A transposed convolution of kernel 4, stride 2 and padding 1 is, for each of the four pixels that a feature becomes, a
convolution of kernel 2. One convolution makes all four, of as many operations, but five times as fast as the library's
own way to three channels. It is the generator's last layer, and the gradient by images of the discriminator's first.

Not for a GPU or a compiler, which have kernels for it: those get PyTorch's own layers.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["FromImages", "ToImages"]

_KERNEL, _STRIDE, _PADDING = 4, 2, 1
_FEW_CHANNELS = 4


class FromImages(nn.Conv2d):
    """Images to features of half their height and width.

    Args:
        channels: of the images.
        width: of the features.
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__(channels, width, _KERNEL, _STRIDE, _PADDING)

    def forward(self, images: Tensor) -> Tensor:
        """[N, channels, H, W] to [N, width, H / 2, W / 2]."""
        if not _is_slow(images, self.in_channels):
            return super().forward(images)
        features: Tensor = _Halve.apply(*_lowered(images, self.weight, self.bias))
        return features


class ToImages(nn.ConvTranspose2d):
    """Features to images of twice their height and width.

    Args:
        width: of the features.
        channels: of the images.
    """

    def __init__(self, width: int, channels: int) -> None:
        super().__init__(width, channels, _KERNEL, _STRIDE, _PADDING)

    def forward(self, features: Tensor, output_size: list[int] | None = None) -> Tensor:
        """[N, width, H, W] to [N, channels, 2 H, 2 W]."""
        if not _is_slow(features, self.out_channels):
            return super().forward(features, output_size)
        features, weight, bias = _lowered(features, self.weight, self.bias)
        images: Tensor = _Double.apply(features, weight)
        return images + bias[:, None, None]


def _is_slow(tensor: Tensor, channels: int) -> bool:
    return tensor.device.type == "cpu" and channels <= _FEW_CHANNELS and not torch.compiler.is_compiling()


def _lowered(tensor: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """As autocast gives them to a convolution; it does not see into a function with a gradient of its own."""
    assert bias is not None, "made with one"
    kind = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else tensor.dtype
    return tensor.to(kind), weight.to(kind), bias.to(kind)


class _Double(torch.autograd.Function):
    """The transposed convolution, without a bias."""

    @staticmethod
    def forward(features: Tensor, weight: Tensor) -> Tensor:
        return _doubled(features, weight)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        features, weight = ctx.saved_tensors
        return _gradients(gradient, features, weight, True, (*ctx.needs_input_grad, False))[:2]


class _Halve(torch.autograd.Function):
    """The convolution. Its gradients can be differentiated once more, as a penalty wants."""

    @staticmethod
    def forward(images: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.conv2d(images, weight, bias, _STRIDE, _PADDING)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        images, weight = ctx.saved_tensors
        by_images, *by_parameters = ctx.needs_input_grad
        _, of_weight, of_bias = _gradients(gradient, images, weight, False, (False, *by_parameters))
        return _Double.apply(gradient, weight) if by_images else None, of_weight, of_bias


def _gradients(
    gradient: Tensor, inputs: Tensor, weight: Tensor, transposed: bool, wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """The library's own gradients of either convolution by its inputs, weight and bias, as far as they are wanted."""
    if not any(wanted):
        return None, None, None
    sizes = [weight.shape[1] if transposed else weight.shape[0]]
    stride, padding, once = [_STRIDE] * 2, [_PADDING] * 2, [1, 1]
    found: tuple[Tensor | None, ...] = torch.ops.aten.convolution_backward(
        gradient, inputs, weight, sizes, stride, padding, once, transposed, [0, 0], 1, list(wanted)
    )
    return found


def _doubled(features: Tensor, weight: Tensor) -> Tensor:
    """The transposed convolution as one of kernel 2, whose outputs are the four pixels' channels.

    Args:
        features: [N, width, H, W].
        weight: [width, channels, 4, 4].
    """
    num, width, high, wide = features.shape
    channels = weight.shape[1]
    # Row 2 i + p of an image sums rows i + p - 1 and i + p of the features, by the kernel's rows 3 - p and 1 - p.
    taps = weight.reshape(width, channels, 2, 2, 2, 2).flip(2, 3, 4, 5).permute(3, 5, 1, 0, 2, 4)
    pixels = F.conv2d(features, taps.reshape(4 * channels, width, 2, 2), padding=1)
    pixels = pixels.reshape(num, 2, 2, channels, high + 1, wide + 1)
    channels_last = features.is_contiguous(memory_format=torch.channels_last)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    images = torch.empty((num, channels, 2 * high, 2 * wide), dtype=pixels.dtype, memory_format=layout)
    for row in (0, 1):
        for column in (0, 1):
            part = pixels[:, row, column, :, row : row + high, column : column + wide]
            images[:, :, row::2, column::2] = part
    return images
