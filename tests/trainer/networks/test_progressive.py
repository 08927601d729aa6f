"""Growing networks: sizes in each phase, a fade without a jump, and parameters that wait for their time."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gangway.trainer.config.network_size import size_at
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.networks.base import Discriminator, Generator
from gangway.trainer.networks.factory import build
from gangway.trainer.networks.progressive import EqualConv, with_group_deviation
from gangway.trainer.networks.progressive_schedule import ProgressiveStage, shrink

SMALL = {"ngf": 4, "ndf": 4, "z_dim": 5, "resolution": 16}


@pytest.fixture(params=[1, 8], ids=["images", "clips"])
def config(request: pytest.FixtureRequest) -> TrainConfig:
    frames = request.param
    return PRESETS["progan-celeba128" if frames == 1 else "progan-video-ucf101"].replace({**SMALL, "frames": frames})


@pytest.fixture
def networks(config: TrainConfig) -> tuple[Generator, Discriminator]:
    return build(config)


def _enter(networks: tuple[Generator, Discriminator], resolution: int, fade: float | None = None) -> ProgressiveStage:
    phase = ProgressiveStage(resolution, None if fade is None else torch.tensor(fade))
    for network in networks:
        network.enter(phase)
    return phase


@pytest.fixture
def latents() -> Tensor:
    return torch.randn(2, 5, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("resolution", [4, 8, 16])
@pytest.mark.parametrize("fade", [None, 0.3])
def test_images_have_the_phases_size_and_in_evaluation_the_full_one(
    config: TrainConfig, networks: tuple[Generator, Discriminator], latents: Tensor, resolution: int, fade: float | None
) -> None:
    phase = _enter(networks, resolution, fade if resolution > 4 else None)
    generator, discriminator = networks
    images = generator(latents)
    assert tuple(images.shape[2:]) == size_at(resolution, config.frames)
    assert shrink(torch.zeros(2, *config.image_shape), phase).shape == images.shape
    assert tuple(discriminator(images).shape) == (2,)
    shown = generator.eval()(latents)
    assert tuple(shown.shape[1:]) == config.image_shape
    torch.testing.assert_close(shrink(shown, ProgressiveStage(resolution)), images)


def test_a_new_resolution_begins_and_ends_its_fade_without_a_jump(
    networks: tuple[Generator, Discriminator], latents: Tensor
) -> None:
    generator, discriminator = networks
    shown = {}
    for name, resolution, fade in (("old", 8, None), ("begin", 16, 0.0), ("end", 16, 1.0), ("new", 16, None)):
        _enter(networks, resolution, fade)
        generator.eval()
        images = generator(latents)
        generator.train()
        shown[name] = images, discriminator(generator(latents))
    for early, late in (("old", "begin"), ("end", "new")):
        for one, other in zip(shown[early], shown[late], strict=True):
            torch.testing.assert_close(one, other)
    assert not torch.allclose(shown["old"][0], shown["new"][0])


def test_idle_parameters_are_those_without_a_gradient(
    networks: tuple[Generator, Discriminator], latents: Tensor
) -> None:
    generator, discriminator = networks
    for resolution, fade in ((4, None), (8, 0.5), (8, None), (16, 0.5), (16, None)):
        _enter(networks, resolution, fade)
        for network in networks:
            network.zero_grad()
        torch.autograd.backward(discriminator(generator(latents)).sum())
        for network in networks:
            without = {id(parameter) for parameter in network.parameters() if parameter.grad is None}
            assert without == {id(parameter) for parameter in network.idle()}, (resolution, fade)


def test_idle_parameters_are_left_alone_by_the_optimiser(
    networks: tuple[Generator, Discriminator], latents: Tensor
) -> None:
    generator, _ = networks
    _enter(networks, 4)
    optimiser = torch.optim.Adam(generator.parameters(), lr=0.1)
    for parameter in generator.parameters():
        parameter.grad = torch.zeros_like(parameter)
    generator.drop_idle_gradients()
    optimiser.step()
    assert {id(parameter) for parameter in generator.idle()}.isdisjoint(map(id, optimiser.state))
    assert len(optimiser.state) + len(generator.idle()) == len(list(generator.parameters()))


@pytest.mark.parametrize(("dims", "plain"), [(2, nn.Conv2d), (3, nn.Conv3d)])
def test_an_equalised_convolution_is_a_convolution_of_scaled_weights(
    dims: int, plain: type[nn.Conv2d] | type[nn.Conv3d]
) -> None:
    torch.manual_seed(0)
    equal, reference = EqualConv(16, 8, 3, dims), plain(16, 8, 3, padding=1)
    assert reference.bias is not None
    with torch.no_grad():
        reference.weight.copy_(equal.weight * (2 / (16 * 3**dims)) ** 0.5)
        reference.bias.copy_(equal.bias)
    features = torch.randn(2, 16, *[5] * dims)
    torch.testing.assert_close(equal(features), reference(features))
    assert 0.9 < equal.weight.std() < 1.1


def test_widths_are_the_papers() -> None:
    """512 channels up to 32x32, then half as many with each doubling: 128 at 128x128; 23 million parameters each."""
    generator, discriminator = build(PRESETS["progan-celeba128"])
    convs = [module for module in generator.modules() if isinstance(module, EqualConv) and module.weight.shape[-1] == 3]
    assert [conv.weight.shape[0] for conv in convs] == [512] * 7 + [256] * 2 + [128] * 2
    sizes = [sum(parameter.numel() for parameter in network.parameters()) for network in (generator, discriminator)]
    assert all(22e6 < size < 24e6 for size in sizes)


@pytest.mark.parametrize("shape", [(8, 3, 4, 4), (8, 3, 2, 4, 4)], ids=["images", "clips"])
def test_the_group_deviation_by_hand(shape: tuple[int, ...]) -> None:
    features = np.random.default_rng(0).normal(size=shape)
    found = with_group_deviation(torch.from_numpy(features), 4).numpy()
    assert found.shape == (8, 4, *shape[2:])
    assert np.array_equal(found[:, :3], features)
    for first in (0, 4):
        deviation = features[first : first + 4].std(axis=0).mean()
        np.testing.assert_allclose(found[first : first + 4, 3], deviation, rtol=1e-6)


def test_a_group_of_equal_images_has_a_deviation_and_a_gradient() -> None:
    features = torch.ones(4, 2, 4, 4, requires_grad=True)
    with_group_deviation(features, 4)[:, 2].sum().backward()  # type: ignore[no-untyped-call]  # torch's has no annotations
    assert features.grad is not None
    assert torch.isfinite(features.grad).all()


def test_fewer_images_than_a_group_are_one() -> None:
    features = torch.randn(2, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(with_group_deviation(features, 4), with_group_deviation(features, 2))


def test_a_discriminator_without_groups_is_the_one_of_runs_from_before_them(config: TrainConfig) -> None:
    with_groups, without = (build(config.replace({"minibatch_std": size}))[1] for size in (4, 0))
    one, other = ({name: each.shape for name, each in net.named_parameters()} for net in (with_groups, without))
    assert {name for name in one if one[name] != other[name]} == {"blocks.4.0.weight"}
    assert one["blocks.4.0.weight"][1] == other["blocks.4.0.weight"][1] + 1
