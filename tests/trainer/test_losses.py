"""Losses against references: R1 by functional differentiation, its gradient by finite differences."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from trainer.augment import UNIFORMS
from trainer.config import TrainConfig
from trainer.losses import DLoss, GLoss, r1_penalty
from trainer.networks import build


@pytest.fixture
def networks(tiny_config: TrainConfig) -> tuple[nn.Module, nn.Module]:
    generator, discriminator = build(tiny_config)
    return generator.double(), discriminator.double()


@pytest.fixture
def reals() -> torch.Tensor:
    return torch.rand(3, 1, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2 - 1


def _reference_r1(discriminator: nn.Module, reals: torch.Tensor) -> torch.Tensor:
    """The penalty image by image with torch.func, independent of autograd.grad."""

    def logit(image: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = discriminator(image[None])
        return out.squeeze()

    gradients = torch.func.vmap(torch.func.grad(logit))(reals)
    penalty: torch.Tensor = gradients.square().sum(dim=(1, 2, 3)).mean()
    return penalty


def test_r1_equals_the_reference(networks: tuple[nn.Module, nn.Module], reals: torch.Tensor) -> None:
    _, discriminator = networks
    images = reals.requires_grad_()
    torch.testing.assert_close(r1_penalty(discriminator(images), images), _reference_r1(discriminator, reals))


def test_the_penaltys_weight_gradient_is_right(reals: torch.Tensor) -> None:
    torch.manual_seed(0)
    smooth = nn.Sequential(nn.Conv2d(1, 2, 4, stride=4), nn.Tanh(), nn.Conv2d(2, 1, 8), nn.Flatten(0)).double()
    weights = dict(smooth.named_parameters())

    def penalty(*values: torch.Tensor) -> torch.Tensor:
        images = reals.clone().requires_grad_()
        logits = torch.func.functional_call(smooth, dict(zip(weights, values, strict=True)), (images,))
        return r1_penalty(logits, images)

    leaves = tuple(value.detach().clone().requires_grad_() for value in weights.values())
    assert torch.autograd.gradcheck(penalty, leaves)


@pytest.mark.parametrize("with_r1", [True, False])
def test_discriminator_loss_is_logistic_plus_weighted_penalty(
    networks: tuple[nn.Module, nn.Module], reals: torch.Tensor, with_r1: bool
) -> None:
    generator, discriminator = networks
    fakes = generator(torch.randn(3, 8, dtype=torch.float64)).detach()
    uniforms = torch.rand(3, UNIFORMS, dtype=torch.float64)
    terms = DLoss(discriminator, "none", r1_weight=5.0)(reals, fakes, uniforms, uniforms, with_r1)
    logistic = F.softplus(-discriminator(reals)).mean() + F.softplus(discriminator(fakes)).mean()
    penalty = _reference_r1(discriminator, reals) if with_r1 else torch.zeros((), dtype=torch.float64)
    torch.testing.assert_close(terms.logistic, logistic.detach())
    torch.testing.assert_close(terms.penalty, penalty.detach())
    torch.testing.assert_close(terms.total, logistic + 5 * penalty)
    terms.total.backward()
    assert all(parameter.grad is not None for parameter in discriminator.parameters())
    assert all(parameter.grad is None for parameter in generator.parameters())


def test_generator_loss_holds_and_moves_the_generator_alone(networks: tuple[nn.Module, nn.Module]) -> None:
    generator, discriminator = networks
    loss = GLoss(generator, discriminator, "translation")
    assert {name.split(".")[0] for name, _ in loss.named_parameters()} == {"generator"}
    discriminator.requires_grad_(False)
    latents = torch.randn(4, 8, dtype=torch.float64)
    loss(latents, torch.full((4, UNIFORMS), 0.5)).backward()
    torch.testing.assert_close(
        loss(latents, torch.full((4, UNIFORMS), 0.5)), F.softplus(-discriminator(generator(latents))).mean()
    )
    assert all(parameter.grad is not None for parameter in generator.parameters())
    assert all(parameter.grad is None for parameter in discriminator.parameters())
