"""Published values of the presets with their sources, and why a preset differs. No torch. From the papers and their
authors' code; `trainer presets NAME` prints the table. A test demands a row for each field that a preset sets.
"""

import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from gangway.trainer.config.values.schedules import Ramp, Steps
from gangway.trainer.config.values.segments import Segment


def in_words(value: object) -> str:
    """A field's value on one line; a schedule with its length in thousands of images."""
    if isinstance(value, Ramp):
        after = f" after {_number(value.after_kimg)}" if value.after_kimg else ""
        return f"{_number(value.start)} to {_number(value.to)}, {value.shape}, {_number(value.over_kimg)} kimg{after}"
    if isinstance(value, Steps):
        return ", ".join(_number(each) + (f" from {_number(kimg)} kimg" if kimg else "") for kimg, each in value.steps)
    if isinstance(value, tuple):
        return _segments(value)
    if value is None:
        return "none"
    return _number(value) if isinstance(value, float) else str(value)


def _segments(segments: Sequence[Segment]) -> str:
    parts, named = list[str](), list[str]()
    for segment in segments:
        values = segment.model_dump(exclude={"from_image"}, exclude_none=True, exclude_defaults=True)
        words = [
            in_words(value) if named == [*values] else f"{field} {in_words(value)}" for field, value in values.items()
        ]
        place = f" from {_number(segment.from_image / 1000)} kimg" if segment.from_image else ""
        parts.append(" and ".join(words) + place)
        named = [*values]
    return ", ".join(parts) or "none"


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:g}"


if TYPE_CHECKING:
    from gangway.trainer.config.train_config import TrainConfig

_DCGAN = "arXiv:1511.06434, section 4"
_DCGAN_CODE = "github.com/Newmu/dcgan_code, faces/train_uncond_dcgan.py"
_DCGAN_ADAM = "github.com/Newmu/dcgan_code, lib/updates.py"
_WGAN = "arXiv:1704.00028, appendix F"
_WGAN_CODE = "github.com/igul222/improved_wgan_training, gan_cifar_resnet.py"
_R3GAN_CODE = "github.com/brownvc/R3GAN"
_R3GAN_LOOP = f"{_R3GAN_CODE}, training/training_loop.py"
_PROGAN_REPOSITORY = "github.com/tkarras/progressive_growing_of_gans"
_PROGAN_CODE = f"{_PROGAN_REPOSITORY}, original-theano-version, config.py, section 6.1, celeb128"
_PROGAN_CODE_HQ = f"{_PROGAN_REPOSITORY}, config.py, preset-v2-8gpus"
_PROGAN_SCHEDULE = f"{_PROGAN_REPOSITORY}, train.py"
_PROGAN = "arXiv:1710.10196, appendix A"
_FID = "arXiv:1706.08500, experiments: FID of 50,000 samples"
_TGAN2 = "github.com/pfnet-research/tgan2, scripts/compute_inception_score.py"
_CYCLEGAN = "arXiv:1703.10593, section 4"
_CYCLEGAN_CODE = "github.com/junyanz/pytorch-CycleGAN-and-pix2pix"
_CYCLEGAN_OPTIONS = f"{_CYCLEGAN_CODE}, options"
_CYCLEGAN_MODEL = f"{_CYCLEGAN_CODE}, models/cycle_gan_model.py"
_ADA = "arXiv:2006.06676, section 3"
_HERE = "chosen here"


class Published(NamedTuple):
    """A field's published `value`, in words if the field cannot hold it, its `source` (place: detail), and why the
    preset has another value (`instead`, empty if it does not).
    """

    value: float | str | bool | Ramp | Steps | tuple[Segment, ...]
    source: str
    instead: str = ""


def _table(rows: Mapping[str, Published]) -> Mapping[str, Published]:
    return MappingProxyType(dict(rows))


_WITHOUT_NORM = "without BatchNorm the discriminator needs it to stay near what it knows (arXiv:1801.04406)"
_AVERAGED = "averaged samples are steadier (arXiv:1710.10196, section 6)"
_FOR_A_CPU = "a quarter as wide, for a CPU"
_PARTS = "DiffAugment's three parts"

_DCGAN_STEP = {
    "d_steps": Published(1, _DCGAN_CODE),
    "loss": Published("nonsaturating", _DCGAN_CODE),
    "beta1": Published(0.5, _DCGAN),
}
_DCGAN_SETUP = {
    **_DCGAN_STEP,
    "z_dim": Published(100, _DCGAN_CODE),
    "batch_size": Published(128, _DCGAN),
    "lr_g": Published(2e-4, _DCGAN),
    "lr_d": Published(2e-4, _DCGAN),
    "beta2": Published(0.999, _DCGAN_ADAM),
    "mirror": Published(value=False, source=_DCGAN),
}
_DCGAN_SMALL = {
    **_DCGAN_STEP,
    "z_dim": Published(100, _DCGAN_CODE, "for a CPU"),
    "latents": Published("uniform", _DCGAN, "as in most later work"),
    "ngf": Published(128, _DCGAN_CODE, _FOR_A_CPU),
    "ndf": Published(128, _DCGAN_CODE, _FOR_A_CPU),
    "batch_size": Published(128, _DCGAN, "half as many, for a CPU"),
    "beta2": Published(0.999, _DCGAN_ADAM, "as progressive GANs (arXiv:1710.10196, appendix A)"),
    "ema_kimg": Published(0.0, _DCGAN, _AVERAGED),
    "resolution": Published(64, _DCGAN_CODE, "the digits' own 8x8, enlarged"),
}
_DCGAN_FACES = {
    **_DCGAN_SETUP,
    "latents": Published("uniform", _DCGAN_CODE),
    "ngf": Published(128, _DCGAN_CODE),
    "ndf": Published(128, _DCGAN_CODE),
    "resolution": Published(64, _DCGAN_CODE),
    "augment": Published("none", _DCGAN),
    "metrics_samples": Published(50_000, _FID),
}
_WGAN_GP_GROWING = {
    "architecture": Published("progressive", f"{_PROGAN_REPOSITORY}, networks.py: G_paper, D_paper"),
    "loss": Published("wgan-gp", _PROGAN),
    "d_steps": Published(1, _PROGAN),
    "lr_g": Published(1e-3, _PROGAN),
    "lr_d": Published(1e-3, _PROGAN),
    "beta1": Published(0.0, _PROGAN),
    "beta2": Published(0.99, _PROGAN),
    "r1_gamma": Published(0.0, f"{_PROGAN_REPOSITORY}, loss.py: D_wgangp_acgan has no R1"),
    "r1_interval": Published(1, f"{_PROGAN_REPOSITORY}, loss.py: D_wgangp_acgan, its penalty in every step"),
    "gp_weight": Published(10.0, _PROGAN),
    "drift": Published(1e-3, _PROGAN),
    "ema_rampup": Published(0.0, f"{_PROGAN_SCHEDULE}: Gs_update_op, the same all along"),
    "minibatch_std": Published(4, f"{_PROGAN_REPOSITORY}, networks.py: mbstd_group_size"),
}


def _r3gan(
    name: str,
    command: str,
    *,
    batch_size: int,
    resolution: int,
    width: int,
    gamma: float,
    ema_kimg: float,
    augment_p: float,
    over_kimg: float = 20_000,
) -> dict[str, Published]:
    presets, readme = f"{_R3GAN_CODE}, train.py, preset {name}", f"{_R3GAN_CODE}, README.md, command of {command}"
    penalties = f"{_R3GAN_CODE}, R3GAN/Trainer.py: DiscriminatorLoss"
    return {
        "architecture": Published("r3gan", f"{_R3GAN_CODE}, R3GAN/Networks.py"),
        "resolution": Published(resolution, f"{readme}: --data"),
        "z_dim": Published(64, f"{presets}: NoiseDimension"),
        "ngf": Published(width, f"{presets}: WidthPerStage"),
        "ndf": Published(width, f"{presets}: WidthPerStage"),
        "full_width_up_to": Published(32, f"{presets}: WidthPerStage"),
        "group_width": Published(16, f"{presets}: CardinalityPerStage"),
        "batch_size": Published(batch_size, f"{readme}: --batch"),
        "mirror": Published(value=True, source=f"{readme}: --mirror"),
        "kimg": Published(
            10_000_000,
            f"{_R3GAN_CODE}, train.py: --kimg, which no command has",
            f"chosen here; schedules end after {over_kimg:.0f}",
        ),
        "loss": Published("relativistic", "arXiv:2501.05441, section 2"),
        "d_steps": Published(1, f"{_R3GAN_LOOP}: phases"),
        "g_reals": Published("fresh", f"{_R3GAN_LOOP}: G_img"),
        "lr_g": Published(2e-4, f"{presets}: base_value of lr_scheduler"),
        "lr_d": Published(2e-4, f"{presets}: base_value of lr_scheduler"),
        "beta1": Published(0.0, f"{_R3GAN_LOOP}: betas"),
        "beta2": Published(0.99, f"{presets}: final_value of beta2_scheduler"),
        "r1_gamma": Published(gamma, f"{presets}: base_value of gamma_scheduler"),
        "r2_gamma": Published(gamma, f"{penalties}, as R1's"),
        "r1_interval": Published(1, f"{penalties}, both in every step"),
        "ema_kimg": Published(ema_kimg, f"{presets}: ema_nimg"),
        "ema_rampup": Published(0.0, f"{_R3GAN_LOOP}: ema_beta"),
        **_r3gan_schedules(presets, over_kimg, gamma=gamma, ema_kimg=ema_kimg, augment_p=augment_p),
        "augment": Published(
            "StyleGAN2-ADA's pipeline",
            f"{_R3GAN_CODE}, train.py: augment_kwargs",
            f"{_PARTS}, at the authors' rate; its translation repeats the border's pixels where DiffAugment's paper "
            "pads with zero",
        ),
        "precision": Published("bf16", f"{presets}: FP16Stages, which are in bfloat16"),
        "tf32": Published(value=False, source=f"{_R3GAN_LOOP}: allow_tf32"),
        "metrics_samples": Published(50_000, _FID),
    }


def _r3gan_schedules(
    presets: str, over_kimg: float, *, gamma: float, ema_kimg: float, augment_p: float
) -> dict[str, Published]:
    def falls(start: float, to: float, scheduler: str) -> Published:
        ramp = Ramp(start=start, to=to, over_kimg=over_kimg, shape="cosine", then="hold")
        return Published(ramp, f"{presets}: {scheduler}")

    lr, gammas = falls(2e-4, 5e-5, "lr_scheduler"), falls(gamma, gamma / 10, "gamma_scheduler")
    return {
        "schedules.lr_g": lr,
        "schedules.lr_d": lr,
        "schedules.beta2": falls(0.9, 0.99, "beta2_scheduler"),
        "schedules.r1_gamma": gammas,
        "schedules.r2_gamma": gammas,
        "schedules.ema_kimg": falls(0, ema_kimg, "ema_scheduler"),
        "schedules.augment_p": falls(0, augment_p, "aug_scheduler"),
    }


_WGAN_DECAY = Published("evenly to 0 by the end", f"{_WGAN_CODE}: DECAY", "kept constant")
_PROGAN_LR = Published(
    Steps(steps=((0, 1e-3), (5400, 1.5e-3), (6600, 2e-3), (7800, 3e-3))),
    f"{_PROGAN_CODE_HQ}: G_lrate_dict and D_lrate_dict, by resolution",
)
_PROGAN_BATCHES = Published(
    tuple(
        Segment(from_image=kimg * 1000, batch_size=batch_size)
        for kimg, batch_size in ((0, 512), (600, 256), (1800, 128), (3000, 64), (4200, 32))
    ),
    f"{_PROGAN_CODE_HQ}: minibatch_dict, by resolution",
)
_CYCLEGAN_DECAY = Published(
    "constant for 100 epochs, then evenly to 0 in 100",
    f"{_CYCLEGAN_CODE}, models/networks.py: get_scheduler",
    "with every image of the second half, to a hundredth",
)

PUBLISHED: Mapping[str, Mapping[str, Published]] = MappingProxyType(
    {
        "dcgan-digits": _table(
            {
                **_DCGAN_SMALL,
                "mirror": Published(value=False, source=_DCGAN),
                "lr_g": Published(2e-4, _DCGAN, "chosen here by FD-ENL0"),
                "lr_d": Published(2e-4, _DCGAN, "chosen here by FD-ENL0"),
                "r1_gamma": Published(0.3, _HERE),
                "augment": Published("none", _DCGAN, "1,797 digits are few (arXiv:2006.10738)"),
                "kimg": Published(200, _HERE),
                "metrics_samples": Published(
                    50_000, _FID, "a demo for a CPU: as many as there are digits, so its values are proxies"
                ),
            }
        ),
        "few-images": _table(
            {
                **_DCGAN_SMALL,
                "resolution": Published(64, _HERE),
                "ada_target": Published(0.6, _ADA),
                "mirror": Published(value=True, source="arXiv:2006.06676, section 4"),
                "ada_kimg": Published(500, _ADA, "a tenth: p can rise to 1 in a sixth of this run"),
                "augment": Published("eighteen transformations", _ADA, _PARTS),
                "r1_gamma": Published(0.3, _HERE),
                "kimg": Published(300, _HERE),
                "lr_g": Published(1e-3, _HERE),
                "lr_d": Published(1e-3, _HERE),
                "metrics_samples": Published(50_000, _FID, "made for a CPU: its values are proxies"),
            }
        ),
        "dcgan-cifar10": _table(
            {
                **_DCGAN_SETUP,
                "latents": Published("uniform", _DCGAN_CODE, "as in most later work"),
                "ngf": Published(128, _DCGAN_CODE, "half as wide, at half the size"),
                "ndf": Published(128, _DCGAN_CODE, "half as wide, at half the size"),
                "resolution": Published(64, _DCGAN_CODE, "that of CIFAR-10"),
                "augment": Published("none", _DCGAN, "50,000 images are few (arXiv:2006.10738)"),
                "r1_gamma": Published(0.0, _DCGAN, _WITHOUT_NORM),
                "ema_kimg": Published(0.0, _DCGAN, _AVERAGED),
                "kimg": Published(12_800, f"{_HERE}: 100,000 steps"),
                "metrics_samples": Published(50_000, _FID),
            }
        ),
        "dcgan-celeba64": _table(
            {
                **_DCGAN_FACES,
                "r1_gamma": Published(0.0, _DCGAN, _WITHOUT_NORM),
                "ema_kimg": Published(0.0, _DCGAN, _AVERAGED),
                "kimg": Published(8750, _DCGAN_CODE, "50 times the 200,000 of CelebA, not 25 times 350,000 faces"),
            }
        ),
        "dcgan-celeba64-paper": _table(
            {
                **_DCGAN_FACES,
                "r1_gamma": Published(0.0, _DCGAN),
                "r1_interval": Published(1, f"{_DCGAN}: no penalty"),
                "ema_kimg": Published(0.0, _DCGAN),
                "kimg": Published(8750, _DCGAN_CODE, "half: there each network learns from every other batch"),
            }
        ),
        "wgan-gp-cifar10": _table(
            {
                "architecture": Published("resnet", _WGAN_CODE),
                "resolution": Published(32, _WGAN_CODE),
                "num_classes": Published(
                    10, f"{_WGAN_CODE}: ACGAN", "the paper prints both, and the code's default is AC-GAN"
                ),
                "z_dim": Published(128, _WGAN_CODE),
                "latents": Published("normal", _WGAN_CODE),
                "ngf": Published(128, _WGAN),
                "ndf": Published(128, _WGAN),
                "batch_size": Published(64, _WGAN_CODE),
                "d_steps": Published(5, _WGAN),
                "loss": Published("wgan-gp", _WGAN),
                "lr_g": Published(2e-4, _WGAN_CODE),
                "lr_d": Published(2e-4, _WGAN_CODE),
                "schedules.lr_g": _WGAN_DECAY,
                "schedules.lr_d": _WGAN_DECAY,
                "beta1": Published(0.0, _WGAN_CODE),
                "beta2": Published(0.9, _WGAN_CODE),
                "r1_gamma": Published(0.0, f"{_WGAN_CODE}: disc_cost has no R1"),
                "r1_interval": Published(1, f"{_WGAN_CODE}: gradient_penalty, in every step"),
                "gp_weight": Published(10.0, _WGAN),
                "dequantise": Published(value=True, source=_WGAN_CODE),
                "kimg": Published(32_000, _WGAN_CODE),
                "ema_kimg": Published(0.0, _WGAN_CODE, _AVERAGED),
                "metrics_samples": Published(50_000, _WGAN_CODE),
            }
        ),
        "r3gan-cifar10": _table(
            {
                **_r3gan(
                    "CIFAR10",
                    "CIFAR10",
                    batch_size=512,
                    resolution=32,
                    width=768,
                    gamma=0.05,
                    ema_kimg=5000,
                    augment_p=0.55,
                ),
                "num_classes": Published(10, f"{_R3GAN_CODE}, README.md, command of CIFAR10: --cond"),
            }
        ),
        "r3gan-ffhq256": _table(
            _r3gan(
                "FFHQ-256",
                "FFHQ 256x256",
                batch_size=256,
                resolution=256,
                width=768,
                gamma=150,
                ema_kimg=500,
                augment_p=0.3,
            )
        ),
        "r3gan-imagenet64": _table(
            {
                **_r3gan(
                    "ImageNet-64",
                    "Imagenet 64x64",
                    batch_size=4096,
                    resolution=64,
                    width=1536,
                    gamma=1,
                    ema_kimg=50_000,
                    augment_p=0.4,
                    over_kimg=200_000,
                ),
                "full_width_up_to": Published(
                    64, f"{_R3GAN_CODE}, train.py, preset ImageNet-64: WidthPerStage, the same at all sizes"
                ),
                "group_width": Published(32, f"{_R3GAN_CODE}, train.py, preset ImageNet-64: CardinalityPerStage"),
                "num_classes": Published(1000, f"{_R3GAN_CODE}, README.md, command of Imagenet 64x64: --cond"),
                "batch_gpu": Published(
                    64,
                    f"{_R3GAN_CODE}, README.md, command of Imagenet 64x64: --batch 4096 on 64 GPUs",
                    "half, for devices of 80 GB; may change",
                ),
            }
        ),
        "progan-celeba128": _table(
            {
                **_WGAN_GP_GROWING,
                "resolution": Published(128, _PROGAN_CODE),
                "num_classes": Published(0, f"{_PROGAN_CODE}: max_labels"),
                "z_dim": Published(512, _PROGAN_CODE),
                "ngf": Published(32, _PROGAN_CODE, "the widths of CelebA-HQ"),
                "ndf": Published(32, _PROGAN_CODE, "the widths of CelebA-HQ"),
                "batch_size": Published(16, _PROGAN_CODE, "more keeps several GPUs busy"),
                "mirror": Published(value=True, source=_PROGAN_CODE),
                "stable_kimg": Published(800.0, _PROGAN_CODE),
                "fade_kimg": Published(800.0, _PROGAN_CODE),
                "kimg": Published(10_000, _PROGAN_CODE, "the last size for longer"),
                "ema_kimg": Published(11.1, f"{_PROGAN_CODE}: 0.999 a batch of 16", "rounded up for the larger batch"),
                "metrics_samples": Published(50_000, _FID),
            }
        ),
        "progan-celebahq512": _table(
            {
                **_WGAN_GP_GROWING,
                "resolution": Published(
                    1024,
                    f"{_PROGAN_REPOSITORY}, config.py: celebahq",
                    "half, in as many images all in all; the authors' run grows once more",
                ),
                "num_classes": Published(0, f"{_PROGAN_REPOSITORY}, config.py: no -cond"),
                "z_dim": Published(512, f"{_PROGAN_REPOSITORY}, networks.py: latent_size"),
                "ngf": Published(32, f"{_PROGAN_REPOSITORY}, networks.py: fmap_base 8192, of 512x512"),
                "ndf": Published(32, f"{_PROGAN_REPOSITORY}, networks.py: fmap_base 8192, of 512x512"),
                "batch_size": Published(32, f"{_PROGAN_CODE_HQ}: minibatch_base, from 64x64 on"),
                "segments": _PROGAN_BATCHES,
                "schedules.lr_g": _PROGAN_LR,
                "schedules.lr_d": _PROGAN_LR,
                "precision": Published("fp32", f"{_PROGAN_REPOSITORY}, config.py: -fp32"),
                "mirror": Published(value=True, source=f"{_PROGAN_REPOSITORY}, config.py: celebahq"),
                "stable_kimg": Published(600.0, f"{_PROGAN_SCHEDULE}: lod_training_kimg"),
                "fade_kimg": Published(600.0, f"{_PROGAN_SCHEDULE}: lod_transition_kimg"),
                "kimg": Published(12_000.0, f"{_PROGAN_CODE_HQ}: total_kimg"),
                "ema_kimg": Published(22.2, f"{_PROGAN_SCHEDULE}: G_smoothing 0.999 a batch of 32"),
                "metrics_samples": Published(50_000, _FID),
            }
        ),
        "progan-video-ucf101": _table(
            {
                **_WGAN_GP_GROWING,
                "frames": Published(16, _TGAN2),
                "resolution": Published(64, "arXiv:1611.06624, section 5"),
                "metrics_samples": Published(2048, _TGAN2),
                "z_dim": Published(128, _HERE),
                "ngf": Published(64, _HERE),
                "ndf": Published(64, _HERE),
                "batch_size": Published(32, _HERE),
                "kimg": Published(6000, _HERE),
                "ema_kimg": Published(10, _HERE),
                "stable_kimg": Published(300, _HERE),
                "fade_kimg": Published(300, _HERE),
            }
        ),
        "cyclegan-photos": _table(
            {
                "architecture": Published("cyclegan", _CYCLEGAN),
                "z_dim": Published(1, f"{_CYCLEGAN}: no latents"),
                "loss": Published("lsgan", _CYCLEGAN),
                "r1_gamma": Published(0.0, f"{_CYCLEGAN_MODEL}: no penalty"),
                "r1_interval": Published(1, f"{_CYCLEGAN_MODEL}: no penalty"),
                "cycle_weight": Published(10.0, _CYCLEGAN),
                "identity_weight": Published(0.5, f"{_CYCLEGAN_MODEL}: lambda_identity"),
                "lr_g": Published(2e-4, _CYCLEGAN),
                "lr_d": Published(2e-4, _CYCLEGAN),
                "schedules.lr_g": _CYCLEGAN_DECAY,
                "schedules.lr_d": _CYCLEGAN_DECAY,
                "beta1": Published(0.5, _CYCLEGAN_OPTIONS),
                "beta2": Published(0.999, _CYCLEGAN_MODEL),
                "batch_size": Published(1, _CYCLEGAN),
                "d_steps": Published(1, _CYCLEGAN_MODEL),
                "mirror": Published(value=True, source=_CYCLEGAN_OPTIONS),
                "ema_kimg": Published(0.0, _CYCLEGAN_MODEL),
                "ngf": Published(64, _CYCLEGAN_OPTIONS, _FOR_A_CPU),
                "ndf": Published(64, _CYCLEGAN_OPTIONS, _FOR_A_CPU),
                "resolution": Published(256, _CYCLEGAN_OPTIONS, "a quarter as high, for a CPU"),
                "kimg": Published(200, f"{_CYCLEGAN}: 200 epochs, of about 1,000 photographs", "minutes on a CPU"),
            }
        ),
    }
)
"""By preset and field of TrainConfig, such as lr_g or schedules.lr_g."""


def get_value(config: "TrainConfig", field: str) -> object:
    """A configuration's value of a table's field."""
    return functools.reduce(getattr, field.split("."), config)


def departures(config: "TrainConfig") -> tuple[str, ...]:
    """A sentence on each field of a preset that differs from its source."""
    return tuple(
        f"{field} is {in_words(get_value(config, field))} instead of {in_words(published.value)}: {published.instead}"
        for field, published in PUBLISHED.get(config.preset, {}).items()
        if published.instead
    )
