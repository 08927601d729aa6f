"""The layers that halve and double images: PyTorch's own numbers and gradients, to the second order, in all layouts."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from gangway.trainer.networks import layers
from gangway.trainer.networks.layers import (
    Doubling,
    Halving,
    PixelNorm,
    double,
    halve,
    use_matrix_products,
    weight_gradient,
)
from gangway.trainer.networks.precision import Products

SIZES = [(1, 4, 6), (3, 8, 8), (4, 6, 4)]


def _filled(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _stock(layer: nn.Module) -> Callable[[Tensor], Tensor]:
    weight, bias = layer.weight, layer.bias
    assert isinstance(weight, Tensor)
    assert isinstance(bias, Tensor)
    if isinstance(layer, Doubling):
        return lambda inputs: F.conv_transpose2d(inputs, weight, bias, 2, 1)
    return lambda inputs: F.conv2d(inputs, weight, bias, 2, 1)


def _layer_and_inputs(kind: str, size: tuple[int, int, int]) -> tuple[nn.Module, Tensor]:
    channels, high, wide = size
    if kind == "to":
        return Doubling(5, channels), _filled((2, 5, high, wide), 1)
    return Halving(channels, 5), _filled((2, channels, high, wide), 1)


@pytest.mark.parametrize("kind", ["to", "from"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_values_and_gradients_are_the_librarys(
    kind: str, size: tuple[int, int, int], layout: torch.memory_format
) -> None:
    layer, inputs = _layer_and_inputs(kind, size)
    layer.to(memory_format=layout)
    results = []
    for compute in (layer, _stock(layer)):
        leaf = inputs.clone(memory_format=torch.preserve_format).contiguous(memory_format=layout).requires_grad_()
        made = compute(leaf)
        given = _filled(tuple(made.shape), 2).contiguous(memory_format=layout)
        results.append((made.detach(), *torch.autograd.grad(made, [leaf, *layer.parameters()], given)))
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-5)
    assert results[0][0].is_contiguous(memory_format=layout)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["to", "from"])
def test_first_and_second_derivatives_against_finite_differences(kind: str) -> None:
    layer, inputs = _layer_and_inputs(kind, (3, 4, 4))
    layer.double()
    weight, bias = (parameter.detach().clone().requires_grad_() for parameter in layer.parameters())

    def compute(given: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        made: Tensor = torch.func.functional_call(layer, {"weight": weight, "bias": bias}, (given,))
        return made

    arguments = (inputs.double().requires_grad_(), weight, bias)
    assert torch.autograd.gradcheck(compute, arguments)
    assert torch.autograd.gradgradcheck(compute, arguments)


@pytest.mark.parametrize("kind", ["to", "from"])
def test_autocast_lowers_them_as_it_lowers_the_librarys(kind: str) -> None:
    layer, inputs = _layer_and_inputs(kind, (3, 8, 8))
    results = []
    for compute in (layer, _stock(layer)):
        leaf = inputs.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            made = compute(leaf)
        results.append((made.detach(), *torch.autograd.grad(made.float().square().mean(), [leaf, *layer.parameters()])))
    assert results[0][0].dtype == torch.bfloat16
    assert results[0][1].dtype == torch.float32, "the leaf's own type, as everywhere"
    torch.testing.assert_close(results[0], results[1], rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("kind", ["to", "from"])
def test_a_penaltys_functional_derivative_is_the_same(kind: str) -> None:
    layer, inputs = _layer_and_inputs(kind, (3, 8, 8))
    found = torch.func.grad(lambda given: layer(given).square().sum())(inputs)
    wanted = torch.func.grad(lambda given: _stock(layer)(given).square().sum())(inputs)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kind", ["to", "from"])
def test_many_channels_and_a_compiler_get_the_librarys_own(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class AskedError(Exception):
        """One of our own functions was wanted."""

    class Telling:
        @staticmethod
        def apply(*given: Tensor) -> Tensor:
            raise AskedError

    for name in ("_Double", "_Halve"):
        monkeypatch.setattr(layers, name, Telling)
    few, images = _layer_and_inputs(kind, (3, 8, 8))
    many, wide_images = _layer_and_inputs(kind, (5, 8, 8))
    with pytest.raises(AskedError):
        few(images)
    many(wide_images)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    few(images)


def _small_layer_and_inputs(kind: str, products: Products = Products.ALL) -> tuple[Doubling | Halving, Tensor]:
    layer, shape = (Doubling(6, 5), (3, 6, 4, 4)) if kind == "to" else (Halving(5, 6), (3, 5, 8, 8))
    assert use_matrix_products(layer, products) == 1
    return layer, _filled(shape, 1)


@pytest.mark.parametrize("kind", ["to", "from"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("products", [Products.ALL, Products.OF_WEIGHT])
def test_as_matrix_products_values_gradients_and_a_penaltys_are_the_librarys(
    kind: str, layout: torch.memory_format, products: Products, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = _counting(monkeypatch)
    layer, inputs = _small_layer_and_inputs(kind, products)
    layer.to(memory_format=layout)
    results = []
    for compute in (layer, _stock(layer)):
        leaf = inputs.clone().contiguous(memory_format=layout).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            made = compute(leaf)
        (by_inputs,) = torch.autograd.grad(made.float().square().sum(), leaf, create_graph=True)
        if compute is layer:
            assert "weight_gradient" not in used, "the library's, in a backward that is differentiated itself"
        penalty = by_inputs.square().mean() + made.float().mean()
        of_weight, of_bias = torch.autograd.grad(penalty, list(layer.parameters()))
        results.append((made.detach(), by_inputs.detach(), of_weight, of_bias))
    for ours, theirs in zip(*results, strict=True):
        assert ours.dtype == theirs.dtype
        largest = float(theirs.abs().max())
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-2 * largest)
    every = {"halve", "double", "weight_gradient"}
    assert set(used) == (every if products is Products.ALL else {"weight_gradient"})


@pytest.mark.parametrize("kind", ["to", "from"])
@pytest.mark.parametrize("case", ["not asked", "float32", "wide", "compiler"])
def test_matrix_products_are_for_small_maps_in_bf16_where_they_were_asked_for(
    kind: str, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = _counting(monkeypatch)
    layer, inputs = _small_layer_and_inputs(kind)
    if case == "not asked":
        layer.products = Products.NONE
    elif case == "wide":
        inputs = torch.cat([inputs, inputs[..., : 1 if kind == "to" else 2]], dim=-1)
    elif case == "compiler":
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with torch.autocast("cpu", torch.bfloat16, enabled=case != "float32"):
        layer(inputs.requires_grad_()).float().sum().backward()
    assert not used


def _counting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the matrix products that are made from now on."""
    used: list[str] = []

    def telling(name: str) -> Callable[..., Tensor]:
        made: Callable[..., Tensor] = getattr(layers, name)

        def tell(*given: Tensor) -> Tensor:
            used.append(name)
            return made(*given)

        return tell

    for name in ("halve", "double", "weight_gradient"):
        monkeypatch.setattr(layers, name, telling(name))
    return used


SIDES = st.integers(1, 5)


def _doubles(*shape: int) -> Tensor:
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
    images = _doubles(num, channels, 2 * high, 2 * wide).contiguous(memory_format=layout)
    features = _doubles(num, width, high, wide).contiguous(memory_format=layout)
    weight = _doubles(width, channels, 4, 4).contiguous(memory_format=layout).requires_grad_()
    bias, of_images = _doubles(width), _doubles(channels)
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
