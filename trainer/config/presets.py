"""Presets: runnable configurations, each with its source and departures from it. No torch.

A paper's set-up is widths, batch, losses, optimiser and length; anything a TrainConfig cannot hold is listed as a
departure. A preset does not imply the paper's score: scores are in each run's run.json.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from gangway.trainer.config.sources import PUBLISHED, Published, departures
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.schedules import Ramp, Schedules, Steps
from gangway.trainer.config.values.segments import Segment
from gangway.trainer.core.errors import TrainerError, nearest
from gangway.trainer.core.host import program

_DCGAN = "Radford et al. 2016, arXiv:1511.06434, section 4"


_PROGAN_LR = Steps(steps=((0, 1e-3), (5400, 1.5e-3), (6600, 2e-3), (7800, 3e-3)))
"""Changes where 128x128, 256x256 and 512x512 start to fade in, thousands of images."""


def _r3gan(gamma: float, ema_kimg: float, augment_p: float, burn_in_kimg: float = 20_000, **own: object) -> TrainConfig:
    """What all presets of R3GAN's authors share, including their schedules; `own` is a preset's."""

    def ramp(start: float, to: float) -> Ramp:  # half a cosine, then constant
        return Ramp(start=start, to=to, over_kimg=burn_in_kimg, shape="cosine", then="hold")

    common = {
        "channels": 3,
        "architecture": "r3gan",
        "loss": "relativistic",
        "z_dim": 64,
        "ngf": 768,
        "ndf": 768,
        "kimg": 100_000,
        "g_reals": "fresh",
        "beta1": 0.0,
        "beta2": 0.99,
        "r1_gamma": gamma,
        "r2_gamma": gamma,
        "r1_interval": 1,
        "ema_kimg": ema_kimg,
        "ema_rampup": 0,
        "schedules": Schedules(
            lr_g=ramp(2e-4, 5e-5),
            lr_d=ramp(2e-4, 5e-5),
            beta2=ramp(0.9, 0.99),
            r1_gamma=ramp(gamma, gamma / 10),
            r2_gamma=ramp(gamma, gamma / 10),
            ema_kimg=ramp(0, ema_kimg),
            augment_p=ramp(0, augment_p),
        ),
        "precision": "bf16",
        "tf32": False,
        "augment": "color,translation,cutout",
        "mirror": True,
        "checkpoint_kimg": 1000,
        "sample_kimg": 500,
        "stats_kimg": 10.24,
        "metrics_samples": 50_000,
    }
    return _config(common, **own)


_PROGAN = {
    "channels": 3,
    "architecture": "progressive",
    "loss": "wgan-gp",
    "lr_g": 1e-3,
    "lr_d": 1e-3,
    "beta1": 0.0,
    "beta2": 0.99,
    "r1_gamma": 0.0,
    "r1_interval": 1,
    "gp_weight": 10.0,
    "drift": 1e-3,
    "ema_rampup": 0,
    "minibatch_std": 4,
    "metrics_samples": 50_000,
}
"""What progressive GANs of images and clips share."""
_FACES = {
    "dataset": "celeba",
    "resolution": 64,
    "channels": 3,
    "z_dim": 100,
    "latents": "uniform",
    "ngf": 128,
    "ndf": 128,
    "batch_size": 128,
    "beta2": 0.999,
    "checkpoint_kimg": 200,
    "sample_kimg": 200,
    "stats_kimg": 5,
    "metrics_samples": 50_000,
}


def _config(common: Mapping[str, object], **own: object) -> TrainConfig:
    return TrainConfig.model_validate({**common, **own})


_R3GAN_DEPARTURES = (
    "R1 and R2 are gradients at the augmented images, which the discriminator sees; the authors' code takes them at "
    "the images before the augmentation",
)


def _second_half(start: float, kimg: float) -> Ramp:
    """CycleGAN's schedule: constant, then linear down to a hundredth."""
    return Ramp(start=start, to=start / 100, after_kimg=kimg / 2, over_kimg=kimg / 2, then="hold")


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
        TrainConfig(
            preset="dcgan-digits",
            dataset="digits",
            resolution=32,
            channels=1,
            kimg=200,
            lr_g=1e-3,
            lr_d=1e-3,
            r1_gamma=0.3,
            ema_kimg=5,
            augment="translation",
        ),
        "handwritten digits in minutes on a CPU, no download",
        f"{_DCGAN}; values chosen here by FD-ENL0",
        (*_DCGAN_DEPARTURES, *_AUGMENTED),
    ),
    Preset(
        # Chosen on 2 CPU cores by its results on 200 drawn shapes at 32x32 (docs/own-images.md).
        TrainConfig(
            preset="few-images",
            dataset="folder",
            resolution=64,
            channels=3,
            kimg=300,
            lr_g=1e-3,
            lr_d=1e-3,
            r1_gamma=0.3,
            ema_kimg=5,
            augment="color,translation,cutout",
            mirror=True,
            ada_target=0.6,
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
            metrics_samples=50_000,
        ),
        "the small classic on CIFAR-10",
        _DCGAN,
        (*_DCGAN_DEPARTURES, *_AUGMENTED),
    ),
    Preset(
        _config(_FACES, preset="dcgan-celeba64", kimg=10_000, r1_gamma=1.0, ema_kimg=20),
        "faces at 64x64, the size most papers print",
        _DCGAN,
        (*_DCGAN_DEPARTURES, *_FACES_DEPARTURES),
    ),
    Preset(
        _config(_FACES, preset="dcgan-celeba64-paper", kimg=4375, r1_gamma=0.0, r1_interval=1, ema_kimg=0),
        "the same as the paper has it: no penalty, no averaging",
        _DCGAN,
        (_DCGAN_NETWORKS, *_FACES_DEPARTURES),
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
            dequantise=True,
            checkpoint_kimg=320,
            sample_kimg=320,
            stats_kimg=6.4,
            metrics_samples=50_000,
        ),
        "Wasserstein critic, five of its steps for one of G's",
        "Gulrajani et al. 2017, arXiv:1704.00028, appendix F and table 3",
        (
            "PixelNorm in G instead of BatchNorm",
            "G's batch as large as D's instead of twice it",
        ),
    ),
    Preset(
        _r3gan(
            preset="r3gan-cifar10",
            dataset="cifar10",
            resolution=32,
            num_classes=10,
            batch_size=512,
            gamma=0.05,
            ema_kimg=5000,
            augment_p=0.55,
        ),
        "a modern residual GAN with class labels, for data-centre GPUs",
        "Huang et al. 2024, arXiv:2501.05441; the authors' train.py, preset CIFAR10",
        _R3GAN_DEPARTURES,
    ),
    Preset(
        _r3gan(
            preset="r3gan-ffhq256",
            dataset="folder",
            resolution=256,
            batch_size=256,
            gamma=150.0,
            ema_kimg=500,
            augment_p=0.3,
        ),
        "faces at 256x256, for nodes of eight data-centre GPUs",
        "Huang et al. 2024, arXiv:2501.05441; the authors' train.py, preset FFHQ-256",
        (
            *_R3GAN_DEPARTURES,
            "FFHQ has no recipe here: prepare the folder of its 70,000 images at 256x256",
        ),
    ),
    Preset(
        _r3gan(
            preset="r3gan-imagenet64",
            dataset="folder",
            resolution=64,
            num_classes=1000,
            ngf=1536,
            ndf=1536,
            full_width_up_to=64,
            group_width=32,
            batch_size=4096,
            batch_gpu=32,
            kimg=200_000,
            stats_kimg=40.96,
            gamma=1.0,
            ema_kimg=50_000,
            augment_p=0.4,
            burn_in_kimg=200_000,
        ),
        "ImageNet's 1000 classes at 64x64, for several nodes of eight GPUs",
        "Huang et al. 2024, arXiv:2501.05441; the authors' train.py, preset ImageNet-64",
        (
            *_R3GAN_DEPARTURES,
            "ImageNet has no recipe here: prepare its training folder, which has one of each class, with --labels",
        ),
    ),
    Preset(
        _config(
            _PROGAN,
            preset="progan-celeba128",
            dataset="celeba",
            resolution=128,
            z_dim=512,
            ngf=128,
            ndf=128,
            batch_size=64,
            kimg=12_000,
            ema_kimg=20,
            mirror=True,
            stable_kimg=800,
            fade_kimg=800,
            checkpoint_kimg=200,
            sample_kimg=200,
            stats_kimg=5,
        ),
        "faces that grow from 4x4 to 128x128",
        "Karras et al. 2018, arXiv:1710.10196, section 2 and appendix A",
        (
            _GROUPS,
            "Adam's moments kept when the networks grow",
        ),
    ),
    Preset(
        _config(
            _PROGAN,
            preset="progan-celebahq512",
            dataset="folder",
            resolution=512,
            z_dim=512,
            ngf=32,
            ndf=32,
            batch_size=32,
            kimg=12_000,
            ema_kimg=22.2,
            mirror=True,
            stable_kimg=600,
            fade_kimg=600,
            schedules=Schedules(lr_g=_PROGAN_LR, lr_d=_PROGAN_LR),
            segments=tuple(
                Segment(from_image=from_image, batch_size=batch_size)
                for from_image, batch_size in (
                    (0, 512),
                    (600_000, 256),
                    (1_800_000, 128),
                    (3_000_000, 64),
                    (4_200_000, 32),
                )
            ),
            checkpoint_kimg=200,
            sample_kimg=200,
            stats_kimg=5.12,
        ),
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
        _config(
            _PROGAN,
            preset="progan-video-ucf101",
            dataset="ucf101",
            resolution=64,
            frames=16,
            z_dim=128,
            ngf=64,
            ndf=64,
            batch_size=32,
            kimg=6000,
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
        (
            "WGAN-GP instead of the sliced Wasserstein loss, so nothing to compare its score with",
            "64x64, as TGAN (arXiv:1611.06624)",
            _GROUPS,
            "one batch size at every resolution; Adam's moments kept when they grow",
        ),
    ),
    Preset(
        TrainConfig(
            preset="cyclegan-photos",
            dataset="day-dusk",
            resolution=64,
            channels=3,
            architecture="cyclegan",
            loss="lsgan",
            cycle_weight=10.0,
            identity_weight=0.5,
            z_dim=1,
            ngf=16,
            ndf=16,
            batch_size=1,
            kimg=5,
            beta1=0.5,
            beta2=0.999,
            r1_gamma=0.0,
            r1_interval=1,
            ema_kimg=0,
            mirror=True,
            schedules=Schedules(lr_g=_second_half(2e-4, 5), lr_d=_second_half(2e-4, 5)),
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


CATALOGUE: Mapping[str, Preset] = MappingProxyType(
    {
        entry.config.preset: entry._replace(
            departures=(*entry.departures, *departures(entry.config)), published=PUBLISHED.get(entry.config.preset, {})
        )
        for entry in _CATALOGUE
    }
)
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
