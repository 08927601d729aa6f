"""Every field of TrainConfig: type, bounds, default and one sentence. No torch."""

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

from gangway.trainer.config.values.metric_names import NONE, parse, parse_names
from gangway.trainer.config.values.schedules import LayerRatesField, Schedules, SchedulesField
from gangway.trainer.config.values.segments import SegmentsField
from gangway.trainer.config.values.strict_numbers import Written
from gangway.trainer.core.errors import broken_rule

AUGMENTATIONS = ("color", "translation", "cutout")
"""Parts of a DiffAugment policy."""
SELF_PREPARED = ("digits", "photos", "day-dusk", "clips")
"""Data sets that ship in Python packages, so that a run can prepare them itself."""
RESOLUTIONS = (16, 32, 64, 128, 256, 512)
"""Resolutions of the networks: 4 pixels, doubled."""
_WIDEST, _LARGEST_BATCH = 1 << 16, 1 << 20
"""Far beyond practice; sizes below do not overflow and can be refused for lack of memory."""
MOST_KIMG = 1e9
"""10^12 images: 40,000 times StyleGAN2's 25,000 kimg. Longer runs are typing errors."""
_R3GAN_FULL_WIDTH: Literal[32] = 32
_R3GAN_GROUP = 16
"""Values of most of the authors' presets."""
FOLDER_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
"""Pattern of a preset's name, which is also its run's folder."""

Positive = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
NotNegative = Annotated[float, Field(ge=0)]
FromText = BeforeValidator(lambda value: int(value) if isinstance(value, str) and value.isdecimal() else value)
"""Flags are text, which pydantic converts to numbers, but not to literals."""
Frames = Annotated[Literal[1, 2, 4, 8, 16, 32, 64], FromText]
FullWidthUpTo = Annotated[Literal[16, 32, 64, 128, 256, 512], FromText]
GroupWidth = Annotated[int, Field(ge=1, le=_WIDEST)]
GroupSize = Annotated[int, Field(ge=0, le=_LARGEST_BATCH)]
SplitNames = BeforeValidator(lambda value: list(filter(None, value.split(","))) if isinstance(value, str) else value)


class ConfigFields(Written):
    """What a training run computes: the fields alone, each validated by itself.

    Attributes:
        preset: name of the preset that the defaults come from.
        dataset: name of the data set; the shards must carry the same name.
        resolution: height and width of the images, pixels.
        channels: 1 for grey, 3 for RGB.
        frames: 1 for images; more for video clips, whose length it is.
        num_classes: number of classes for class-conditional training; 0 ignores classes.
        architecture: family of the networks; cyclegan translates between the two domains of a data set.
        z_dim: length of the latent vector.
        latents: distribution of the latents: standard normal, or uniform from -1 to 1.
        ngf: width of the generator: channels of its last feature map.
        ndf: width of the discriminator: channels of its first feature map.
        full_width_up_to: r3gan: size of the largest feature maps of full width; the width halves with each doubling.
        group_width: r3gan: channels per group of the 3x3 convolutions, which have twice the width.
        batch_size: global batch: images per step over all workers, per domain; segments may change it.
        batch_gpu: images that a worker processes at once, accumulating gradients; 0 for all; may change in a run.
        kimg: length of the run, thousands of real images.
        d_steps: discriminator steps per generator step, each on its own batch.
        loss: loss of both networks.
        g_reals: real images of the generator's step: same reuses the discriminator's last ones, fresh takes new ones.
        lr_g: learning rate of the generator (Adam).
        lr_d: learning rate of the discriminator (Adam).
        beta1: Adam's decay of the first moment.
        beta2: Adam's decay of the second moment.
        r1_gamma: weight of the R1 penalty, on real images; 0 turns it off.
        r2_gamma: weight of the R2 penalty, on generated images; 0 turns it off.
        r1_interval: steps between two penalties (lazy regularisation); the weight grows by the same factor.
        gp_weight: weight of WGAN-GP's penalty, between real and generated images; 0 turns it off.
        cycle_weight: cyclegan: weight of the mean difference between an image and its translation there and back.
        identity_weight: cyclegan: weight, in cycle_weights, of changes to images of the generator's own domain.
        drift: weight of the squared logits of real images, which keeps a Wasserstein critic near 0; 0 turns it off.
        ema_kimg: half-life of the averaged generator, thousands of images; 0 turns averaging off.
        ema_rampup: limits that half-life to this share of the images seen, as in StyleGAN2; 0 for no limit.
        augment: DiffAugment of real and generated images: color, translation, cutout, by commas; or none.
        dequantise: whether to spread each grey value evenly over its 256th of the range -1 to 1.
        mirror: whether to also show each real image mirrored left to right, equally often.
        ada_target: ADA's target for the mean sign of the real images' logits; 0 always augments.
        ada_kimg: thousands of images in which ADA can go from no augmentation to full augmentation.
        minibatch_std: progressive networks: images per group of the minibatch standard deviation; 0 turns it off.
        stable_kimg: progressive networks: thousands of images at each resolution after its layers have faded in.
        fade_kimg: progressive networks: thousands of images over which a resolution's layers fade in.
        schedules: values that change during the run, as JSON, such as {"lr_g": {"steps": [[0, 2e-4], [90, 1e-4]]}}.
        segments: settings that change from some image on, as JSON, such as [{"from_image": 50000, "batch_size": 128}].
        layer_rates: learning rates of layers, as JSON, such as [{"layers": "generator.first.*", "lr_factor": 0.1}].
        freeze: patterns of untrained weights, by commas, such as generator.layers.0.* or discriminator.*.bias.
        seed: seed of initial weights, image order, latents and augmentation.
        checkpoint_kimg: thousands of images between checkpoints.
        keep_checkpoints: number of checkpoints to keep.
        keep_every_kimg: also keep the first checkpoint of each so many thousand images; 0 for none.
        stats_kimg: thousands of images between lines of stats.jsonl.
        sample_kimg: thousands of images between sample grids.
        channels_last: NHWC memory layout: a few per cent faster on a CPU, needed for tensor cores on a GPU.
        backend: backend of collectives; auto takes nccl with CUDA, else gloo; xla is PyTorch/XLA, for TPUs.
        precision: precision of the forward passes.
        tf32: whether CUDA may round float32 inputs of matrix units to TF32; no effect without CUDA.
        deterministic: whether to use only deterministic CUDA kernels, which are slower; no effect without CUDA.
        compile: off; auto compiles the losses on CUDA; on also elsewhere; both continue uncompiled if it fails.
        cuda_graphs: whether to replay whole passes as CUDA graphs; with compile, on CUDA.
        step_graph: on replays a whole step as one CUDA graph; auto does so if it is measured to be faster.
        activation_checkpointing: whether to recompute blocks in the backward pass to save memory.
        shard: ddp replicates the networks on every worker, fsdp2 shards them over all workers, hsdp over each node's.
        pipeline_stages: 2 splits the generator over pairs of workers, the discriminator with its second half.
        check_gradients_steps: steps between comparisons of all workers' weights, moments and gradients; 0 for never.
        metrics: quality metrics during training, by commas, see `python -m gangway.trainer evaluate --help`; or none.
        metrics_kimg: thousands of images between computations of the metrics; 0 for never.
        metrics_samples: generated images for the quality metrics; for video-is in each of its ten draws.
    """

    model_config = ConfigDict(defer_build=True)

    preset: str
    dataset: Literal["digits", "cifar10", "celeba", "ucf101", "folder", "photos", "day-dusk", "clips"]
    resolution: Annotated[Literal[16, 32, 64, 128, 256, 512], FromText]
    channels: Annotated[Literal[1, 3], FromText]
    frames: Frames = 1
    num_classes: int = Field(default=0, ge=0, le=_WIDEST)
    architecture: Literal["dcgan", "resnet", "r3gan", "progressive", "cyclegan"] = "dcgan"
    z_dim: int = Field(default=64, ge=1, le=_WIDEST)
    latents: Literal["normal", "uniform"] = "normal"
    ngf: int = Field(default=32, ge=1, le=_WIDEST)
    ndf: int = Field(default=32, ge=1, le=_WIDEST)
    full_width_up_to: FullWidthUpTo = _R3GAN_FULL_WIDTH
    group_width: GroupWidth = _R3GAN_GROUP
    batch_size: int = Field(default=64, ge=1, le=_LARGEST_BATCH)
    batch_gpu: int = Field(default=0, ge=0)
    kimg: float = Field(gt=0, le=MOST_KIMG)
    d_steps: int = Field(default=1, ge=1)
    loss: Literal["nonsaturating", "wgan-gp", "relativistic", "lsgan"] = "nonsaturating"
    g_reals: Literal["same", "fresh"] = "same"
    lr_g: Positive = 2e-4
    lr_d: Positive = 2e-4
    beta1: Fraction = 0.5
    beta2: Fraction = 0.99
    r1_gamma: NotNegative = 1.0
    r2_gamma: NotNegative = 0.0
    r1_interval: int = Field(default=16, ge=1)
    gp_weight: NotNegative = 0.0
    drift: NotNegative = 0.0
    cycle_weight: NotNegative = 0.0
    identity_weight: NotNegative = 0.0
    ema_kimg: NotNegative = 2.0
    ema_rampup: NotNegative = 0.05
    augment: str = NONE
    dequantise: bool = False
    mirror: bool = False
    ada_target: Fraction = 0.0
    ada_kimg: Positive = 500.0
    minibatch_std: GroupSize = 0
    stable_kimg: NotNegative = 0.0
    fade_kimg: NotNegative = 0.0
    schedules: SchedulesField = Schedules()
    segments: SegmentsField = ()
    layer_rates: LayerRatesField = ()
    freeze: Annotated[tuple[str, ...], SplitNames] = ()
    seed: int = Field(default=0, ge=0, lt=2**63)
    checkpoint_kimg: Positive = 20.0
    keep_checkpoints: int = Field(default=3, ge=2)
    keep_every_kimg: NotNegative = 0.0
    stats_kimg: Positive = 1.0
    sample_kimg: Positive = 20.0
    channels_last: bool = True
    backend: Literal["auto", "gloo", "nccl", "xla"] = "auto"
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    tf32: bool = True
    deterministic: bool = False
    compile: Literal["off", "auto", "on"] = "off"
    cuda_graphs: bool = False
    step_graph: Literal["off", "auto", "on"] = "auto"
    activation_checkpointing: bool = False
    shard: Literal["ddp", "fsdp2", "hsdp"] = "ddp"
    pipeline_stages: Annotated[Literal[1, 2], FromText] = 1
    check_gradients_steps: int = Field(default=100, ge=0)
    metrics: str = NONE
    metrics_kimg: NotNegative = 0.0
    metrics_samples: int = Field(default=1797, ge=2)

    @field_validator("preset")
    @classmethod
    def _names_a_folder(cls, name: str) -> str:
        if not re.fullmatch(FOLDER_NAME, name):
            raise broken_rule("a name of letters, digits, hyphens, dots and underscores: of the run's folder too")
        return name

    @field_validator("augment")
    @classmethod
    def _known_parts(cls, policy: str, others: ValidationInfo) -> str:
        parts = parse_names(policy, AUGMENTATIONS)
        if "color" in parts and others.data.get("channels") == 1:
            raise broken_rule("color needs channels 3", fix="leave color out for grey images")
        return ",".join(parts) or NONE

    @field_validator("metrics")
    @classmethod
    def _known_metrics(cls, names: str) -> str:
        return ",".join(parse(names)) or NONE

    @property
    def group(self) -> int:
        """Images that stay together on one worker and in one micro-batch: minibatch_std's, or 1."""
        return self.minibatch_std or 1
