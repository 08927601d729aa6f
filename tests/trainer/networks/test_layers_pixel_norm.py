"""PixelNorm: its formula, its gradient against autograd's own and finite differences, and small numbers in fp16."""

import pytest
import torch
from torch import Tensor

from gangway.trainer.networks.layers import PixelNorm


def _by_autograd(features: Tensor) -> Tensor:
    return features * torch.rsqrt(features.square().mean(dim=1, keepdim=True) + 1e-8)


@pytest.mark.parametrize("shape", [(3, 5), (2, 6, 4, 4), (2, 3, 2, 4, 4)])
@pytest.mark.parametrize("channels_last", [False, True])
def test_values_and_gradients_are_autograds(shape: tuple[int, ...], channels_last: bool) -> None:
    features = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    if channels_last and len(shape) == 4:
        features = features.contiguous(memory_format=torch.channels_last)
    given = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    results = []
    for norm in (PixelNorm(), _by_autograd):
        leaf = features.clone().requires_grad_()
        normed = norm(leaf)
        results.append((normed.detach(), *torch.autograd.grad(normed, leaf, given)))
    torch.testing.assert_close(results[0], results[1])
    assert results[0][0].stride() == features.stride()


def test_gradient_against_finite_differences() -> None:
    features = torch.randn(2, 3, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(PixelNorm(), features)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_in_half_precision_nothing_overflows(dtype: torch.dtype) -> None:
    features = torch.stack([torch.zeros(8), torch.full((8,), 3e4)]).to(dtype).requires_grad_()
    normed = PixelNorm()(features)
    assert normed.dtype == dtype
    torch.testing.assert_close(normed, torch.tensor([0.0, 1.0], dtype=dtype)[:, None].expand(2, 8))
    (gradient,) = torch.autograd.grad(normed.sum(), features)
    assert gradient.isfinite().all()


def test_a_second_derivative_is_refused_not_wrong() -> None:
    features = torch.randn(2, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(PixelNorm()(features).square().sum(), features, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        torch.autograd.backward(gradient.sum())
