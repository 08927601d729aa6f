"""Every random number of a training step, as a pure function of (seed, images seen, purpose).

The whole batch is drawn on the CPU and each worker takes its slice: no state to save, and the same numbers on any
number of workers and any device. A batch's latents are a few kilobytes: drawing them everywhere costs nothing.
"""

import enum
import math

import numpy as np
import torch
from torch import Tensor

from trainer.config.train_config import TrainConfig
from trainer.steps.augment import GATES, UNIFORMS


class Purpose(enum.IntEnum):
    """What a draw is for; each has its own stream."""

    D_LATENTS = 0
    G_LATENTS = 1
    REAL_AUGMENT = 2
    FAKE_AUGMENT = 3
    G_AUGMENT = 4
    SAMPLES = 5
    METRIC = 6
    REAL_GATE = 7
    FAKE_GATE = 8
    G_GATE = 9
    MIX = 10
    SAMPLE_LABELS = 11
    METRIC_LABELS = 12
    GALLERY = 13
    G_REAL_AUGMENT = 14
    G_REAL_GATE = 15
    DEQUANTISE = 16
    G_REAL_DEQUANTISE = 17


def _generator(seed: int, images: int, purpose: Purpose) -> torch.Generator:
    state = np.random.SeedSequence([seed, images, purpose]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0]))


def latents(num: int, config: TrainConfig, *, images: int, purpose: Purpose, seed: int | None = None) -> Tensor:
    """Latents as the configuration has them, standard normal or uniform in -1..1, [num, z_dim] float32 on the CPU.
    `seed` None takes the run's.
    """
    generator = _generator(config.seed if seed is None else seed, images, purpose)
    if config.latents == "uniform":
        return torch.rand(num, config.z_dim, generator=generator) * 2 - 1
    return torch.randn(num, config.z_dim, generator=generator)


def uniforms(num: int, *, seed: int, images: int, purpose: Purpose, columns: int = UNIFORMS) -> Tensor:
    """Uniform numbers in [0, 1), for the augmentation unless told otherwise, [num, columns] float32 on the CPU."""
    return torch.rand(num, columns, generator=_generator(seed, images, purpose))


def labels(num: int, num_classes: int, *, seed: int, images: int, purpose: Purpose) -> Tensor | None:
    """Classes, all equally likely, [num] int64 on the CPU; None without classes."""
    if not num_classes:
        return None
    return torch.randint(num_classes, (num,), generator=_generator(seed, images, purpose))


def pixel_noise(numbers: range, size: int, *, seed: int, purpose: Purpose = Purpose.DEQUANTISE) -> Tensor:
    """Uniform numbers in [0, 1) for the pixels of images, [len(numbers), size] float32 on the CPU. `numbers` count the
    images that the run has shown: each has a draw of its own, so that a worker draws no more than its share.
    """
    return torch.cat([uniforms(1, seed=seed, images=each, purpose=purpose, columns=size) for each in numbers])


class FreshRng:
    """What the fresh real images of the generator's step need at random; see `StepRng`. Its names are the same."""

    def __init__(self, config: TrainConfig, mine: slice) -> None:
        self._rng = StepRng(config, mine)

    def __call__(self, images: int) -> dict[str, Tensor]:
        """As `StepRng`, `real` and `noise` alone."""
        drawn = self._rng.augmentation("real", images, Purpose.G_REAL_AUGMENT, Purpose.G_REAL_GATE)
        return drawn | self._rng.noise(images, Purpose.G_REAL_DEQUANTISE)


class StepRng:
    """All that a worker's share of the step's losses needs at random, by the batch that it goes with.

    Names are `latents`, `real`, `fake` and `mix` for the discriminator; `g_latents` and `g` for the generator, in the
    first batch of a step; `noise` where real images are dequantised; `real_gates` and so on where the augmentation
    adapts. Only what is used is drawn. A step begins after `first` images.
    """

    def __init__(self, config: TrainConfig, mine: slice, first: int = 0) -> None:
        self._config, self._mine, self._first = config, mine, first

    def __call__(self, images: int) -> dict[str, Tensor]:
        """Of the batch after so many images, each [share, columns] float32 on the CPU."""
        config = self._config
        drawn = {"latents": self._latents(images, Purpose.D_LATENTS)}
        drawn |= self.augmentation("real", images, Purpose.REAL_AUGMENT, Purpose.REAL_GATE)
        drawn |= self.augmentation("fake", images, Purpose.FAKE_AUGMENT, Purpose.FAKE_GATE)
        if config.gp_weight:
            drawn["mix"] = self._uniforms(images, Purpose.MIX, 1)
        drawn |= self.noise(images, Purpose.DEQUANTISE)
        if (images - self._first) % config.step_images == 0:
            drawn["g_latents"] = self._latents(images, Purpose.G_LATENTS)
            drawn |= self.augmentation("g", images, Purpose.G_AUGMENT, Purpose.G_GATE)
        return drawn

    def noise(self, images: int, purpose: Purpose) -> dict[str, Tensor]:
        """For the pixels of a batch's real images, where they are dequantised."""
        if not self._config.dequantise:
            return {}
        shown = range(images + self._mine.start, images + self._mine.stop)
        size = math.prod(self._config.image_shape)
        return {"noise": pixel_noise(shown, size, seed=self._config.seed, purpose=purpose)}

    def augmentation(self, name: str, images: int, purpose: Purpose, gate: Purpose) -> dict[str, Tensor]:
        """What one side's augmentation needs at random, under its name."""
        if self._config.augment == "none":
            return {}
        drawn = {name: self._uniforms(images, purpose, UNIFORMS)}
        return {**drawn, f"{name}_gates": self._uniforms(images, gate, GATES)} if self._config.is_gated else drawn

    def _latents(self, images: int, purpose: Purpose) -> Tensor:
        config = self._config
        return latents(config.batch_size, config, images=images, purpose=purpose)[self._mine]

    def _uniforms(self, images: int, purpose: Purpose, columns: int) -> Tensor:
        config = self._config
        drawn = uniforms(config.batch_size, seed=config.seed, images=images, purpose=purpose, columns=columns)
        return drawn[self._mine]
