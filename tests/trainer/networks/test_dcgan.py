"""DCGAN: shapes at both resolutions, equal starts from equal seeds, and independence of images in a batch."""

import pytest
import torch

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.networks.factory import build


@pytest.mark.parametrize("resolution", [32, 64])
@pytest.mark.parametrize("channels", [1, 3])
def test_shapes(tiny_config: TrainConfig, resolution: int, channels: int) -> None:
    config = tiny_config.replace({"resolution": resolution, "channels": channels, "augment": "none"})
    generator, discriminator = build(config)
    images = generator(torch.randn(5, config.z_dim))
    assert images.shape == (5, channels, resolution, resolution)
    assert images.abs().max() <= 1
    assert discriminator(images).shape == (5,)


def test_weights_depend_on_the_seed_alone(tiny_config: TrainConfig) -> None:
    torch.manual_seed(7)
    first, _ = build(tiny_config)
    state = torch.get_rng_state()
    second, _ = build(tiny_config.replace({"channels_last": False}))
    assert torch.equal(state, torch.get_rng_state())
    other, _ = build(tiny_config.replace({"seed": 1}))
    weights = [next(network.parameters()) for network in (first, second, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_an_image_does_not_depend_on_its_neighbours(tiny_config: TrainConfig) -> None:
    generator, discriminator = build(tiny_config)
    latents = torch.randn(6, tiny_config.z_dim)
    whole = discriminator(generator(latents))
    parts = torch.cat([discriminator(generator(part)) for part in torch.tensor_split(latents, 3)])
    torch.testing.assert_close(whole, parts)


def test_activations_keep_their_scale_through_a_wide_generator(tiny_config: TrainConfig) -> None:
    generator, discriminator = build(tiny_config.replace({"ngf": 32, "ndf": 32, "z_dim": 64}))
    images = generator(torch.randn(64, 64))
    assert 0.2 < images.std() < 0.9
    assert 0.1 < discriminator(images).std() < 10
    assert not list(generator.buffers())
    assert not list(discriminator.buffers())
