"""What holds for every family's networks: shapes, equal starts, no buffers, and images that do not know each other."""

from pathlib import Path

import pytest
import torch

from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.networks.factory import build

Families = dict[str, tuple[TrainConfig, Path]]

every_family = pytest.mark.parametrize("name", ["dcgan", "resnet", "r3gan", "progressive", "video"])
SIZES = [
    ("dcgan-digits", {"ngf": 1, "ndf": 1}),
    ("wgan-gp-cifar10", {"ngf": 2, "ndf": 2}),
    ("r3gan-cifar10", {"ngf": 64, "ndf": 64, "num_classes": 0}),
    ("progan-celeba128", {"ngf": 1, "ndf": 1}),
    ("progan-video-ucf101", {"ngf": 1, "ndf": 1, "frames": 2}),
]


def _labels(config: TrainConfig, num: int) -> torch.Tensor | None:
    return torch.arange(num) % config.num_classes if config.num_classes else None


@pytest.mark.parametrize("resolution", [16, 32, 64, 128, 256])
@pytest.mark.parametrize(("preset", "more"), SIZES, ids=[preset for preset, _ in SIZES])
def test_shapes_at_every_resolution(preset: str, more: dict[str, object], resolution: int) -> None:
    """On the meta device, where nothing is computed."""
    config = PRESETS[preset].replace({**more, "resolution": resolution, "z_dim": 3})
    generator, discriminator = (network.to("meta") for network in build(config))
    images = generator(torch.empty(2, 3, device="meta"))
    assert tuple(images.shape) == (2, *config.image_shape)
    assert tuple(discriminator(images).shape) == (2,)


@every_family
def test_weights_depend_on_the_seed_alone(name: str, families: Families) -> None:
    config, _ = families[name]
    torch.manual_seed(7)
    first = build(config)
    state = torch.get_rng_state()
    second, other = build(config.replace({"channels_last": False})), build(config.replace({"seed": 1}))
    assert torch.equal(state, torch.get_rng_state())
    for network, same, different in zip(first, second, other, strict=True):
        pairs = [list(zip(network.parameters(), each.parameters(), strict=True)) for each in (same, different)]
        assert all(torch.equal(mine, theirs) for mine, theirs in pairs[0])
        assert not all(torch.equal(mine, theirs) for mine, theirs in pairs[1])


@every_family
def test_an_image_does_not_depend_on_neighbours_outside_its_group(name: str, families: Families) -> None:
    config, _ = families[name]
    generator, discriminator = (network.double() for network in build(config))
    assert not [*generator.buffers(), *discriminator.buffers()]
    latents = torch.randn(6, config.z_dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = _labels(config, 6)
    alone = config.group
    whole = discriminator(generator(latents, labels), labels)
    parts = []
    for part in (slice(0, alone), slice(alone, 6)):
        here = None if labels is None else labels[part]
        parts.append(discriminator(generator(latents[part], here), here))
    torch.testing.assert_close(whole, torch.cat(parts))


@every_family
def test_the_first_images_have_a_scale_like_the_real_ones(name: str, families: Families) -> None:
    """Neither flat nor saturated, and logits that a loss can tell apart."""
    config, _ = families[name]
    generator, discriminator = build(config)
    latents = torch.randn(64, config.z_dim, generator=torch.Generator().manual_seed(0))
    labels = _labels(config, 64)
    images = generator(latents, labels)
    assert 0.2 < images.std() < 1.5
    assert 1e-3 < discriminator(images, labels).std() < 10


@every_family
@pytest.mark.parametrize("num_classes", [0, 3])
def test_a_class_changes_the_image_and_the_verdict(name: str, num_classes: int, families: Families) -> None:
    config = families[name][0].replace({"num_classes": num_classes})
    generator, discriminator = build(config)
    latents = torch.randn(2, config.z_dim, generator=torch.Generator().manual_seed(0))
    one, other = torch.tensor([0, 1]), torch.tensor([1, 2])
    images = generator(latents, one)
    changed = (
        not torch.equal(images, generator(latents, other)),
        discriminator(images, one) != discriminator(images, other),
    )
    assert changed[0] == bool(changed[1].all()) == bool(num_classes)
