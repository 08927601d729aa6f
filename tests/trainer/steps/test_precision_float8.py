"""FP8 linear layers against ordinary ones: CPUs have the kernels too, slow as they are there."""

import copy

import pytest
import torch
from torch import Tensor, nn

from trainer.steps.precision import Float8Linear, use_float8


def _error(found: Tensor, expected: Tensor) -> float:
    return float(((found.float() - expected).norm() / expected.norm()).detach())


@pytest.fixture
def networks() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16), nn.Linear(16, 1))
    eighth = copy.deepcopy(plain)
    assert use_float8(eighth) == 2, "the last layer's single output is no multiple of 16"
    return plain, eighth


@pytest.mark.parametrize("rows", [20, 32])
def test_products_and_gradients_are_near(networks: tuple[nn.Module, nn.Module], rows: int) -> None:
    plain, eighth = networks
    given = torch.randn(rows, 32)
    inputs = given.clone().requires_grad_(), given.clone().requires_grad_()
    expected = plain(inputs[0])
    with torch.autocast("cpu", torch.bfloat16):
        found = eighth(inputs[1])
    assert 1e-4 < _error(found, expected) < 0.1, "near, and yet not computed in float32"
    expected.square().sum().backward()
    found.float().square().sum().backward()
    pairs = [*zip(eighth.parameters(), plain.parameters(), strict=True), (inputs[1], inputs[0])]
    for after, before in pairs:
        assert after.grad is not None
        assert before.grad is not None
        assert after.grad.dtype == torch.float32
        assert _error(after.grad, before.grad) < 0.3


def test_without_autocast_it_is_an_ordinary_layer(networks: tuple[nn.Module, nn.Module]) -> None:
    plain, eighth = networks
    given = torch.randn(3, 32, requires_grad=True)
    assert torch.equal(eighth(given), plain(given))
    (gradient,) = torch.autograd.grad(eighth(given).sum(), given, create_graph=True)
    torch.autograd.backward(gradient.square().sum())
    assert next(eighth.parameters()).grad is not None, "a penalty differentiates it twice"


def test_checkpoints_do_not_tell_them_apart(networks: tuple[nn.Module, nn.Module]) -> None:
    plain, eighth = networks
    assert isinstance(next(iter(eighth.children())), Float8Linear)
    eighth.load_state_dict(plain.state_dict())
    assert list(eighth.state_dict()) == list(plain.state_dict())


def test_higher_ranks_keep_their_shape() -> None:
    layer = nn.Sequential(nn.Linear(16, 32, bias=False))
    use_float8(layer)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.randn(2, 5, 16)).shape == (2, 5, 32)
