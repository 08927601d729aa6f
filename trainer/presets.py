"""Configurations that run as they are, each with its source and with what departs from it.

A paper's set-up is its networks' widths, batch, losses, optimiser and length; numbers that have no place in a
TrainConfig (schedules of a step size, say) are named as departures. What reproduces a paper's set-up has not thereby
reached the paper's score: scores of runs are in their run.json. Does not import torch.
"""

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from trainer.config import TrainConfig
from trainer.errors import TrainerError, nearest

__all__ = ["CATALOGUE", "PRESETS", "Preset", "preset", "presets_json", "presets_table"]


class Preset(NamedTuple):
    """A configuration and where its values come from.

    Attributes:
        config: the values.
        summary: one line for a person who chooses.
        source: paper and table.
        departures: what is otherwise than in the source, and why.
    """

    config: TrainConfig
    summary: str
    source: str
    departures: str


_DCGAN = "Radford et al. 2016, arXiv:1511.06434, section 4"
_DCGAN_DEPARTURES = (
    "PixelNorm in G and no norm in D instead of BatchNorm, non-saturating loss with lazy R1, EMA, DiffAugment; "
    "He's initialisation"
)

_CATALOGUE = (
    Preset(
        # Chosen on 2 CPU cores by FD-ENL0: R1 of 0.1 and 1e-3 did better than 0.3, 1 and 2e-4 at equal kimg.
        TrainConfig(
            preset="dcgan-digits",
            dataset="digits",
            resolution=32,
            channels=1,
            kimg=150,
            lr_g=1e-3,
            lr_d=1e-3,
            r1_gamma=0.1,
            ema_kimg=5,
            augment="translation",
        ),
        "handwritten digits in minutes on a CPU, no download",
        f"{_DCGAN}; values chosen here by FD-ENL0",
        _DCGAN_DEPARTURES,
    ),
    Preset(
        TrainConfig(
            preset="dcgan-cifar10",
            dataset="cifar10",
            resolution=32,
            channels=3,
            z_dim=100,
            ngf=64,
            ndf=64,
            batch_size=128,
            kimg=12_800,
            beta2=0.999,
            r1_gamma=0.1,
            ema_kimg=20,
            augment="color,translation,cutout",
            checkpoint_kimg=200,
            sample_kimg=200,
            stats_kimg=5,
            metrics_samples=10_000,
        ),
        "the small classic on CIFAR-10",
        _DCGAN,
        f"{_DCGAN_DEPARTURES}; 32x32, 100,000 steps",
    ),
    Preset(
        TrainConfig(
            preset="dcgan-celeba64",
            dataset="celeba",
            resolution=64,
            channels=3,
            z_dim=100,
            ngf=64,
            ndf=64,
            batch_size=128,
            kimg=10_000,
            beta2=0.999,
            r1_gamma=1.0,
            ema_kimg=20,
            checkpoint_kimg=200,
            sample_kimg=200,
            stats_kimg=5,
            metrics_samples=10_000,
        ),
        "faces at 64x64, the size most papers print",
        _DCGAN,
        f"{_DCGAN_DEPARTURES.replace(', DiffAugment', '')}; CelebA instead of the paper's own crawl of faces",
    ),
    Preset(
        TrainConfig(
            preset="wgan-gp-cifar10",
            dataset="cifar10",
            resolution=32,
            channels=3,
            architecture="resnet",
            loss="wgan-gp",
            z_dim=128,
            ngf=128,
            ndf=128,
            batch_size=64,
            d_steps=5,
            kimg=32_000,
            beta1=0.0,
            beta2=0.9,
            r1_gamma=0.0,
            r1_interval=1,
            gp_weight=10.0,
            ema_kimg=20,
            checkpoint_kimg=320,
            sample_kimg=320,
            stats_kimg=6.4,
            metrics_samples=10_000,
        ),
        "Wasserstein critic, five of its steps for one of G's",
        "Gulrajani et al. 2017, arXiv:1704.00028, appendix F and table 3",
        "PixelNorm in G instead of BatchNorm; constant step size instead of a linear decay to 0; G's batch as large as "
        "D's instead of twice it; EMA",
    ),
    Preset(
        TrainConfig(
            preset="r3gan-cifar10",
            dataset="cifar10",
            resolution=32,
            channels=3,
            num_classes=10,
            architecture="r3gan",
            loss="relativistic",
            z_dim=64,
            ngf=768,
            ndf=768,
            batch_size=512,
            kimg=100_000,
            beta1=0.0,
            beta2=0.99,
            r1_gamma=0.05,
            r2_gamma=0.05,
            r1_interval=1,
            ema_kimg=5000,
            augment="color,translation,cutout",
            checkpoint_kimg=1000,
            sample_kimg=500,
            stats_kimg=10.24,
            metrics_samples=50_000,
        ),
        "a modern residual GAN with class labels, for data-centre GPUs",
        "Huang et al. 2024, arXiv:2501.05441, sections 3 and 4, appendix on hyperparameters",
        "constant step size, penalty weight and beta2 instead of schedules; DiffAugment instead of StyleGAN2's "
        "augmentation at a rising rate; number of images chosen here",
    ),
    Preset(
        TrainConfig(
            preset="progan-celeba128",
            dataset="celeba",
            resolution=128,
            channels=3,
            architecture="progressive",
            loss="wgan-gp",
            z_dim=512,
            ngf=128,
            ndf=128,
            batch_size=64,
            kimg=12_000,
            lr_g=1e-3,
            lr_d=1e-3,
            beta1=0.0,
            beta2=0.99,
            r1_gamma=0.0,
            r1_interval=1,
            gp_weight=10.0,
            drift=1e-3,
            ema_kimg=20,
            stable_kimg=600,
            fade_kimg=600,
            checkpoint_kimg=200,
            sample_kimg=200,
            stats_kimg=5,
            metrics_samples=10_000,
        ),
        "faces that grow from 4x4 to 128x128",
        "Karras et al. 2018, arXiv:1710.10196, section 2 and appendix A",
        "no minibatch statistics (a step must not depend on how its batch is spread); one batch size at every "
        "resolution, since the global batch is fixed; moments kept when the networks grow; CelebA at 128x128",
    ),
    Preset(
        TrainConfig(
            preset="progan-video-ucf101",
            dataset="ucf101",
            resolution=64,
            channels=3,
            frames=16,
            architecture="progressive",
            loss="wgan-gp",
            z_dim=128,
            ngf=64,
            ndf=64,
            batch_size=32,
            kimg=6000,
            lr_g=1e-3,
            lr_d=1e-3,
            beta1=0.0,
            beta2=0.99,
            r1_gamma=0.0,
            r1_interval=1,
            gp_weight=10.0,
            drift=1e-3,
            ema_kimg=10,
            stable_kimg=300,
            fade_kimg=300,
            checkpoint_kimg=100,
            sample_kimg=100,
            stats_kimg=3.2,
            metrics_samples=2048,
        ),
        "clips of 16 frames that grow from 4x4x4 to 16x64x64",
        "Acharya et al. 2018, arXiv:1810.02419, section 3, after Karras et al. 2018, arXiv:1710.10196",
        "WGAN-GP instead of the sliced Wasserstein loss, so nothing to compare its score with; 64x64, as TGAN "
        "(arXiv:1611.06624); no minibatch statistics; one batch size at every resolution",
    ),
)

CATALOGUE: Mapping[str, Preset] = MappingProxyType({entry.config.preset: entry for entry in _CATALOGUE})
"""Every preset with its source, by name."""

PRESETS: Mapping[str, TrainConfig] = MappingProxyType({name: entry.config for name, entry in CATALOGUE.items()})
"""Configurations that run as they are, by name."""


def preset(name: str) -> TrainConfig:
    """The preset of that name.

    Raises:
        TrainerError: there is none.
    """
    if name not in PRESETS:
        near = nearest(name, PRESETS)
        raise TrainerError(
            place="--preset",
            problem="no such preset",
            value=name,
            allowed=", ".join(PRESETS),
            fix=f"--preset {near}" if near else "`python -m trainer presets` lists them with their sources",
        )
    return PRESETS[name]


def presets_table() -> str:
    """Name, purpose, data, size and source of every preset, one a line."""
    rows = [("PRESET", "WHAT", "DATA", "SIZE", "SOURCE")]
    for name, entry in CATALOGUE.items():
        shape = "x".join(map(str, entry.config.image_shape))
        rows.append((name, entry.summary, entry.config.dataset, shape, entry.source))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "".join(f"{_aligned(row[:4], widths)}  {row[4]}\n" for row in rows)


def _aligned(cells: Iterable[str], widths: Iterable[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))


def presets_json() -> str:
    """Every preset with all its values, as indented JSON: a list in the table's order."""
    entries = [{**entry._asdict(), "config": entry.config.model_dump(mode="json")} for entry in CATALOGUE.values()]
    return json.dumps(entries, indent=2) + "\n"
