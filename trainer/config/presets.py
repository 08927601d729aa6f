"""Presets: runnable configurations, each with its source and departures from it. No torch.

A preset has its published values (`gangway.trainer.config.sources`), except those that it departs from. Anything that a
TrainConfig cannot hold is listed as a departure. A preset does not imply the paper's score: scores are in each run's
run.json.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from gangway.trainer.config.sources import PUBLISHED, Published, departures
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.schedules import Ramp, Schedules
from gangway.trainer.core.errors import TrainerError, nearest
from gangway.trainer.core.host import program

_DCGAN = "Radford et al. 2016, arXiv:1511.06434, section 4"
_EVERY_200_KIMG = {"checkpoint_kimg": 200, "sample_kimg": 200, "stats_kimg": 5}


def _config(name: str, **own: object) -> TrainConfig:
    """The preset's published values, except those that it departs from, and its `own`."""
    values: dict[str, object] = {"preset": name, "channels": 3}
    schedules = dict[str, object]()
    for field, published in PUBLISHED[name].items():
        if not published.instead:
            of_schedule = field.removeprefix("schedules.")
            (values if of_schedule == field else schedules)[of_schedule] = published.value
    return TrainConfig.model_validate({**values, "schedules": schedules, **own})


def _r3gan(name: str, dataset: str, kimg: float = 100_000, stats_kimg: float = 10.24, **own: object) -> TrainConfig:
    policy, cadence = "color,translation,cutout", {"checkpoint_kimg": 1000, "sample_kimg": 500}
    return _config(name, dataset=dataset, kimg=kimg, augment=policy, **cadence, stats_kimg=stats_kimg, **own)


_R3GAN_DEPARTURES = (
    "R1 and R2 are gradients at the augmented images, which the discriminator sees; the authors' code takes them at "
    "the images before the augmentation",
)


_SECOND_HALF = Ramp(start=2e-4, to=2e-6, after_kimg=2.5, over_kimg=2.5, then="hold")
"""CycleGAN's schedule: constant, then linear down to a hundredth."""


class Preset(NamedTuple):
    """A configuration with its source (paper and table), departures from it with reasons, and `published` values."""

    config: TrainConfig
    summary: str
    source: str
    departures: tuple[str, ...]
    published: Mapping[str, Published] = MappingProxyType({})


_DCGAN_NETWORKS = (
    "PixelNorm in G and no norm in D instead of BatchNorm; He's initialisation instead of a deviation of 0.02; kernels "
    "of 4x4 instead of 5x5"
)
_DCGAN_DEPARTURES = (
    _DCGAN_NETWORKS,
    "non-saturating loss with R1 (arXiv:1801.04406), and an averaged generator",
    "R1 every 16th step, as StyleGAN2's (arXiv:1912.04958), but in the sum with that step's loss: Adam still makes 16 "
    "updates in 16 steps. StyleGAN2 gives the penalty an update of its own, 17 in 16 steps, and for that scales the "
    "step size by c = 16/17 and raises both decays to the power c; there is nothing to scale for here",
)
_FACES_DEPARTURES = (
    "CelebA instead of the paper's own crawl of faces",
    "no weight decay: the authors' code has 1e-5, and the paper none",
    "both networks learn from each batch, as the paper's algorithm has it; in the authors' code they take turns",
)
_AUGMENTED = (
    "DiffAugment (arXiv:2006.10738); its translation repeats the border's pixels where the paper pads with zero",
    "R1 is the gradient at the augmented images, which the discriminator sees; StyleGAN2-ADA's code takes it at the "
    "images before the augmentation",
)

_GROUPS = (
    "the minibatch deviation is of four images in a row, which stay on one worker, and of reals and fakes apart; the "
    "authors' code takes every fourth part's images together"
)

_CATALOGUE = (
    Preset(
        # Chosen on 2 CPU cores: step sizes of 1e-3 rather than 2e-4 by FD-ENL0; R1 of 0.3 rather than 0.1 because more
        # samples are read as digits (82 against 78 % after 150 kimg, while FD-ENL0 is 33 against 29).
        _config(
            "dcgan-digits",
            dataset="digits",
            resolution=32,
            channels=1,
            lr_g=1e-3,
            lr_d=1e-3,
            ema_kimg=5,
            augment="translation",
        ),
        "handwritten digits in minutes on a CPU, no download",
        f"{_DCGAN}; values chosen here by FD-ENL0",
        (*_DCGAN_DEPARTURES, *_AUGMENTED),
    ),
    Preset(
        # Chosen on 2 CPU cores by its results on 200 drawn shapes at 32x32 (docs/own-images.md).
        _config(
            "few-images",
            dataset="folder",
            ema_kimg=5,
            augment="color,translation,cutout",
            ada_kimg=50,
            metrics_samples=1000,
        ),
        "a folder of a few hundred pictures of your own, at their size",
        "Karras et al. 2020, arXiv:2006.06676, section 3; networks after arXiv:1511.06434",
        (
            *_DCGAN_DEPARTURES,
            *_AUGMENTED,
            "the probability that each part is applied with adapts as in the paper (r_t of 0.6, every 4 steps), and "
            "can go from 0 to 1 in 50 thousand images, a sixth of this run, instead of in 500 thousand",
            "resolution and channels are those of the prepared pictures unless a flag says otherwise",
        ),
    ),
    Preset(
        _config(
            "dcgan-cifar10",
            dataset="cifar10",
            resolution=32,
            ngf=64,
            ndf=64,
            r1_gamma=0.1,
            ema_kimg=20,
            augment="color,translation,cutout",
            **_EVERY_200_KIMG,
        ),
        "the small classic on CIFAR-10",
        _DCGAN,
        (*_DCGAN_DEPARTURES, *_AUGMENTED),
    ),
    Preset(
        _config("dcgan-celeba64", dataset="celeba", kimg=10_000, ema_kimg=20, **_EVERY_200_KIMG),
        "faces at 64x64, the size most papers print",
        _DCGAN,
        (*_DCGAN_DEPARTURES, *_FACES_DEPARTURES),
    ),
    Preset(
        _config("dcgan-celeba64-paper", dataset="celeba", kimg=4375, **_EVERY_200_KIMG),
        "the same as the paper has it: no penalty, no averaging",
        _DCGAN,
        (_DCGAN_NETWORKS, *_FACES_DEPARTURES),
    ),
    Preset(
        _config(
            "wgan-gp-cifar10", dataset="cifar10", ema_kimg=20, checkpoint_kimg=320, sample_kimg=320, stats_kimg=6.4
        ),
        "Wasserstein critic, five of its steps for one of G's",
        "Gulrajani et al. 2017, arXiv:1704.00028, appendix F and table 3",
        (
            "PixelNorm in G instead of BatchNorm",
            "G's batch as large as D's instead of twice it",
        ),
    ),
    Preset(
        _r3gan("r3gan-cifar10", "cifar10"),
        "a modern residual GAN with class labels, for data-centre GPUs",
        "Huang et al. 2024, arXiv:2501.05441; the authors' train.py, preset CIFAR10",
        _R3GAN_DEPARTURES,
    ),
    Preset(
        _r3gan("r3gan-ffhq256", "folder"),
        "faces at 256x256, for nodes of eight data-centre GPUs",
        "Huang et al. 2024, arXiv:2501.05441; the authors' train.py, preset FFHQ-256",
        (
            *_R3GAN_DEPARTURES,
            "FFHQ has no recipe here: prepare the folder of its 70,000 images at 256x256",
        ),
    ),
    Preset(
        _r3gan("r3gan-imagenet64", "folder", kimg=200_000, stats_kimg=40.96, batch_gpu=32),
        "ImageNet's 1000 classes at 64x64, for several nodes of eight GPUs",
        "Huang et al. 2024, arXiv:2501.05441; the authors' train.py, preset ImageNet-64",
        (
            *_R3GAN_DEPARTURES,
            "ImageNet has no recipe here: prepare its training folder, which has one of each class, with --labels",
        ),
    ),
    Preset(
        _config("progan-celeba128", dataset="celeba", ngf=128, ndf=128, kimg=12_000, ema_kimg=20, **_EVERY_200_KIMG),
        "faces that grow from 4x4 to 128x128",
        "Karras et al. 2018, arXiv:1710.10196, section 2 and appendix A",
        (
            _GROUPS,
            "Adam's moments kept when the networks grow",
        ),
    ),
    Preset(
        _config("progan-celebahq512", dataset="folder", resolution=512, **_EVERY_200_KIMG | {"stats_kimg": 5.12}),
        "faces that grow from 4x4 to 512x512, for a node of eight GPUs",
        "Karras et al. 2018, arXiv:1710.10196; the authors' config.py, preset-v2-8gpus",
        (
            _GROUPS,
            "Adam's moments kept when the networks grow; the authors' code begins them anew (reset_opt_for_new_lod)",
            "the average's half-life is 22.2 thousand images throughout; the authors' 0.999 is of each batch, and so "
            "with the first batches of 512 of 16 times as many",
            "CelebA-HQ has no recipe here: prepare the folder of its 30,000 images at 512x512",
        ),
    ),
    Preset(
        _config("progan-video-ucf101", dataset="ucf101", checkpoint_kimg=100, sample_kimg=100, stats_kimg=3.2),
        "clips of 16 frames that grow from 4x4x4 to 16x64x64",
        "Acharya et al. 2018, arXiv:1810.02419, section 3, after Karras et al. 2018, arXiv:1710.10196",
        (
            "WGAN-GP instead of the sliced Wasserstein loss, so nothing to compare its score with",
            "64x64, as TGAN (arXiv:1611.06624)",
            _GROUPS,
            "one batch size at every resolution; Adam's moments kept when they grow",
        ),
    ),
    Preset(
        _config(
            "cyclegan-photos",
            dataset="day-dusk",
            resolution=64,
            ngf=16,
            ndf=16,
            kimg=5,
            schedules=Schedules(lr_g=_SECOND_HALF, lr_d=_SECOND_HALF),
            checkpoint_kimg=1,
            sample_kimg=1,
            stats_kimg=0.1,
        ),
        "photographs by day to dusk and back, in minutes on a CPU, no download",
        "Zhu et al. 2017, arXiv:1703.10593, section 4 and appendix 7; values chosen here",
        (
            "two domains of overlapping crops, each of one photograph, at 64x64 instead of thousands of photographs "
            "cropped at random from 286x286 to 256x256: it shows that both directions learn, not what they learn",
            "no buffer of the last 50 fakes: the discriminators see the step's own, so that a step is a function of "
            "weights, seed and images seen, however it is resumed",
            "the discriminators learn first, then the generators against what those have learnt; in the authors' code "
            "both learn from the same fakes, the generators first",
            "no biases before instance normalisation, which takes them away again",
        ),
    ),
)


CATALOGUE: Mapping[str, Preset] = {
    entry.config.preset: entry._replace(
        departures=(*entry.departures, *departures(entry.config)), published=PUBLISHED.get(entry.config.preset, {})
    )
    for entry in _CATALOGUE
}
"""Every preset with its source, by name."""

PRESETS: Mapping[str, TrainConfig] = MappingProxyType({name: entry.config for name, entry in CATALOGUE.items()})
"""Configurations that run as they are, by name."""


def preset(name: str, place: str = "--preset") -> TrainConfig:
    """The preset of that name (TrainerError at `place`: unknown)."""
    if name not in PRESETS:
        near = nearest(name, PRESETS)
        raise TrainerError(
            place=place,
            problem="no such preset",
            value=name,
            allowed=", ".join(PRESETS),
            fix=f"did you mean {near!r}?" if near else f"`{program()} presets` lists them with their sources",
        )
    return PRESETS[name]
