"""Every random number of a training step, as a pure function of (seed, purpose, number of the image in the run).

The generator is counter-based (Philox, Salmon et al. 2011) by the image's number, so there is no state to save.
"""

import enum
import functools
import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.phases.augment import GATES, UNIFORMS

_NUMBERS = 8  # Numbers per counter value: four words of 64 bits, two numbers each


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


@functools.lru_cache
def _key(seed: int, purpose: Purpose) -> NDArray[np.uint64]:
    key: NDArray[np.uint64] = np.random.SeedSequence([seed, purpose]).generate_state(2, np.uint64).astype(np.uint64)
    return key


def _draw(num: int, columns: int, *, seed: int, images: int, purpose: Purpose) -> NDArray[np.float32]:
    blocks = -(-columns // _NUMBERS)
    generator = np.random.Generator(np.random.Philox(key=_key(seed, purpose), counter=images * blocks))
    return np.ascontiguousarray(generator.random((num, blocks * _NUMBERS), dtype=np.float32)[:, :columns])


def latents(num: int, config: TrainConfig, *, images: int, purpose: Purpose, seed: int | None = None) -> Tensor:
    """Draws latents, standard normal or uniform in -1..1, [num, z_dim] float32 on the CPU, from image `images` on."""
    seed = config.seed if seed is None else seed
    if config.latents == "uniform":
        return uniforms(num, seed=seed, images=images, purpose=purpose, columns=config.z_dim) * 2 - 1
    # Two from a pair of uniform numbers (Box and Muller 1958); the first is kept above zero for the logarithm.
    half = -(-config.z_dim // 2)
    drawn = _draw(num, 2 * half, seed=seed, images=images, purpose=purpose)
    radius = np.sqrt(-2 * np.log(drawn[:, :half] + np.float32(2**-25)))
    angle = np.float32(2 * math.pi) * drawn[:, half:]
    normal = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return torch.from_numpy(np.ascontiguousarray(normal[:, : config.z_dim]))


def uniforms(num: int, *, seed: int, images: int, purpose: Purpose, columns: int = UNIFORMS) -> Tensor:
    """Draws uniform numbers in [0, 1), [num, columns] float32 on the CPU, from image `images` on."""
    return torch.from_numpy(_draw(num, columns, seed=seed, images=images, purpose=purpose))


def labels(num: int, num_classes: int, *, seed: int, images: int, purpose: Purpose) -> Tensor | None:
    """Draws equally likely classes, [num] int64 on the CPU; None without classes."""
    if not num_classes:
        return None
    return torch.from_numpy(_draw(num, 1, seed=seed, images=images, purpose=purpose)[:, 0] * num_classes).long()


class StepRng:
    """Random numbers of a worker's share of a step, by batch and name; only what is used is drawn."""

    def __init__(self, config: TrainConfig, mine: slice, first: int = 0) -> None:
        self._config, self._mine, self._first = config, mine, first
        self._share = mine.stop - mine.start

    def __call__(self, images: int) -> dict[str, Tensor]:
        """Returns the batch's numbers after `images`, each [share, columns] float32 on the CPU."""
        config = self._config
        drawn = {"latents": self._latents(images, Purpose.D_LATENTS)}
        drawn |= self._augmentation("real", images, Purpose.REAL_AUGMENT, Purpose.REAL_GATE)
        drawn |= self._augmentation("fake", images, Purpose.FAKE_AUGMENT, Purpose.FAKE_GATE)
        if config.gp_weight:
            drawn["mix"] = self._uniforms(images, Purpose.MIX, 1)
        drawn |= self._noise(images, Purpose.DEQUANTISE)
        if (images - self._first) % config.step_images == 0:
            drawn["g_latents"] = self._latents(images, Purpose.G_LATENTS)
            drawn |= self._augmentation("g", images, Purpose.G_AUGMENT, Purpose.G_GATE)
        return drawn

    def for_fresh(self, images: int) -> dict[str, Tensor]:
        """Returns `real` and `noise` for the generator's fresh real images."""
        drawn = self._augmentation("real", images, Purpose.G_REAL_AUGMENT, Purpose.G_REAL_GATE)
        return drawn | self._noise(images, Purpose.G_REAL_DEQUANTISE)

    def _noise(self, images: int, purpose: Purpose) -> dict[str, Tensor]:
        if not self._config.dequantise:
            return {}
        return {"noise": self._uniforms(images, purpose, math.prod(self._config.image_shape))}

    def _augmentation(self, name: str, images: int, purpose: Purpose, gate: Purpose) -> dict[str, Tensor]:
        if self._config.augment == "none":
            return {}
        drawn = {name: self._uniforms(images, purpose, UNIFORMS)}
        return {**drawn, f"{name}_gates": self._uniforms(images, gate, GATES)} if self._config.is_gated else drawn

    def _latents(self, images: int, purpose: Purpose) -> Tensor:
        return latents(self._share, self._config, images=images + self._mine.start, purpose=purpose)

    def _uniforms(self, images: int, purpose: Purpose, columns: int) -> Tensor:
        first, seed = images + self._mine.start, self._config.seed
        return uniforms(self._share, seed=seed, images=first, purpose=purpose, columns=columns)
