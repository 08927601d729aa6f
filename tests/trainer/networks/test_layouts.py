"""Every convolution of a training step gets its feature maps in the layout of its network's weights."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.networks.factory import build
from gangway.trainer.networks.halves import FirstHalf, SecondHalf, feature_shape
from gangway.trainer.networks.precision import choose
from gangway.trainer.steps.local_training import local_train
from gangway.trainer.steps.state import TrainState

CPU = torch.device("cpu")
ALL = {name: (name, dict[str, object]()) for name, preset in PRESETS.items() if preset.frames == 1}
MORE: dict[str, tuple[str, dict[str, object]]] = {
    "progressive while fading in": ("progan-celeba128", {"stable_kimg": 1e-6, "fade_kimg": 0.05}),
    "adaptive augmentation": ("dcgan-cifar10", {"ada_target": 0.6, "ada_kimg": 1}),
    "bfloat16": ("r3gan-ffhq256", {"precision": "bf16"}),
}
"""Beside the presets as they are: what else changes which operations make or take feature maps."""


def shrunk(preset: str, changes: dict[str, object]) -> TrainConfig:
    """A preset's networks at 16x16 with few channels; growing ones at full size from the first step."""
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
    """NHWC, NCHW, or either where the strides do not tell."""
    if maps.dim() != 4 or maps.shape[1] == 1 or maps.shape[2] * maps.shape[3] == 1:
        return "either"
    return "NHWC" if maps.is_contiguous(memory_format=torch.channels_last) else "NCHW"


@pytest.mark.parametrize(("preset", "changes"), [*ALL.values(), *MORE.values()], ids=[*ALL, *MORE])
def test_no_convolution_gets_maps_in_another_layout_than_its_network(preset: str, changes: dict[str, object]) -> None:
    found = layouts(shrunk(preset, changes))
    assert found["NHWC"] > 0
    assert found["NCHW"] == 0, dict(found)


def test_the_second_half_of_a_generator_keeps_the_layout() -> None:
    """It is given rows, which have lost it."""
    config = shrunk("r3gan-cifar10", {"num_classes": 0})
    generator, latents = build(config)[0], torch.randn(2, config.z_dim)
    shape = feature_shape(build(config)[0].to("meta"), config.z_dim, 0)
    with torch.no_grad(), _Convolutions() as convolutions:
        images = SecondHalf(generator, shape)(FirstHalf(generator)(latents))
    assert convolutions.found["NHWC"] > 0
    assert convolutions.found["NCHW"] == 0
    torch.testing.assert_close(images, generator(latents))
