"""Every random number of a training step, as a pure function of (seed, images seen, purpose).

The whole batch is drawn on the CPU and each worker takes its slice. So no generator has a state to save, a resumed
run continues with exactly the numbers it would have drawn, and those numbers depend neither on the number of
workers nor on the device. A batch's latents are a few kilobytes: drawing them everywhere costs nothing.

Not here: the order of the images, which is trainer.data.sampler.
"""

import enum

import numpy as np
import torch
from torch import Tensor

from trainer.augment import UNIFORMS

__all__ = ["Purpose", "labels", "latents", "uniforms"]


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


def _generator(seed: int, images: int, purpose: Purpose) -> torch.Generator:
    state = np.random.SeedSequence([seed, images, purpose]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0]))


def latents(num: int, z_dim: int, *, seed: int, images: int, purpose: Purpose) -> Tensor:
    """Standard normal latents, [num, z_dim] float32 on the CPU."""
    return torch.randn(num, z_dim, generator=_generator(seed, images, purpose))


def uniforms(num: int, *, seed: int, images: int, purpose: Purpose, columns: int = UNIFORMS) -> Tensor:
    """Uniform numbers in [0, 1), for the augmentation unless told otherwise, [num, columns] float32 on the CPU."""
    return torch.rand(num, columns, generator=_generator(seed, images, purpose))


def labels(num: int, num_classes: int, *, seed: int, images: int, purpose: Purpose) -> Tensor | None:
    """Classes, all equally likely, [num] int64 on the CPU; None without classes."""
    if not num_classes:
        return None
    return torch.randint(num_classes, (num,), generator=_generator(seed, images, purpose))
