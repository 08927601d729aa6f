"""Shared layers: PixelNorm with a manual gradient; halving and doubling, by convolutions or faster matrix products."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from gangway.trainer.networks.precision import Products

_TINY = 1e-8
_KERNEL_SIDE, _HALF = 4, 2
_AT_ONCE = 1 << 22  # Numbers in a matrix of windows, which fits into a cache and into memory that the allocator keeps
_KERNEL, _STRIDE, _PADDING = 4, 2, 1
_FEW_CHANNELS = 4
_SMALL_WIDTH = 4  # Of feature maps. The library gives a matrix unit, which takes 16 pixels, one row of them at a time


class PixelNorm(nn.Module):
    """Scales each pixel's feature vector to unit mean square."""

    def forward(self, features: Tensor) -> Tensor:
        """[N, C, ...] to the same shape."""
        normed: Tensor = _Scale.apply(features)
        return normed


class _Scale(torch.autograd.Function):
    """y = x s with s = (mean x^2 + tiny)^-1/2, and so dx = s (dy - y mean(y dy))."""

    @staticmethod
    def forward(ctx: Any, features: Tensor) -> Tensor:
        # At least in float32: fp16 cannot hold squares of large features, nor so small a constant.
        exact = features.to(torch.promote_types(features.dtype, torch.float32))
        scale = torch.rsqrt(exact.square().mean(dim=1, keepdim=True) + _TINY).to(features.dtype)
        normed = features * scale
        ctx.save_for_backward(normed, scale)
        return normed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        normed, scale = ctx.saved_tensors
        shared = (gradient * normed).mean(dim=1, keepdim=True)
        return torch.addcmul(gradient, normed, shared, value=-1).mul_(scale)


def halve(images: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Computes the convolution: [N, C, 2 H, 2 W] by [O, C, 4, 4], bias [O], to [N, O, H, W], channels last."""
    num, _, high, wide = images.shape
    features = _empty(images, (num, len(weight), high // 2, wide // 2))
    rows_out = features.movedim(1, -1).view(-1, len(weight))
    columns = weight.movedim(1, -1).reshape(len(weight), -1).t()
    for rows, windows in _windows(images, _KERNEL_SIDE, 2):
        rows_out[rows] = _product(windows, columns, bias)
    return features


def weight_gradient(images: Tensor, features: Tensor) -> Tensor:
    """Returns the derivative of sum(convolution(images) * features) by the weight [O, C, 4, 4], channels last."""
    width, channels = features.shape[1], images.shape[1]
    given = features.movedim(1, -1).reshape(-1, width)
    total = images.new_zeros(
        (width, channels * _KERNEL_SIDE**2), dtype=torch.promote_types(images.dtype, torch.float32)
    )
    for rows, windows in _windows(images, _KERNEL_SIDE, 2):
        total += given[rows].t() @ windows
    return total.to(images.dtype).reshape(width, _KERNEL_SIDE, _KERNEL_SIDE, channels).movedim(-1, 1)


def double(features: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Computes the transposed convolution: [N, O, H, W] by [O, C, 4, 4] to [N, C, 2 H, 2 W], channels last."""
    num, _, high, wide = features.shape
    channels = weight.shape[1]
    columns = _as_kernel_two(weight).movedim(1, -1).reshape(4 * channels, -1).t()
    biases = None if bias is None else bias.repeat(4)
    framed = (high + 1) * (wide + 1)
    images = _empty(features, (num, channels, 2 * high, 2 * wide))
    for rows, windows in _windows(features, _HALF, 1):
        part = slice(rows.start // framed, rows.stop // framed)
        pixels = _product(windows, columns, biases).reshape(-1, high + 1, wide + 1, 2, 2, channels)
        _interleave(pixels.permute(0, 3, 4, 5, 1, 2), images[part])
    return images


def _interleave(pixels: Tensor, images: Tensor) -> None:
    """Writes `_as_kernel_two`'s four pixels per window, [N, 2, 2, C, H + 1, W + 1], to `images` [N, C, 2 H, 2 W]."""
    high, wide = (side - 1 for side in pixels.shape[-2:])
    for row in (0, 1):
        for column in (0, 1):
            part = pixels[:, row, column, :, row : row + high, column : column + wide]
            images[:, :, row::2, column::2] = part


def _as_kernel_two(weight: Tensor) -> Tensor:
    """Converts a transposed convolution's weight [O, C, 4, 4] to a kernel of 2 with four pixels a window.

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
    """Yields windows of a zero-padded tensor as rows [kernel x kernel x C], with their slice of all rows."""
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


class Halving(nn.Conv2d):
    """Halves height and width. `products`: what is computed as matrix products in bfloat16 on small maps."""

    products = Products.NONE

    def __init__(self, channels: int, width: int) -> None:
        super().__init__(channels, width, _KERNEL, _STRIDE, _PADDING)

    def forward(self, images: Tensor) -> Tensor:
        """[N, channels, H, W] to [N, width, H / 2, W / 2]."""
        products = self.products if _is_small_bf16(images, images.shape[-1] // 2) else Products.NONE
        if not _is_ours(images, self.in_channels, products):
            return super().forward(images)
        features: Tensor = _Halve.apply(*_cast(images, self.weight, self.bias), products)
        return features


class Doubling(nn.ConvTranspose2d):
    """Doubles height and width; `products` as for `Halving`."""

    products = Products.NONE

    def __init__(self, width: int, channels: int) -> None:
        super().__init__(width, channels, _KERNEL, _STRIDE, _PADDING)

    def forward(self, features: Tensor, output_size: list[int] | None = None) -> Tensor:
        """[N, width, H, W] to [N, channels, 2 H, 2 W]."""
        products = self.products if _is_small_bf16(features, features.shape[-1]) else Products.NONE
        if not _is_ours(features, self.out_channels, products):
            return super().forward(features, output_size)
        images: Tensor = _Double.apply(*_cast(features, self.weight, self.bias), products)
        return images


def use_matrix_products(network: nn.Module, products: Products) -> int:
    """Sets `products` of every halving and doubling layer; returns their number."""
    layers = [module for module in network.modules() if isinstance(module, Halving | Doubling)]
    for layer in layers:
        layer.products = products
    return len(layers)


def small_maps(products: Products) -> str:
    """Describes `use_matrix_products` for the record."""
    layers = f"layers with maps {_SMALL_WIDTH} pixels wide"
    return f"{layers} compute {products.value} as matrix products, the faster way on this CPU, unless compiled"


def _is_ours(tensor: Tensor, channels: int, products: Products) -> bool:
    gains = products is not Products.NONE or channels <= _FEW_CHANNELS
    return tensor.device.type == "cpu" and gains and not torch.compiler.is_compiling()


def _kind(tensor: Tensor) -> torch.dtype:
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else tensor.dtype


def _is_small_bf16(tensor: Tensor, wide: int) -> bool:
    return wide <= _SMALL_WIDTH and _kind(tensor) == torch.bfloat16


def _cast(tensor: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Casts as autocast does for a convolution, since it does not see into custom autograd functions."""
    assert bias is not None, "made with one"
    kind = _kind(tensor)
    return tensor.to(kind), weight.to(kind), bias.to(kind)


class _Resize(torch.autograd.Function):
    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None, Products], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])
        ctx.products = inputs[3]


class _Double(_Resize):
    """The transposed convolution; without a bias where it is a gradient."""

    @staticmethod
    def forward(features: Tensor, weight: Tensor, bias: Tensor | None, products: Products) -> Tensor:
        if products is Products.ALL:
            return double(features, weight, bias)
        if weight.shape[1] <= _FEW_CHANNELS:
            return _double_by_convolution(features, weight, bias)
        return F.conv_transpose2d(features, weight, bias, _STRIDE, _PADDING)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        features, weight = ctx.saved_tensors
        by_features, by_weight, by_bias, _ = ctx.needs_input_grad
        if not _by_products(ctx):
            return *_gradients(gradient, features, weight, True, (by_features, by_weight, by_bias)), None
        if ctx.products is Products.ALL:
            feature_gradient = halve(gradient, weight) if by_features else None
        else:
            feature_gradient = _gradients(gradient, features, weight, True, (by_features, False, False))[0]
        kernel_gradient = weight_gradient(gradient, features) if by_weight else None
        return feature_gradient, kernel_gradient, _bias_gradient(gradient) if by_bias else None, None


class _Halve(_Resize):
    """The convolution, whose gradients can be differentiated again for a penalty."""

    @staticmethod
    def forward(images: Tensor, weight: Tensor, bias: Tensor, products: Products) -> Tensor:
        if products is Products.ALL:
            return halve(images, weight, bias)
        return F.conv2d(images, weight, bias, _STRIDE, _PADDING)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        images, weight = ctx.saved_tensors
        by_images, by_weight, by_bias, _ = ctx.needs_input_grad
        image_gradient = _Double.apply(gradient, weight, None, ctx.products) if by_images else None
        if not _by_products(ctx):
            return image_gradient, *_gradients(gradient, images, weight, False, (False, by_weight, by_bias))[1:], None
        kernel_gradient = weight_gradient(images, gradient) if by_weight else None
        return image_gradient, kernel_gradient, _bias_gradient(gradient) if by_bias else None, None


def _by_products(ctx: Any) -> bool:
    return ctx.products is not Products.NONE and not torch.is_grad_enabled()


def _bias_gradient(gradient: Tensor) -> Tensor:
    return gradient.sum((0, 2, 3))


def _gradients(
    gradient: Tensor, inputs: Tensor, weight: Tensor, transposed: bool, wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    if not any(wanted):
        return None, None, None
    sizes = [weight.shape[1] if transposed else weight.shape[0]]
    stride, padding, once = [_STRIDE] * 2, [_PADDING] * 2, [1, 1]
    found: tuple[Tensor | None, ...] = torch.ops.aten.convolution_backward(
        gradient, inputs, weight, sizes, stride, padding, once, transposed, [0, 0], 1, list(wanted)
    )
    return found


def _double_by_convolution(features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    num, _, high, wide = features.shape
    channels = weight.shape[1]
    biases = None if bias is None else bias.repeat(4)
    pixels = F.conv2d(features, _as_kernel_two(weight), biases, padding=1)
    pixels = pixels.reshape(num, 2, 2, channels, high + 1, wide + 1)
    channels_last = features.is_contiguous(memory_format=torch.channels_last)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    images = torch.empty((num, channels, 2 * high, 2 * wide), dtype=pixels.dtype, memory_format=layout)
    _interleave(pixels, images)
    return images
