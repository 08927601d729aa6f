"""The layers that halve and double an image's size (kernel 4, stride 2, padding 1), each as its device is fastest in.

PyTorch's own, but on a CPU:

- a transposed convolution of one to four channels (the generator's last layer, and the gradient by images of the
discriminator's first) is one convolution of kernel 2 that makes the four pixels of each feature: as many operations,
but five times as fast as the library's own way to three channels.
- bfloat16 on small feature maps is matrix products (trainer.networks.matrix_products), as far as faster. With matrix
units all is: the library fills them to a quarter, and with maps of 4x4 gradients come about twice as fast. With vectors
of bfloat16 alone, the weight's gradient is, by a third. With larger maps nothing is.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainer.networks import matrix_products
from trainer.steps.precision import Products

__all__ = ["Doubling", "Halving", "small_maps", "use_matrix_products"]

_KERNEL, _STRIDE, _PADDING = 4, 2, 1
_FEW_CHANNELS = 4
_SMALL_WIDTH = 4
"""Of feature maps. The library gives a row of them to a matrix unit at a time, which has room for 16 pixels."""


class Halving(nn.Conv2d):
    """Images, or features, to features of half their height and width. `products`: what of bfloat16 on small maps is
    computed as matrix products.
    """

    products = Products.NONE

    def __init__(self, channels: int, width: int) -> None:
        super().__init__(channels, width, _KERNEL, _STRIDE, _PADDING)

    def forward(self, images: Tensor) -> Tensor:
        """[N, channels, H, W] to [N, width, H / 2, W / 2]."""
        products = self.products if _is_small_bf16(images, images.shape[-1] // 2) else Products.NONE
        if not _is_ours(images, self.in_channels, products):
            return super().forward(images)
        features: Tensor = _Halve.apply(*_lowered(images, self.weight, self.bias), products)
        return features


class Doubling(nn.ConvTranspose2d):
    """Features to images, or features, of twice their height and width; `products` as of `Halving`."""

    products = Products.NONE

    def __init__(self, width: int, channels: int) -> None:
        super().__init__(width, channels, _KERNEL, _STRIDE, _PADDING)

    def forward(self, features: Tensor, output_size: list[int] | None = None) -> Tensor:
        """[N, width, H, W] to [N, channels, 2 H, 2 W]."""
        products = self.products if _is_small_bf16(features, features.shape[-1]) else Products.NONE
        if not _is_ours(features, self.out_channels, products):
            return super().forward(features, output_size)
        images: Tensor = _Double.apply(*_lowered(features, self.weight, self.bias), products)
        return images


def use_matrix_products(network: nn.Module, products: Products) -> int:
    """Has every layer of these compute bfloat16 on small maps like that on a CPU; returns how many there are."""
    layers = [module for module in network.modules() if isinstance(module, Halving | Doubling)]
    for layer in layers:
        layer.products = products
    return len(layers)


def small_maps(products: Products) -> str:
    """What `use_matrix_products` does, and why, for the record."""
    layers = f"layers with maps {_SMALL_WIDTH} pixels wide"
    return f"{layers} compute {products.value} as matrix products, the faster way on this CPU, unless compiled"


def _is_ours(tensor: Tensor, channels: int, products: Products) -> bool:
    gains = products is not Products.NONE or channels <= _FEW_CHANNELS
    return tensor.device.type == "cpu" and gains and not torch.compiler.is_compiling()


def _kind(tensor: Tensor) -> torch.dtype:
    """In which autocast would have a convolution compute."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else tensor.dtype


def _is_small_bf16(tensor: Tensor, wide: int) -> bool:
    """Whether a layer computes in bfloat16 on features of so small a width that matrix products are faster."""
    return wide <= _SMALL_WIDTH and _kind(tensor) == torch.bfloat16


def _lowered(tensor: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """As autocast gives them to a convolution; it does not see into a function with a gradient of its own."""
    assert bias is not None, "made with one"
    kind = _kind(tensor)
    return tensor.to(kind), weight.to(kind), bias.to(kind)


class _Double(torch.autograd.Function):
    """The transposed convolution. As a gradient it has no bias."""

    @staticmethod
    def forward(features: Tensor, weight: Tensor, bias: Tensor | None, products: Products) -> Tensor:
        if products is Products.ALL:
            return matrix_products.doubled(features, weight, bias)
        if weight.shape[1] <= _FEW_CHANNELS:
            return _doubled(features, weight, bias)
        return F.conv_transpose2d(features, weight, bias, _STRIDE, _PADDING)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None, Products], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])
        ctx.products = inputs[3]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        features, weight = ctx.saved_tensors
        by_features, by_weight, by_bias, _ = ctx.needs_input_grad
        if not _by_products(ctx):
            return *_gradients(gradient, features, weight, True, (by_features, by_weight, by_bias)), None
        if ctx.products is Products.ALL:
            of_features = matrix_products.halved(gradient, weight) if by_features else None
        else:
            of_features = _gradients(gradient, features, weight, True, (by_features, False, False))[0]
        of_weight = matrix_products.weight_gradient(gradient, features) if by_weight else None
        return of_features, of_weight, _of_bias(gradient) if by_bias else None, None


class _Halve(torch.autograd.Function):
    """The convolution. Its gradients can be differentiated once more, as a penalty wants."""

    @staticmethod
    def forward(images: Tensor, weight: Tensor, bias: Tensor, products: Products) -> Tensor:
        if products is Products.ALL:
            return matrix_products.halved(images, weight, bias)
        return F.conv2d(images, weight, bias, _STRIDE, _PADDING)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Products], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])
        ctx.products = inputs[3]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        images, weight = ctx.saved_tensors
        by_images, by_weight, by_bias, _ = ctx.needs_input_grad
        of_images = _Double.apply(gradient, weight, None, ctx.products) if by_images else None
        if not _by_products(ctx):
            return of_images, *_gradients(gradient, images, weight, False, (False, by_weight, by_bias))[1:], None
        of_weight = matrix_products.weight_gradient(images, gradient) if by_weight else None
        return of_images, of_weight, _of_bias(gradient) if by_bias else None, None


def _by_products(ctx: Any) -> bool:
    """Whether a backward uses products; one that is differentiated itself, as for a penalty, is left to the library."""
    return ctx.products is not Products.NONE and not torch.is_grad_enabled()


def _of_bias(gradient: Tensor) -> Tensor:
    return gradient.sum((0, 2, 3))


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


def _doubled(features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The transposed convolution [N, width, H, W] by [width, channels, 4, 4] as one of kernel 2, whose outputs are the
    four pixels' channels.
    """
    num, _, high, wide = features.shape
    channels = weight.shape[1]
    biases = None if bias is None else bias.repeat(4)
    pixels = F.conv2d(features, matrix_products.as_kernel_two(weight), biases, padding=1)
    pixels = pixels.reshape(num, 2, 2, channels, high + 1, wide + 1)
    channels_last = features.is_contiguous(memory_format=torch.channels_last)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    images = torch.empty((num, channels, 2 * high, 2 * wide), dtype=pixels.dtype, memory_format=layout)
    matrix_products.interleave(pixels, images)
    return images
