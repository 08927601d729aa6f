"""A convolution as matrix products: the library's own numbers, however many images are taken at a time."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from gangway.trainer.networks import layers
from gangway.trainer.networks.layers import double, halve, weight_gradient

SIDES = st.integers(1, 5)


def _filled(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)), dtype=torch.float64)


@given(
    num=SIDES,
    channels=SIDES,
    width=SIDES,
    high=SIDES,
    wide=SIDES,
    at_once=st.sampled_from([1, 300, 1000, 1 << 22]),
    layout=st.sampled_from([torch.contiguous_format, torch.channels_last]),
)
def test_against_the_library(
    num: int, channels: int, width: int, high: int, wide: int, at_once: int, layout: torch.memory_format
) -> None:
    images = _filled(num, channels, 2 * high, 2 * wide).contiguous(memory_format=layout)
    features = _filled(num, width, high, wide).contiguous(memory_format=layout)
    weight = _filled(width, channels, 4, 4).contiguous(memory_format=layout).requires_grad_()
    bias, of_images = _filled(width), _filled(channels)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(layers, "_AT_ONCE", at_once)
        with torch.no_grad():
            found = [halve(images, weight, bias), halve(images, weight)]
            found += [double(features, weight), double(features, weight, of_images)]
        of_weight = weight_gradient(images, features)
    convolved = F.conv2d(images, weight, None, 2, 1)
    transposed = F.conv_transpose2d(features, weight, None, 2, 1)
    wanted = convolved + bias[:, None, None], convolved, transposed, transposed + of_images[:, None, None]
    torch.testing.assert_close(found, [tensor.detach() for tensor in wanted])
    torch.testing.assert_close(of_weight, torch.autograd.grad(convolved, weight, features)[0])
    assert all(tensor.is_contiguous(memory_format=torch.channels_last) for tensor in (*found, of_weight))


def test_bfloat16_is_summed_in_float32() -> None:
    # A thousand images of one each: in bfloat16 a sum of ones ends at 256.
    images = torch.ones(1000, 1, 2, 2, dtype=torch.bfloat16)
    features = torch.ones(1000, 1, 1, 1, dtype=torch.bfloat16)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(layers, "_AT_ONCE", 1)
        of_weight = weight_gradient(images, features)
    assert of_weight.dtype == torch.bfloat16
    assert of_weight[0, 0, 1:3, 1:3].tolist() == [[1000.0] * 2] * 2
