"""What holds for every family's networks: shapes, equal starts, no buffers, and images that do not know each other."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.networks.factory import build
from gangway.trainer.networks.precision import choose
from gangway.trainer.steps.pipeline import FirstHalf, SecondHalf, feature_shape
from gangway.trainer.steps.state import TrainState
from tests.trainer.local_training import local_train

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


CPU = torch.device("cpu")
ALL = {name: (name, dict[str, object]()) for name, preset in PRESETS.items() if preset.frames == 1}
MORE: dict[str, tuple[str, dict[str, object]]] = {
    "progressive while fading in": ("progan-celeba128", {"stable_kimg": 1e-6, "fade_kimg": 0.05}),
    "adaptive augmentation": ("dcgan-cifar10", {"ada_target": 0.6, "ada_kimg": 1}),
    "bfloat16": ("r3gan-ffhq256", {"precision": "bf16"}),
}
"""Beside the presets as they are: what else changes which operations make or take feature maps."""


def shrunk(preset: str, changes: dict[str, object]) -> TrainConfig:
    config = PRESETS[preset]
    width = 32 if config.architecture == "r3gan" else 4
    small = {"resolution": 16, "ngf": width, "ndf": width, "batch_size": 4, "batch_gpu": 0, "precision": "fp32"}
    small |= {"schedules": {}, "segments": (), "num_classes": min(config.num_classes, 3), "kimg": 0.1}
    small |= {"minibatch_std": 2 if config.minibatch_std else 0, "preset": "small"}
    grown = {"stable_kimg": 1e-6, "fade_kimg": 1e-6} if config.architecture == "progressive" else {}
    return config.replace({**small, **grown, **changes})


class _Convolutions(TorchFunctionMode):
    """Counts convolutions by the layout of the maps that they are called with: those that networks call, and not those
    of which autograd makes their gradients.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (F.conv2d, F.conv_transpose2d):
            self.found[_layout(args[0])] += 1
        return func(*args, **(kwargs or {}))


def layouts(config: TrainConfig) -> Counter[str]:
    """How many convolutions of a step with its penalties were given maps of which layout."""
    state = TrainState.create(config, CPU)
    state.use(choose(config.precision, CPU))
    pixels = np.random.default_rng(0).integers(0, 256, (8, *config.image_shape), dtype=np.uint8)
    labels = np.arange(8) % config.num_labels if config.num_labels else None
    with _Convolutions() as convolutions:
        local_train(state, pixels, labels, steps=2 if config.architecture == "progressive" else 1)
    found: Counter[str] = convolutions.found
    return found


def _layout(maps: torch.Tensor) -> str:
    if maps.dim() != 4 or maps.shape[1] == 1 or maps.shape[2] * maps.shape[3] == 1:
        return "either"
    return "NHWC" if maps.is_contiguous(memory_format=torch.channels_last) else "NCHW"


@pytest.mark.parametrize(("preset", "changes"), [*ALL.values(), *MORE.values()], ids=[*ALL, *MORE])
def test_no_convolution_gets_maps_in_another_layout_than_its_network(preset: str, changes: dict[str, object]) -> None:
    found = layouts(shrunk(preset, changes))
    assert found["NHWC"] > 0
    assert found["NCHW"] == 0, dict(found)


def test_the_second_half_of_a_generator_keeps_the_layout() -> None:
    config = shrunk("r3gan-cifar10", {"num_classes": 0})
    generator, latents = build(config)[0], torch.randn(2, config.z_dim)
    shape = feature_shape(build(config)[0].to("meta"), config.z_dim, 0)
    with torch.no_grad(), _Convolutions() as convolutions:
        images = SecondHalf(generator, shape)(FirstHalf(generator)(latents))
    assert convolutions.found["NHWC"] > 0
    assert convolutions.found["NCHW"] == 0
    torch.testing.assert_close(images, generator(latents))
