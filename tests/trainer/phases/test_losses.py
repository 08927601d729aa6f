"""Losses against references: penalties in closed form and by functional differentiation, gradients by differences."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.networks.base import Discriminator, Generator
from gangway.trainer.networks.factory import build
from gangway.trainer.phases.augment import UNIFORMS
from gangway.trainer.phases.losses import MEANS, DLoss, GLoss, Inputs, gradient_penalty, squared_gradients

WGAN = {"loss": "wgan-gp", "gp_weight": 10, "r1_gamma": 0, "r1_interval": 1}
RELATIVISTIC = {"loss": "relativistic", "r1_gamma": 0.4, "r2_gamma": 0.6, "r1_interval": 1}


@pytest.fixture
def config(tiny_config: TrainConfig) -> TrainConfig:
    return tiny_config.replace({"augment": "none"})


@pytest.fixture
def networks(config: TrainConfig) -> tuple[Generator, Discriminator]:
    generator, discriminator = build(config)
    return generator.double(), discriminator.double()


@pytest.fixture
def inputs() -> Inputs:
    drawn = torch.Generator().manual_seed(0)
    uniforms = torch.full((3, UNIFORMS), 0.5, dtype=torch.float64)
    return Inputs(
        latents=torch.randn(3, 8, dtype=torch.float64, generator=drawn),
        fake_uniforms=uniforms,
        real=torch.rand(3, 1, 32, 32, dtype=torch.float64, generator=drawn) * 2 - 1,
        real_uniforms=uniforms,
        mix=torch.rand(3, 1, dtype=torch.float64, generator=drawn),
    )


class Linear(Discriminator):
    """D(x) = w . x, whose penalties are known in closed form."""

    def __init__(self, norm: float) -> None:
        super().__init__()
        weight = torch.randn(1024, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        self.weight = nn.Parameter(norm * weight / weight.norm())

    def forward(self, images: Tensor, labels: Tensor | None = None) -> Tensor:
        return images.flatten(1) @ self.weight


def _reference_r1(discriminator: nn.Module, images: Tensor) -> Tensor:
    """The penalty image by image with torch.func, independent of autograd.grad."""

    def logit(image: Tensor) -> Tensor:
        out: Tensor = discriminator(image[None])
        return out.squeeze()

    gradients = torch.stack([torch.func.grad(logit)(image) for image in images])
    penalty: Tensor = gradients.square().sum(dim=(1, 2, 3)).mean()
    return penalty


def test_squared_gradients_equal_the_reference(networks: tuple[Generator, Discriminator], inputs: Inputs) -> None:
    _, discriminator = networks
    assert inputs.real is not None
    images = inputs.real.requires_grad_()
    penalty = squared_gradients(discriminator(images), images).mean()
    torch.testing.assert_close(penalty, _reference_r1(discriminator, inputs.real))


def test_penalties_of_a_linear_discriminator_are_those_of_its_weight(config: TrainConfig, inputs: Inputs) -> None:
    """The gradient is the weight everywhere: R1 and R2 are its squared norm, WGAN-GP's penalty is (norm - 1)^2."""
    assert inputs.real is not None
    for norm in (0.5, 1.0, 3.0):
        fake = torch.zeros_like(inputs.real)
        r1_r2 = DLoss(Linear(norm), config.replace(RELATIVISTIC))(inputs, fake, True).means
        gp = DLoss(Linear(norm), config.replace(WGAN))(inputs, fake, True).means
        assert r1_r2[[1, 2, 3]].tolist() == pytest.approx([norm**2, norm**2, 0])
        assert gp[[1, 2, 3]].tolist() == pytest.approx([0, 0, (norm - 1) ** 2], abs=1e-9)


def test_the_gradient_penalty_looks_between_real_and_fake(inputs: Inputs) -> None:
    class Square(Discriminator):
        """D(x) = |x|^2 / 2, whose gradient is x itself."""

        def forward(self, images: Tensor, labels: Tensor | None = None) -> Tensor:
            return images.square().flatten(1).sum(dim=1) / 2

    assert inputs.real is not None
    assert inputs.mix is not None
    fake = torch.ones_like(inputs.real)
    penalty = gradient_penalty(Square(), inputs.real, fake, inputs.mix, None)
    mix = inputs.mix[:, :, None, None]
    between = mix * inputs.real + (1 - mix) * fake
    torch.testing.assert_close(penalty, (between.flatten(1).norm(dim=1) - 1).square().mean())


def test_a_flat_discriminator_has_a_finite_penalty(inputs: Inputs) -> None:
    """The root's derivative at a gradient of zero is infinite; the penalty's must not be."""
    flat = Linear(0.0)
    assert inputs.real is not None
    assert inputs.mix is not None
    penalty = gradient_penalty(flat, inputs.real, inputs.real + 1, inputs.mix, None)
    (gradient,) = torch.autograd.grad(penalty, flat.weight)
    assert penalty.item() == pytest.approx(1, abs=1e-5)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("which", ["r1", "gp"])
def test_a_penaltys_weight_gradient_is_right(inputs: Inputs, which: str) -> None:
    torch.manual_seed(0)
    smooth = nn.Sequential(nn.Conv2d(1, 2, 4, stride=4), nn.Tanh(), nn.Conv2d(2, 1, 8), nn.Flatten(0)).double()
    weights = dict(smooth.named_parameters())
    reals, mix = inputs.real, inputs.mix
    assert reals is not None
    assert mix is not None

    def penalty(*values: Tensor) -> Tensor:
        def judge(images: Tensor, labels: Tensor | None = None, *, twice: bool = False) -> Tensor:
            logits: Tensor = torch.func.functional_call(smooth, dict(zip(weights, values, strict=True)), (images,))
            return logits

        if which == "gp":
            return gradient_penalty(judge, reals, -reals, mix, None)  # type: ignore[arg-type]  # called, never more
        images = reals.clone().requires_grad_()
        return squared_gradients(judge(images), images).mean()

    leaves = tuple(value.detach().clone().requires_grad_() for value in weights.values())
    assert torch.autograd.gradcheck(penalty, leaves)


@pytest.mark.parametrize("penalised", [True, False])
def test_the_discriminators_loss_is_logistic_plus_weighted_penalty(
    config: TrainConfig, networks: tuple[Generator, Discriminator], inputs: Inputs, penalised: bool
) -> None:
    generator, discriminator = networks
    fakes = generator(inputs.latents).detach()
    assert inputs.real is not None
    terms = DLoss(discriminator, config.replace({"r1_gamma": 2.5, "r1_interval": 4}))(inputs, fakes, penalised)
    logistic = F.softplus(-discriminator(inputs.real)).mean() + F.softplus(discriminator(fakes)).mean()
    penalty = _reference_r1(discriminator, inputs.real) if penalised else torch.zeros((), dtype=torch.float64)
    sign = discriminator(inputs.real).sign().mean()
    zero = torch.zeros((), dtype=torch.float64)
    torch.testing.assert_close(terms.means, torch.stack([logistic, penalty, zero, zero, sign]).detach())
    torch.testing.assert_close(terms.total, logistic + 5 * penalty)
    torch.testing.assert_close(terms.means[-1], sign)
    terms.total.backward()
    assert all(parameter.grad is not None for parameter in discriminator.parameters())
    assert all(parameter.grad is None for parameter in generator.parameters())


def test_wgan_gps_losses_are_the_papers(
    config: TrainConfig, networks: tuple[Generator, Discriminator], inputs: Inputs
) -> None:
    generator, discriminator = networks
    config = config.replace({**WGAN, "drift": 0.5})
    fakes = generator(inputs.latents).detach()
    assert inputs.real is not None
    assert inputs.mix is not None
    terms = DLoss(discriminator, config)(inputs, fakes, True)
    real_logits, fake_logits = discriminator(inputs.real), discriminator(fakes)
    wasserstein = fake_logits.mean() - real_logits.mean() + 0.5 * real_logits.square().mean()
    penalty = gradient_penalty(discriminator, inputs.real, fakes, inputs.mix, None)
    torch.testing.assert_close(terms.total, wasserstein + 10 * penalty)
    torch.testing.assert_close(GLoss(generator, discriminator, config)(inputs), -fake_logits.mean())


def test_the_relativistic_losses_compare_pairs(
    config: TrainConfig, networks: tuple[Generator, Discriminator], inputs: Inputs
) -> None:
    generator, discriminator = networks
    config = config.replace(RELATIVISTIC)
    fakes = generator(inputs.latents).detach()
    assert inputs.real is not None
    terms = DLoss(discriminator, config)(inputs, fakes, True)
    pairs = list(zip(discriminator(inputs.real).tolist(), discriminator(fakes).tolist(), strict=True))
    of_d = sum(math.log1p(math.exp(-(real - fake))) for real, fake in pairs) / 3
    of_g = sum(math.log1p(math.exp(-(fake - real))) for real, fake in pairs) / 3
    r1, r2 = _reference_r1(discriminator, inputs.real), _reference_r1(discriminator, fakes)
    assert dict(zip(MEANS, terms.means.tolist(), strict=True))["loss_d"] == pytest.approx(of_d)
    torch.testing.assert_close(terms.total, of_d + 0.2 * r1 + 0.3 * r2)
    assert GLoss(generator, discriminator, config)(inputs).item() == pytest.approx(of_g)


def test_the_discriminator_may_change_until_the_generators_fakes_are_made(
    config: TrainConfig, networks: tuple[Generator, Discriminator], inputs: Inputs
) -> None:
    generator, discriminator = networks
    order: list[str] = []

    def telling(module: torch.nn.Module, *_: object) -> None:
        order.append(type(module).__qualname__)

    def change() -> None:
        order.append("change")
        with torch.no_grad():
            for parameter in discriminator.parameters():
                parameter.add_(0.1)

    hooks = [network.register_forward_pre_hook(telling) for network in networks]
    late = GLoss(generator, discriminator, config)(inputs, change)
    assert order == ["Generator", "change", "Discriminator"]
    for hook in hooks:
        hook.remove()
    assert late == GLoss(generator, discriminator, config)(inputs), "as if it had been changed before"


def test_the_generators_loss_holds_and_moves_the_generator_alone(
    config: TrainConfig, networks: tuple[Generator, Discriminator], inputs: Inputs
) -> None:
    generator, discriminator = networks
    loss = GLoss(generator, discriminator, config.replace({"augment": "translation"}))
    assert {name.split(".")[0] for name, _ in loss.named_parameters()} == {"generator"}
    discriminator.requires_grad_(False)
    loss(inputs).backward()
    torch.testing.assert_close(loss(inputs), F.softplus(-discriminator(generator(inputs.latents))).mean())
    assert all(parameter.grad is not None for parameter in generator.parameters())
    assert all(parameter.grad is None for parameter in discriminator.parameters())


@pytest.mark.parametrize("name", ["dcgan-cifar10", "wgan-gp-cifar10", "r3gan-cifar10"])
def test_classes_reach_both_networks_through_either_loss(name: str) -> None:
    config = PRESETS[name].replace({"ngf": 8, "ndf": 8, "z_dim": 4, "num_classes": 3})
    generator, discriminator = build(config)
    drawn = torch.Generator().manual_seed(0)
    real, uniforms = torch.rand(6, 3, 32, 32, generator=drawn), torch.rand(6, UNIFORMS, generator=drawn)
    latents, mix = torch.randn(6, 4, generator=drawn), torch.rand(6, 1, generator=drawn)
    inputs = Inputs(latents, uniforms, real, uniforms, torch.tensor([0, 1, 2, 0, 1, 2]), mix)
    fake = generator(latents, inputs.labels).detach()
    for penalised in (True, False):
        DLoss(discriminator, config)(inputs, fake, penalised).total.backward()
        assert all(parameter.grad is not None for parameter in discriminator.parameters())
    other = inputs._replace(labels=torch.tensor([1, 2, 0, 1, 2, 0]))
    assert (
        DLoss(discriminator, config)(inputs, fake, False).total != DLoss(discriminator, config)(other, fake, False)[0]
    )
    assert GLoss(generator, discriminator, config)(inputs) != GLoss(generator, discriminator, config)(other)
