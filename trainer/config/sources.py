"""Published values of the presets with their sources, and why a preset differs, from papers and their authors' code."""

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gangway.trainer.config.values.schedules import Ramp, Steps
from gangway.trainer.config.values.segments import Segment

if TYPE_CHECKING:
    from gangway.trainer.config.train_config import TrainConfig


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


def _from(source: str, instead: str = "", **values: Any) -> dict[str, Published]:
    return {field: Published(value, source, instead) for field, value in values.items()}


_WITHOUT_NORM = "without BatchNorm the discriminator needs it to stay near what it knows (arXiv:1801.04406)"
_AVERAGED = "averaged samples are steadier (arXiv:1710.10196, section 6)"
_FOR_A_CPU = "a quarter as wide, for a CPU"
_PARTS = "DiffAugment's three parts"

_DCGAN_STEP = {
    **_from(_DCGAN_CODE, d_steps=1, loss="nonsaturating"),
    **_from(_DCGAN, beta1=0.5),
}
_DCGAN_SETUP = {
    **_DCGAN_STEP,
    **_from(_DCGAN_CODE, z_dim=100),
    **_from(_DCGAN, batch_size=128, lr_g=2e-4, lr_d=2e-4),
    **_from(_DCGAN_ADAM, beta2=0.999),
    **_from(_DCGAN, mirror=False),
}
_DCGAN_SMALL = {
    **_DCGAN_STEP,
    **_from(_DCGAN_CODE, "for a CPU", z_dim=100),
    **_from(_DCGAN, "as in most later work", latents="uniform"),
    **_from(_DCGAN_CODE, _FOR_A_CPU, ngf=128, ndf=128),
    **_from(_DCGAN, "half as many, for a CPU", batch_size=128),
    **_from(_DCGAN_ADAM, "as progressive GANs (arXiv:1710.10196, appendix A)", beta2=0.999),
    **_from(_DCGAN, _AVERAGED, ema_kimg=0.0),
    **_from(_DCGAN_CODE, "the digits' own 8x8, enlarged", resolution=64),
}
_DCGAN_FACES = {
    **_DCGAN_SETUP,
    **_from(_DCGAN_CODE, latents="uniform", ngf=128, ndf=128, resolution=64),
    **_from(_DCGAN, augment="none"),
    **_from(_FID, metrics_samples=50_000),
}
_WGAN_GP_GROWING = {
    **_from(f"{_PROGAN_REPOSITORY}, networks.py: G_paper, D_paper", architecture="progressive"),
    **_from(_PROGAN, loss="wgan-gp", d_steps=1, lr_g=1e-3, lr_d=1e-3, beta1=0.0, beta2=0.99),
    **_from(f"{_PROGAN_REPOSITORY}, loss.py: D_wgangp_acgan has no R1", r1_gamma=0.0),
    **_from(f"{_PROGAN_REPOSITORY}, loss.py: D_wgangp_acgan, its penalty in every step", r1_interval=1),
    **_from(_PROGAN, gp_weight=10.0, drift=1e-3),
    **_from(f"{_PROGAN_SCHEDULE}: Gs_update_op, the same all along", ema_rampup=0.0),
    **_from(f"{_PROGAN_REPOSITORY}, networks.py: mbstd_group_size", minibatch_std=4),
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
        **_from(f"{_R3GAN_CODE}, R3GAN/Networks.py", architecture="r3gan"),
        **_from(f"{readme}: --data", resolution=resolution),
        **_from(f"{presets}: NoiseDimension", z_dim=64),
        **_from(f"{presets}: WidthPerStage", ngf=width, ndf=width, full_width_up_to=32),
        **_from(f"{presets}: CardinalityPerStage", group_width=16),
        **_from(f"{readme}: --batch", batch_size=batch_size),
        **_from(f"{readme}: --mirror", mirror=True),
        **_from(
            f"{_R3GAN_CODE}, train.py: --kimg, which no command has",
            f"chosen here; schedules end after {over_kimg:.0f}",
            kimg=10_000_000,
        ),
        **_from("arXiv:2501.05441, section 2", loss="relativistic"),
        **_from(f"{_R3GAN_LOOP}: phases", d_steps=1),
        **_from(f"{_R3GAN_LOOP}: G_img", g_reals="fresh"),
        **_from(f"{presets}: base_value of lr_scheduler", lr_g=2e-4, lr_d=2e-4),
        **_from(f"{_R3GAN_LOOP}: betas", beta1=0.0),
        **_from(f"{presets}: final_value of beta2_scheduler", beta2=0.99),
        **_from(f"{presets}: base_value of gamma_scheduler", r1_gamma=gamma),
        **_from(f"{penalties}, as R1's", r2_gamma=gamma),
        **_from(f"{penalties}, both in every step", r1_interval=1),
        **_from(f"{presets}: ema_nimg", ema_kimg=ema_kimg),
        **_from(f"{_R3GAN_LOOP}: ema_beta", ema_rampup=0.0),
        **_r3gan_schedules(presets, over_kimg, gamma=gamma, ema_kimg=ema_kimg, augment_p=augment_p),
        **_from(
            f"{_R3GAN_CODE}, train.py: augment_kwargs",
            f"{_PARTS}, at the authors' rate; its translation repeats the border's pixels where DiffAugment's paper "
            "pads with zero",
            augment="StyleGAN2-ADA's pipeline",
        ),
        **_from(f"{presets}: FP16Stages, which are in bfloat16", precision="bf16"),
        **_from(f"{_R3GAN_LOOP}: allow_tf32", tf32=False),
        **_from(_FID, metrics_samples=50_000),
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

PUBLISHED: Mapping[str, Mapping[str, Published]] = {
    "dcgan-digits": {
        **_DCGAN_SMALL,
        **_from(_DCGAN, mirror=False),
        **_from(_DCGAN, "chosen here by FD-ENL0", lr_g=2e-4, lr_d=2e-4),
        **_from(_HERE, r1_gamma=0.3),
        **_from(_DCGAN, "1,797 digits are few (arXiv:2006.10738)", augment="none"),
        **_from(_HERE, kimg=200),
        **_from(
            _FID, "a demo for a CPU: as many as there are digits, so its values are proxies", metrics_samples=50_000
        ),
    },
    "few-images": {
        **_DCGAN_SMALL,
        **_from(_HERE, resolution=64),
        **_from(_ADA, ada_target=0.6),
        **_from("arXiv:2006.06676, section 4", mirror=True),
        **_from(_ADA, "a tenth: p can rise to 1 in a sixth of this run", ada_kimg=500),
        **_from(_ADA, _PARTS, augment="eighteen transformations"),
        **_from(_HERE, r1_gamma=0.3, kimg=300, lr_g=1e-3, lr_d=1e-3),
        **_from(_FID, "made for a CPU: its values are proxies", metrics_samples=50_000),
    },
    "dcgan-cifar10": {
        **_DCGAN_SETUP,
        **_from(_DCGAN_CODE, "as in most later work", latents="uniform"),
        **_from(_DCGAN_CODE, "half as wide, at half the size", ngf=128, ndf=128),
        **_from(_DCGAN_CODE, "that of CIFAR-10", resolution=64),
        **_from(_DCGAN, "50,000 images are few (arXiv:2006.10738)", augment="none"),
        **_from(_DCGAN, _WITHOUT_NORM, r1_gamma=0.0),
        **_from(_DCGAN, _AVERAGED, ema_kimg=0.0),
        **_from(f"{_HERE}: 100,000 steps", kimg=12_800),
        **_from(_FID, metrics_samples=50_000),
    },
    "dcgan-celeba64": {
        **_DCGAN_FACES,
        **_from(_DCGAN, _WITHOUT_NORM, r1_gamma=0.0),
        **_from(_DCGAN, _AVERAGED, ema_kimg=0.0),
        **_from(_DCGAN_CODE, "50 times the 200,000 of CelebA, not 25 times 350,000 faces", kimg=8750),
    },
    "dcgan-celeba64-paper": {
        **_DCGAN_FACES,
        **_from(_DCGAN, r1_gamma=0.0),
        **_from(f"{_DCGAN}: no penalty", r1_interval=1),
        **_from(_DCGAN, ema_kimg=0.0),
        **_from(_DCGAN_CODE, "half: there each network learns from every other batch", kimg=8750),
    },
    "wgan-gp-cifar10": {
        **_from(_WGAN_CODE, architecture="resnet", resolution=32),
        **_from(f"{_WGAN_CODE}: ACGAN", "the paper prints both, and the code's default is AC-GAN", num_classes=10),
        **_from(_WGAN_CODE, z_dim=128, latents="normal"),
        **_from(_WGAN, ngf=128, ndf=128),
        **_from(_WGAN_CODE, batch_size=64),
        **_from(_WGAN, d_steps=5, loss="wgan-gp"),
        **_from(_WGAN_CODE, lr_g=2e-4, lr_d=2e-4),
        "schedules.lr_g": _WGAN_DECAY,
        "schedules.lr_d": _WGAN_DECAY,
        **_from(_WGAN_CODE, beta1=0.0, beta2=0.9),
        **_from(f"{_WGAN_CODE}: disc_cost has no R1", r1_gamma=0.0),
        **_from(f"{_WGAN_CODE}: gradient_penalty, in every step", r1_interval=1),
        **_from(_WGAN, gp_weight=10.0),
        **_from(_WGAN_CODE, dequantise=True, kimg=32_000),
        **_from(_WGAN_CODE, _AVERAGED, ema_kimg=0.0),
        **_from(_WGAN_CODE, metrics_samples=50_000),
    },
    "r3gan-cifar10": {
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
        **_from(f"{_R3GAN_CODE}, README.md, command of CIFAR10: --cond", num_classes=10),
    },
    "r3gan-ffhq256": _r3gan(
        "FFHQ-256",
        "FFHQ 256x256",
        batch_size=256,
        resolution=256,
        width=768,
        gamma=150,
        ema_kimg=500,
        augment_p=0.3,
    ),
    "r3gan-imagenet64": {
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
        **_from(
            f"{_R3GAN_CODE}, train.py, preset ImageNet-64: WidthPerStage, the same at all sizes",
            full_width_up_to=64,
        ),
        **_from(f"{_R3GAN_CODE}, train.py, preset ImageNet-64: CardinalityPerStage", group_width=32),
        **_from(f"{_R3GAN_CODE}, README.md, command of Imagenet 64x64: --cond", num_classes=1000),
        **_from(
            f"{_R3GAN_CODE}, README.md, command of Imagenet 64x64: --batch 4096 on 64 GPUs",
            "half, for devices of 80 GB; may change",
            batch_gpu=64,
        ),
    },
    "progan-celeba128": {
        **_WGAN_GP_GROWING,
        **_from(_PROGAN_CODE, resolution=128),
        **_from(f"{_PROGAN_CODE}: max_labels", num_classes=0),
        **_from(_PROGAN_CODE, z_dim=512),
        **_from(_PROGAN_CODE, "the widths of CelebA-HQ", ngf=32, ndf=32),
        **_from(_PROGAN_CODE, "more keeps several GPUs busy", batch_size=16),
        **_from(_PROGAN_CODE, mirror=True, stable_kimg=800.0, fade_kimg=800.0),
        **_from(_PROGAN_CODE, "the last size for longer", kimg=10_000),
        **_from(f"{_PROGAN_CODE}: 0.999 a batch of 16", "rounded up for the larger batch", ema_kimg=11.1),
        **_from(_FID, metrics_samples=50_000),
    },
    "progan-celebahq512": {
        **_WGAN_GP_GROWING,
        **_from(
            f"{_PROGAN_REPOSITORY}, config.py: celebahq",
            "half, in as many images all in all; the authors' run grows once more",
            resolution=1024,
        ),
        **_from(f"{_PROGAN_REPOSITORY}, config.py: no -cond", num_classes=0),
        **_from(f"{_PROGAN_REPOSITORY}, networks.py: latent_size", z_dim=512),
        **_from(f"{_PROGAN_REPOSITORY}, networks.py: fmap_base 8192, of 512x512", ngf=32, ndf=32),
        **_from(f"{_PROGAN_CODE_HQ}: minibatch_base, from 64x64 on", batch_size=32),
        "segments": _PROGAN_BATCHES,
        "schedules.lr_g": _PROGAN_LR,
        "schedules.lr_d": _PROGAN_LR,
        **_from(f"{_PROGAN_REPOSITORY}, config.py: -fp32", precision="fp32"),
        **_from(f"{_PROGAN_REPOSITORY}, config.py: celebahq", mirror=True),
        **_from(f"{_PROGAN_SCHEDULE}: lod_training_kimg", stable_kimg=600.0),
        **_from(f"{_PROGAN_SCHEDULE}: lod_transition_kimg", fade_kimg=600.0),
        **_from(f"{_PROGAN_CODE_HQ}: total_kimg", kimg=12_000.0),
        **_from(f"{_PROGAN_SCHEDULE}: G_smoothing 0.999 a batch of 32", ema_kimg=22.2),
        **_from(_FID, metrics_samples=50_000),
    },
    "progan-video-ucf101": {
        **_WGAN_GP_GROWING,
        **_from(_TGAN2, frames=16),
        **_from("arXiv:1611.06624, section 5", resolution=64),
        **_from(_TGAN2, metrics_samples=2048),
        **_from(
            _HERE, z_dim=128, ngf=64, ndf=64, batch_size=32, kimg=6000, ema_kimg=10, stable_kimg=300, fade_kimg=300
        ),
    },
    "cyclegan-photos": {
        **_from(_CYCLEGAN, architecture="cyclegan"),
        **_from(f"{_CYCLEGAN}: no latents", z_dim=1),
        **_from(_CYCLEGAN, loss="lsgan"),
        **_from(f"{_CYCLEGAN_MODEL}: no penalty", r1_gamma=0.0, r1_interval=1),
        **_from(_CYCLEGAN, cycle_weight=10.0),
        **_from(f"{_CYCLEGAN_MODEL}: lambda_identity", identity_weight=0.5),
        **_from(_CYCLEGAN, lr_g=2e-4, lr_d=2e-4),
        "schedules.lr_g": _CYCLEGAN_DECAY,
        "schedules.lr_d": _CYCLEGAN_DECAY,
        **_from(_CYCLEGAN_OPTIONS, beta1=0.5),
        **_from(_CYCLEGAN_MODEL, beta2=0.999),
        **_from(_CYCLEGAN, batch_size=1),
        **_from(_CYCLEGAN_MODEL, d_steps=1),
        **_from(_CYCLEGAN_OPTIONS, mirror=True),
        **_from(_CYCLEGAN_MODEL, ema_kimg=0.0),
        **_from(_CYCLEGAN_OPTIONS, _FOR_A_CPU, ngf=64, ndf=64),
        **_from(_CYCLEGAN_OPTIONS, "a quarter as high, for a CPU", resolution=256),
        **_from(f"{_CYCLEGAN}: 200 epochs, of about 1,000 photographs", "minutes on a CPU", kimg=200),
    },
}
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
