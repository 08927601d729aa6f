"""What the presets' sources print: each value with its source, and, where a preset has another, why. No torch.

Looked up in the papers and in their authors' code; `trainer presets NAME` prints the table, and a test holds it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

_DCGAN = "arXiv:1511.06434, section 4"
_DCGAN_CODE = "github.com/Newmu/dcgan_code, faces/train_uncond_dcgan.py"
_DCGAN_ADAM = "github.com/Newmu/dcgan_code, lib/updates.py"
_WGAN = "arXiv:1704.00028, appendix F"
_WGAN_CODE = "github.com/igul222/improved_wgan_training, gan_cifar_resnet.py"
_R3GAN_CODE = "github.com/brownvc/R3GAN, train.py, preset"
_R3GAN_IMAGENET = f"{_R3GAN_CODE} ImageNet-64"
_R3GAN_README = "github.com/brownvc/R3GAN, README.md, command of"
_PROGAN_CODE = "github.com/tkarras/progressive_growing_of_gans, config.py, section 6.1, celeb128"
_PROGAN_CODE_HQ = "github.com/tkarras/progressive_growing_of_gans, config.py, preset-v2-8gpus"
_PROGAN_SCHEDULE = "github.com/tkarras/progressive_growing_of_gans, train.py"
_PROGAN_GROUP = "github.com/tkarras/progressive_growing_of_gans, networks.py, mbstd_group_size"
_PROGAN = "arXiv:1710.10196, appendix A"
_FID = "arXiv:1706.08500, experiments: FID of 50,000 samples"
_TGAN2 = "github.com/pfnet-research/tgan2, scripts/compute_inception_score.py"
_CYCLEGAN = "arXiv:1703.10593, section 4"
_CYCLEGAN_CODE = "github.com/junyanz/pytorch-CycleGAN-and-pix2pix, options"
_ADA = "arXiv:2006.06676, section 3"
_HERE = "chosen here"


class Published(NamedTuple):
    """A field's `value` at its `source`; `instead` is why the preset has another, empty where it has the same."""

    value: float | str | bool
    source: str
    instead: str = ""


def _table(**fields: Published) -> Mapping[str, Published]:
    return MappingProxyType(fields)


_DCGAN_SETUP: Mapping[str, Published] = _table(
    z_dim=Published(100, _DCGAN_CODE),
    batch_size=Published(128, _DCGAN),
    d_steps=Published(1, _DCGAN_CODE),
    loss=Published("nonsaturating", _DCGAN_CODE),
    lr_g=Published(2e-4, _DCGAN),
    lr_d=Published(2e-4, _DCGAN),
    beta1=Published(0.5, _DCGAN),
    beta2=Published(0.999, _DCGAN_ADAM),
    mirror=Published(value=False, source=_DCGAN),
)
_DCGAN_FACES: Mapping[str, Published] = _table(
    **_DCGAN_SETUP,
    latents=Published("uniform", _DCGAN_CODE),
    ngf=Published(128, _DCGAN_CODE),
    ndf=Published(128, _DCGAN_CODE),
    resolution=Published(64, _DCGAN_CODE),
    augment=Published("none", _DCGAN),
    metrics_samples=Published(50_000, _FID),
)
_WITHOUT_NORM = "without BatchNorm the discriminator needs it to stay near what it knows (arXiv:1801.04406)"
_AVERAGED = "averaged samples are steadier (arXiv:1710.10196, section 6)"
_WGAN_GP_GROWING = {
    "loss": Published("wgan-gp", _PROGAN),
    "d_steps": Published(1, _PROGAN),
    "lr_g": Published(1e-3, _PROGAN),
    "lr_d": Published(1e-3, _PROGAN),
    "beta1": Published(0.0, _PROGAN),
    "beta2": Published(0.99, _PROGAN),
    "gp_weight": Published(10.0, _PROGAN),
    "drift": Published(1e-3, _PROGAN),
    "minibatch_std": Published(4, _PROGAN_GROUP),
}

_R3GAN: Mapping[str, Published] = _table(
    z_dim=Published(64, f"{_R3GAN_CODE}s: NoiseDimension"),
    ngf=Published(768, f"{_R3GAN_CODE}s: WidthPerStage, 3/4 of 1024 up to 32x32"),
    ndf=Published(768, f"{_R3GAN_CODE}s: WidthPerStage, 3/4 of 1024 up to 32x32"),
    loss=Published("relativistic", "arXiv:2501.05441, section 2"),
    beta1=Published(0.0, _R3GAN_CODE.removesuffix(", preset")),
    metrics_samples=Published(50_000, _FID),
)

PUBLISHED: Mapping[str, Mapping[str, Published]] = MappingProxyType(
    {
        "dcgan-digits": _table(
            beta1=Published(0.5, _DCGAN),
            batch_size=Published(128, _DCGAN, "half as many, for a CPU"),
            lr_g=Published(2e-4, _DCGAN, "chosen here by FD-ENL0"),
            lr_d=Published(2e-4, _DCGAN, "chosen here by FD-ENL0"),
            latents=Published("uniform", _DCGAN, "as in most later work"),
            r1_gamma=Published(0.3, _HERE),
            kimg=Published(200, _HERE),
            metrics_samples=Published(
                50_000, _FID, "a demo for a CPU: as many as there are digits, so its values are proxies"
            ),
        ),
        "few-images": _table(
            ada_target=Published(0.6, _ADA),
            mirror=Published(value=True, source="arXiv:2006.06676, section 4"),
            ada_kimg=Published(500, _ADA, "a tenth: p can rise to 1 in a sixth of this run"),
            lr_g=Published(1e-3, _HERE),
            lr_d=Published(1e-3, _HERE),
            metrics_samples=Published(50_000, _FID, "made for a CPU: its values are proxies"),
        ),
        "dcgan-cifar10": _table(
            **_DCGAN_SETUP,
            latents=Published("uniform", _DCGAN_CODE, "as in most later work"),
            ngf=Published(128, _DCGAN_CODE, "half as wide, at half the size"),
            ndf=Published(128, _DCGAN_CODE, "half as wide, at half the size"),
            augment=Published("none", _DCGAN, "50,000 images are few (arXiv:2006.10738)"),
            r1_gamma=Published(0.0, _DCGAN, _WITHOUT_NORM),
            ema_kimg=Published(0.0, _DCGAN, _AVERAGED),
            metrics_samples=Published(50_000, _FID),
        ),
        "dcgan-celeba64": _table(
            **_DCGAN_FACES,
            r1_gamma=Published(0.0, _DCGAN, _WITHOUT_NORM),
            ema_kimg=Published(0.0, _DCGAN, _AVERAGED),
            kimg=Published(8750, _DCGAN_CODE, "50 times the 200,000 of CelebA, not 25 times 350,000 faces"),
        ),
        "dcgan-celeba64-paper": _table(
            **_DCGAN_FACES,
            r1_gamma=Published(0.0, _DCGAN),
            ema_kimg=Published(0.0, _DCGAN),
            kimg=Published(8750, _DCGAN_CODE, "half: there each network learns from every other batch"),
        ),
        "wgan-gp-cifar10": _table(
            z_dim=Published(128, _WGAN_CODE),
            latents=Published("normal", _WGAN_CODE),
            ngf=Published(128, _WGAN),
            ndf=Published(128, _WGAN),
            batch_size=Published(64, _WGAN_CODE),
            d_steps=Published(5, _WGAN),
            loss=Published("wgan-gp", _WGAN),
            lr_g=Published(2e-4, _WGAN_CODE),
            lr_d=Published(2e-4, _WGAN_CODE),
            beta1=Published(0.0, _WGAN_CODE),
            beta2=Published(0.9, _WGAN_CODE),
            gp_weight=Published(10.0, _WGAN),
            dequantise=Published(value=True, source=_WGAN_CODE),
            kimg=Published(32_000, _WGAN_CODE),
            ema_kimg=Published(0.0, _WGAN_CODE, _AVERAGED),
            metrics_samples=Published(50_000, _WGAN_CODE),
        ),
        "r3gan-cifar10": _table(
            **_R3GAN,
            batch_size=Published(512, f"{_R3GAN_README}: CIFAR10"),
            r1_gamma=Published(0.05, f"{_R3GAN_CODE} CIFAR10: base_value of gamma_scheduler"),
            ema_kimg=Published(5000, f"{_R3GAN_CODE} CIFAR10"),
        ),
        "r3gan-ffhq256": _table(
            **_R3GAN,
            batch_size=Published(256, f"{_R3GAN_README}: FFHQ 256x256"),
            r1_gamma=Published(150.0, f"{_R3GAN_CODE} FFHQ-256: base_value of gamma_scheduler"),
            ema_kimg=Published(500, f"{_R3GAN_CODE} FFHQ-256"),
            mirror=Published(value=True, source=f"{_R3GAN_README}: FFHQ 256x256"),
        ),
        "r3gan-imagenet64": _table(
            **{
                **_R3GAN,
                **dict.fromkeys(("ngf", "ndf"), Published(1536, f"{_R3GAN_IMAGENET}: WidthPerStage, 6/4 of 1024")),
            },
            full_width_up_to=Published(64, f"{_R3GAN_IMAGENET}: WidthPerStage, the same at all sizes"),
            group_width=Published(32, f"{_R3GAN_IMAGENET}: CardinalityPerStage, 96 groups of twice 1536 channels"),
            num_classes=Published(1000, f"{_R3GAN_README}: Imagenet 64x64, --cond=1"),
            batch_size=Published(4096, f"{_R3GAN_README}: Imagenet 64x64, on 64 GPUs"),
            batch_gpu=Published(
                64, f"{_R3GAN_README}: Imagenet 64x64, 4096 on 64 GPUs", "half, for devices of 80 GB; may change"
            ),
            r1_gamma=Published(1.0, f"{_R3GAN_IMAGENET}: base_value of gamma_scheduler"),
            ema_kimg=Published(50_000, f"{_R3GAN_IMAGENET}: ema_nimg"),
            mirror=Published(value=True, source=f"{_R3GAN_README}: Imagenet 64x64"),
        ),
        "progan-celeba128": _table(
            **_WGAN_GP_GROWING,
            z_dim=Published(512, _PROGAN_CODE),
            ngf=Published(32, _PROGAN_CODE, "the widths of CelebA-HQ"),
            ndf=Published(32, _PROGAN_CODE, "the widths of CelebA-HQ"),
            batch_size=Published(16, _PROGAN_CODE, "the global batch is fixed, and more keeps several GPUs busy"),
            mirror=Published(value=True, source=_PROGAN_CODE),
            stable_kimg=Published(800.0, _PROGAN_CODE),
            fade_kimg=Published(800.0, _PROGAN_CODE),
            kimg=Published(10_000, _PROGAN_CODE, "the last size for longer"),
            ema_kimg=Published(11.1, f"{_PROGAN_CODE}: 0.999 a batch of 16", "rounded up for the larger batch"),
            metrics_samples=Published(50_000, _FID),
        ),
        "progan-celebahq512": _table(
            **_WGAN_GP_GROWING,
            z_dim=Published(512, _PROGAN_CODE_HQ),
            ngf=Published(32, f"{_PROGAN_CODE_HQ}: fmap_base 8192, of 512x512"),
            ndf=Published(32, f"{_PROGAN_CODE_HQ}: fmap_base 8192, of 512x512"),
            batch_size=Published(32, f"{_PROGAN_CODE_HQ}: minibatch_base; up to 64x64 its minibatch_dict"),
            mirror=Published(value=True, source=_PROGAN_CODE_HQ),
            stable_kimg=Published(600.0, _PROGAN_SCHEDULE),
            fade_kimg=Published(600.0, _PROGAN_SCHEDULE),
            kimg=Published(12_000.0, _PROGAN_CODE_HQ),
            ema_kimg=Published(22.2, f"{_PROGAN_SCHEDULE}: G_smoothing 0.999 a batch of 32"),
            metrics_samples=Published(50_000, _FID),
        ),
        "progan-video-ucf101": _table(
            **_WGAN_GP_GROWING,
            frames=Published(16, _TGAN2),
            resolution=Published(64, "arXiv:1611.06624, section 5"),
            metrics_samples=Published(2048, _TGAN2),
        ),
        "cyclegan-photos": _table(
            loss=Published("lsgan", _CYCLEGAN),
            cycle_weight=Published(10.0, _CYCLEGAN),
            identity_weight=Published(0.5, _CYCLEGAN_CODE),
            lr_g=Published(2e-4, _CYCLEGAN),
            lr_d=Published(2e-4, _CYCLEGAN),
            beta1=Published(0.5, _CYCLEGAN_CODE),
            beta2=Published(0.999, _CYCLEGAN_CODE),
            batch_size=Published(1, _CYCLEGAN),
            d_steps=Published(1, _CYCLEGAN_CODE),
            mirror=Published(value=True, source=_CYCLEGAN_CODE),
            ema_kimg=Published(0.0, _CYCLEGAN_CODE),
            ngf=Published(64, _CYCLEGAN_CODE, "a quarter as wide, for a CPU"),
            ndf=Published(64, _CYCLEGAN_CODE, "a quarter as wide, for a CPU"),
            resolution=Published(256, _CYCLEGAN_CODE, "a quarter as high, for a CPU"),
            kimg=Published(200, f"{_CYCLEGAN}: 200 epochs, of about 1,000 photographs", "minutes on a CPU"),
        ),
    }
)
"""By preset and field of TrainConfig."""


def departures(name: str, values: Mapping[str, object]) -> tuple[str, ...]:
    """A sentence on each field of a preset that has another value than its source prints."""
    return tuple(
        f"{field} is {values[field]} instead of {published.value}: {published.instead}"
        for field, published in PUBLISHED.get(name, {}).items()
        if published.instead
    )
