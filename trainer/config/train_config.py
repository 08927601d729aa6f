"""TrainConfig: everything that decides what a training run computes, as a human writes it, and the table of rules on
which of its values go together. Imports no torch: plans read it, too.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticKnownError

from trainer.config.as_keys import as_keys
from trainer.config.layer_rates import LayerRatesField
from trainer.config.metric_names import NONE, parse, parse_names
from trainer.config.schedules import Ramp, Schedules, SchedulesField, Steps, misfit
from trainer.config.segments import Bounds, SegmentsField, Values, bounds, in_turn
from trainer.core.errors import TrainerError, broken_rule, from_validation
from trainer.core.files import read_text_input

AUGMENTATIONS = ("color", "translation", "cutout")
"""Parts a DiffAugment policy may be made of."""
SELF_PREPARED = ("digits", "photos", "day-dusk", "clips")
"""Data sets that ship in Python packages, so that a run without data prepares its own."""
RESOLUTIONS = (16, 32, 64, 128, 256, 512)
"""That the networks make: 4 pixels, doubled."""
_WIDEST, _LARGEST_BATCH = 1 << 16, 1 << 20
"""Far beyond what anybody trains with; whatever is below can be added up, and refused where memory has no room."""
_FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Rule(NamedTuple):
    """One rule: `field` is what the message names, `allowed` what would have been accepted, `fix` mends it; made of the
    values where one of them has to change a little.
    """

    field: str
    is_broken: Callable[["TrainConfig"], bool]
    allowed: str
    fix: str | Callable[["TrainConfig"], str]

    def advice(self, config: "TrainConfig") -> str:
        """The fix, for this configuration."""
        return self.fix if isinstance(self.fix, str) else self.fix(config)


def _divisor(config: "TrainConfig") -> int:
    """The divisor of batch_size nearest to batch_gpu; of two the larger."""
    batch = config.batch_size
    divisors = (each for each in range(1, batch + 1) if batch % each == 0)
    return min(divisors, key=lambda each: (abs(each - config.batch_gpu), -each))


def _of_groups(config: "TrainConfig", width: int) -> int:
    """The width nearest to `width` that r3gan's convolutions take."""
    step = max(8, config.resolution // 4)
    return max(step, round(width / step) * step)


def _of_one_family(config: "TrainConfig") -> str:
    """What makes loss and networks of one family."""
    if config.architecture == "cyclegan":
        return "--loss lsgan, or another --architecture"
    return "--loss nonsaturating, or --architecture cyclegan"


RULES = (
    Rule(
        "frames",
        lambda c: c.frames > 1 and c.architecture != "progressive",
        "1, or --architecture progressive: the other networks make images alone",
        "--architecture progressive, or --frames 1",
    ),
    Rule(
        "frames",
        lambda c: c.frames > c.resolution,
        "at most the resolution: a clip grows in time as it does in height and width",
        lambda c: f"--frames {c.resolution}, or a larger --resolution",
    ),
    Rule(
        "num_classes",
        lambda c: c.num_classes == 1,
        "0, or at least 2: a single class tells nothing",
        "--num-classes 0",
    ),
    Rule(
        "batch_gpu",
        lambda c: c.batch_gpu > 0 and c.batch_size % c.batch_gpu > 0,
        "0, or a divisor of batch_size, so that a step is made of whole micro-batches",
        lambda c: f"--batch-gpu {_divisor(c)}, which divides --batch-size {c.batch_size}",
    ),
    Rule(
        "minibatch_std",
        lambda c: c.minibatch_std == 1,
        "0, or at least 2: one image alone has no deviation",
        "--minibatch-std 0, or 4 as in the paper",
    ),
    Rule(
        "minibatch_std",
        lambda c: c.architecture != "progressive" and c.minibatch_std > 0,
        "0 unless the networks are progressive",
        "--minibatch-std 0, or --architecture progressive",
    ),
    Rule(
        "batch_size",
        lambda c: c.minibatch_std > 0 and c.batch_size % c.minibatch_std > 0,
        "a multiple of minibatch_std, so that a batch is made of whole groups",
        lambda c: f"--batch-size {-(-c.batch_size // c.group) * c.group}, or --minibatch-std 0",
    ),
    Rule(
        "batch_gpu",
        lambda c: c.minibatch_std > 0 and c.batch_gpu % c.minibatch_std > 0,
        "0, or a multiple of minibatch_std, so that no group is divided between micro-batches",
        lambda c: f"--batch-gpu {c.minibatch_std}, or another multiple that divides --batch-size {c.batch_size}",
    ),
    Rule(
        "stable_kimg",
        lambda c: c.architecture == "progressive" and not c.stable_kimg,
        "above 0 for progressive networks, or each resolution would last no step",
        "--stable-kimg 800, as in the paper",
    ),
    Rule(
        "stable_kimg",
        lambda c: c.architecture != "progressive" and c.stable_kimg > 0,
        "0 unless the networks are progressive",
        "--stable-kimg 0, or --architecture progressive",
    ),
    Rule(
        "fade_kimg",
        lambda c: c.architecture != "progressive" and c.fade_kimg > 0,
        "0 unless the networks are progressive",
        "--fade-kimg 0, or --architecture progressive",
    ),
    Rule(
        "ngf",
        lambda c: c.architecture == "r3gan" and c.ngf % max(8, c.resolution // 4) > 0,
        "a multiple of 8 (16 at 64x64, 32 at 128x128, ...) for r3gan, whose convolutions take 16 channels in a group",
        lambda c: f"--ngf {_of_groups(c, c.ngf)}",
    ),
    Rule(
        "ndf",
        lambda c: c.architecture == "r3gan" and c.ndf % max(8, c.resolution // 4) > 0,
        "a multiple of 8 (16 at 64x64, 32 at 128x128, ...) for r3gan, whose convolutions take 16 channels in a group",
        lambda c: f"--ndf {_of_groups(c, c.ndf)}",
    ),
    Rule(
        "gp_weight",
        lambda c: (c.loss == "wgan-gp") != (c.gp_weight > 0),
        "above 0 with the wgan-gp loss, whose critic needs the penalty; 0 with any other",
        "--loss wgan-gp --gp-weight 10, as in the paper; or --gp-weight 0 and another --loss",
    ),
    Rule(
        "r1_gamma",
        lambda c: c.loss == "wgan-gp" and c.r1_gamma > 0,
        "0 with the wgan-gp loss, which has a penalty of its own",
        "--r1-gamma 0",
    ),
    Rule(
        "r2_gamma",
        lambda c: c.loss == "wgan-gp" and c.r2_gamma > 0,
        "0 with the wgan-gp loss, which has a penalty of its own",
        "--r2-gamma 0",
    ),
    Rule(
        "r1_interval",
        lambda c: c.loss == "wgan-gp" and c.r1_interval > 1,
        "1 with the wgan-gp loss: its critic is no critic in a step without the penalty",
        "--r1-interval 1",
    ),
    Rule(
        "drift",
        lambda c: c.loss != "wgan-gp" and c.drift > 0,
        "0 unless the loss is wgan-gp: the other losses do not let logits drift",
        "--drift 0",
    ),
    Rule(
        "g_reals",
        lambda c: c.g_reals == "fresh" and c.loss != "relativistic",
        "same unless the loss is relativistic: no other generator's loss looks at real images",
        "--g-reals same, or --loss relativistic",
    ),
    Rule(
        "ada_target",
        lambda c: c.ada_target > 0 and c.augment == "none",
        "0 without augmentation: there is nothing to adapt",
        "--augment translation, for example, or --ada-target 0",
    ),
    Rule(
        "ada_target",
        lambda c: c.ada_target > 0 and c.loss != "nonsaturating",
        "0 unless the loss is nonsaturating: the other losses leave the sign of a logit without meaning",
        "--ada-target 0, or --loss nonsaturating",
    ),
    Rule(
        "schedules",
        lambda c: c.schedules.augment_p is not None and (c.augment == "none" or c.ada_target > 0),
        "augment_p only with an augmentation that does not adapt by itself",
        "--augment translation --ada-target 0, for example; or no schedule of augment_p",
    ),
    Rule(
        "schedules",
        lambda c: any(name in c.schedules.given and not getattr(c, name) for name in ("r1_gamma", "r2_gamma")),
        "schedules of the penalties that the run has: r1_gamma or r2_gamma above 0",
        "--r1-gamma with the schedule's first value, for example; or no schedule of it",
    ),
    Rule(
        "freeze",
        lambda c: bool(c.freeze) and c.shard != "ddp",
        "none with sharded networks",
        "--shard ddp",
    ),
    Rule(
        "cuda_graphs",
        lambda c: c.cuda_graphs and c.compile == "off",
        "false without compile, which records the graphs",
        "--compile on, or --cuda-graphs false",
    ),
    Rule(
        "batch_gpu",
        lambda c: c.cuda_graphs and c.batch_gpu > 0,
        "0 with CUDA graphs: a graph's gradients lie in its own memory, which the next micro-batch would overwrite",
        "--batch-gpu 0, or --cuda-graphs false",
    ),
    Rule(
        "activation_checkpointing",
        lambda c: c.activation_checkpointing and c.architecture == "dcgan",
        "false with dcgan's networks, whose layers are too small to gain by it",
        "--activation-checkpointing false, or --architecture resnet, for example",
    ),
    Rule(
        "compile",
        lambda c: c.activation_checkpointing and c.compile == "on",
        "off or auto with activation_checkpointing, which runs uncompiled",
        "--compile off, or --activation-checkpointing false",
    ),
    Rule(
        "step_graph",
        lambda c: c.activation_checkpointing and c.step_graph == "on",
        "off or auto with activation_checkpointing",
        "--step-graph off, or --activation-checkpointing false",
    ),
    Rule(
        "backend",
        lambda c: c.activation_checkpointing and c.backend == "xla",
        "auto, gloo or nccl with activation_checkpointing",
        "--activation-checkpointing false",
    ),
    Rule(
        "segments",
        lambda c: c.shard != "ddp" and any(each.precision != c.precision for each in c.planned),
        "one precision with sharded networks, whose weights are gathered in it",
        "--shard ddp, or segments without precision",
    ),
    Rule(
        "precision",
        lambda c: c.shard != "ddp" and c.precision == "fp16",
        "fp32 or bf16 with sharded networks",
        "--precision bf16, or --shard ddp",
    ),
    Rule(
        "compile",
        lambda c: c.shard != "ddp" and c.compile == "on",
        "off or auto with sharded networks, which run uncompiled",
        "--compile off, or --shard ddp",
    ),
    Rule(
        "backend",
        lambda c: c.backend == "xla" and c.shard != "ddp",
        "auto, gloo or nccl with sharded networks",
        "--shard ddp",
    ),
    Rule(
        "shard",
        lambda c: c.shard != "ddp" and c.architecture == "progressive",
        "ddp for progressive networks, parts of which rest",
        "--shard ddp",
    ),
    Rule(
        "loss",
        lambda c: (c.loss == "lsgan") != (c.architecture == "cyclegan"),
        "lsgan with cyclegan's networks, whose discriminators judge patches; another with any other networks",
        _of_one_family,
    ),
    Rule(
        "cycle_weight",
        lambda c: (c.architecture == "cyclegan") != (c.cycle_weight > 0),
        "above 0 with cyclegan's networks, or nothing ties an image to its translation; 0 with any other",
        lambda c: "--cycle-weight 10, as in the paper" if c.architecture == "cyclegan" else "--cycle-weight 0",
    ),
    Rule(
        "identity_weight",
        lambda c: c.architecture != "cyclegan" and c.identity_weight > 0,
        "0 unless the networks are cyclegan's: no others are shown real images of what they make",
        "--identity-weight 0",
    ),
    Rule(
        "num_classes",
        lambda c: c.architecture == "cyclegan" and c.num_classes > 0,
        "0 with cyclegan's networks: the two labels of their images are the two domains",
        "--num-classes 0",
    ),
    Rule(
        "z_dim",
        lambda c: c.architecture == "cyclegan" and c.z_dim != 1,
        "1 with cyclegan's networks, which make images of images: there are no latents",
        "--z-dim 1",
    ),
    Rule(
        "latents",
        lambda c: c.architecture == "cyclegan" and c.latents != "normal",
        "normal with cyclegan's networks, which make images of images: there are no latents",
        "--latents normal",
    ),
    Rule(
        "r1_gamma",
        lambda c: c.architecture == "cyclegan" and c.r1_gamma > 0,
        "0 with cyclegan's networks, whose loss has no penalty",
        "--r1-gamma 0",
    ),
    Rule(
        "r2_gamma",
        lambda c: c.architecture == "cyclegan" and c.r2_gamma > 0,
        "0 with cyclegan's networks, whose loss has no penalty",
        "--r2-gamma 0",
    ),
    Rule(
        "augment",
        lambda c: c.architecture == "cyclegan" and c.augment != NONE,
        "none with cyclegan's networks",
        "--augment none, or --mirror true, which shows each image mirrored too",
    ),
    Rule(
        "dequantise",
        lambda c: c.architecture == "cyclegan" and c.dequantise,
        "false with cyclegan's networks",
        "--dequantise false",
    ),
    Rule(
        "shard",
        lambda c: c.architecture == "cyclegan" and c.shard != "ddp",
        "ddp for cyclegan's networks, several of which learn in one loss",
        "--shard ddp",
    ),
    Rule(
        "metrics",
        lambda c: c.architecture == "cyclegan" and c.metrics != NONE,
        "none with cyclegan's networks: metrics here judge images that are made of latents",
        "--metrics none --metrics-kimg 0; look at samples/ and at loss_cycle",
    ),
    Rule(
        "metrics_kimg",
        lambda c: (c.metrics == "none") != (c.metrics_kimg == 0),
        "above 0 with metrics, which are computed at its multiples; 0 without",
        "--metrics fd-enl0 --metrics-kimg 20, for example; or --metrics none --metrics-kimg 0",
    ),
)
"""In the order in which they are told: one at a time."""


def first_broken(config: "TrainConfig") -> Rule | None:
    """The first rule that the configuration breaks; None where all its values go together."""
    return next((rule for rule in RULES if rule.is_broken(config)), None)


Positive = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
ScheduledField = Literal["lr_g", "lr_d", "beta2", "r1_gamma", "r2_gamma", "ema_kimg"]
FromText = BeforeValidator(lambda value: int(value) if isinstance(value, str) and value.isdecimal() else value)
"""A flag's value is text, which pydantic takes for a number, but not for one of a few."""


def _by_commas(value: object) -> object:
    return [name for name in value.split(",") if name] if isinstance(value, str) else value


class TrainConfig(BaseModel):
    """One training run, frozen. Progress is counted in images, so nothing here depends on the number of workers.

    Attributes:
        preset: name the defaults came from.
        dataset: the data set's name; the shards must carry the same.
        resolution: height and width of the images, pixels.
        channels: 1 for grey, 3 for RGB.
        frames: 1 for images; above, length of the video clips that are learnt.
        num_classes: 0 learns images regardless of class; above, the number of classes, whose labels both networks get.
        architecture: family of the networks; cyclegan's translate between the two domains of a data set.
        z_dim: length of the latent vector.
        latents: how its numbers are drawn: standard normal, or uniform from -1 to 1.
        ngf: the generator's width: channels of its last feature map.
        ndf: the discriminator's width: channels of its first feature map.
        batch_size: global batch, images per step over all workers, and of each domain; a segment may change it.
        batch_gpu: images a worker takes at once, adding up gradients over its share; 0 for all; may change in a run.
        kimg: length of the run, thousands of real images shown.
        d_steps: the discriminator's steps for one of the generator's, each on a batch of its own.
        loss: what the two networks play for.
        g_reals: real images of the generator's step: same takes those that the discriminator saw last, fresh others.
        lr_g: the generator's Adam step size.
        lr_d: the discriminator's Adam step size.
        beta1: Adam's first moment decay.
        beta2: Adam's second moment decay.
        r1_gamma: weight of the R1 penalty, on real images; 0 turns it off.
        r2_gamma: weight of the R2 penalty, the same on fakes; 0 turns it off.
        r1_interval: steps from one lazily applied penalty to the next; its weight grows by the same factor.
        gp_weight: weight of WGAN-GP's penalty, between real images and fakes; 0 turns it off.
        cycle_weight: cyclegan: weight of the mean difference of an image and its translation there and back.
        identity_weight: cyclegan: weight, in cycle_weights, of what a generator changes of its own domain's images.
        drift: weight of the squared logits of real images, which keeps a Wasserstein critic near zero; 0 turns it off.
        ema_kimg: half-life of the averaged generator, thousands of images; 0 turns the averaging off.
        ema_rampup: that half-life is at most this share of the images seen, as StyleGAN2's; 0 for no such bound.
        augment: what DiffAugment does to real and fake images alike: color, translation, cutout, by commas; or none.
        dequantise: spread each real grey value evenly over the 256th of -1..1 that it stands for.
        mirror: show each real image mirrored left to right too, as often as it is shown unmirrored.
        ada_target: mean sign of the real images' logits that ADA keeps by augmenting more or less; 0 augments always.
        ada_kimg: thousands of images in which ADA can go from augmenting nothing to everything.
        minibatch_std: progressive networks: images in a group whose deviation the discriminator sees; 0 for none.
        stable_kimg: progressive networks: thousands of images at each resolution after its layers have faded in.
        fade_kimg: progressive networks: thousands of images over which a resolution's layers fade in.
        schedules: values that change as images are seen, as JSON, such as {"lr_g": {"steps": [[0, 2e-4], [90, 1e-4]]}}.
        segments: what is otherwise from some image on, as JSON, such as [{"from_image": 50000, "batch_size": 128}].
        layer_rates: step sizes of some layers, as JSON, such as [{"layers": "generator.first.*", "lr_factor": 0.1}].
        freeze: weights that keep their initial values, by commas, as generator.layers.0.* or discriminator.*.bias.
        seed: of initial weights, order of images, latents and augmentation.
        checkpoint_kimg: thousands of images from one checkpoint to the next.
        keep_checkpoints: how many checkpoints stay on disk.
        keep_every_kimg: the first checkpoint of each so many thousand images stays for good too; 0 for none.
        stats_kimg: thousands of images from one line of stats.jsonl to the next.
        sample_kimg: thousands of images from one sample grid to the next.
        channels_last: NHWC memory layout: some per cent faster on a CPU, needed for tensor cores on a GPU.
        backend: collectives; auto takes nccl where CUDA is present, else gloo; xla is PyTorch/XLA, for TPUs.
        precision: of the networks' forward passes.
        tf32: let CUDA's matrix units round float32 inputs to TF32; elsewhere without effect.
        deterministic: on CUDA keep to kernels that give the same bits each time, at a cost; elsewhere they do anyway.
        compile: off; auto compiles the losses on CUDA; on anywhere; either goes on uncompiled where that fails.
        cuda_graphs: replay whole passes as CUDA graphs; with compile, on CUDA.
        step_graph: on replays a whole step as one CUDA graph; auto does where that is measured to be faster.
        activation_checkpointing: compute blocks once more in the backward instead of keeping what they made.
        shard: ddp has whole networks on every worker, fsdp2 a part on each, hsdp a part on each of a node's.
        check_gradients_steps: steps from one comparison of all workers' weights, moments and gradients; 0 for never.
        metrics: quality metrics computed while training, by commas, see `python -m trainer evaluate --help`; or none.
        metrics_kimg: thousands of images from one computation of the metrics to the next; 0 for never.
        metrics_samples: fakes drawn for the quality metrics; for video-is in each of its ten draws.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    preset: str
    dataset: Literal["digits", "cifar10", "celeba", "ucf101", "folder", "photos", "day-dusk", "clips"]
    resolution: Annotated[Literal[16, 32, 64, 128, 256, 512], FromText]
    channels: Annotated[Literal[1, 3], FromText]
    frames: Annotated[Literal[1, 2, 4, 8, 16, 32, 64], FromText] = 1
    num_classes: int = Field(default=0, ge=0, le=_WIDEST)
    architecture: Literal["dcgan", "resnet", "r3gan", "progressive", "cyclegan"] = "dcgan"
    z_dim: int = Field(default=64, ge=1, le=_WIDEST)
    latents: Literal["normal", "uniform"] = "normal"
    ngf: int = Field(default=32, ge=1, le=_WIDEST)
    ndf: int = Field(default=32, ge=1, le=_WIDEST)
    batch_size: int = Field(default=64, ge=1, le=_LARGEST_BATCH)
    batch_gpu: int = Field(default=0, ge=0)
    kimg: Positive
    d_steps: int = Field(default=1, ge=1)
    loss: Literal["nonsaturating", "wgan-gp", "relativistic", "lsgan"] = "nonsaturating"
    g_reals: Literal["same", "fresh"] = "same"
    lr_g: Positive = 2e-4
    lr_d: Positive = 2e-4
    beta1: Fraction = 0.5
    beta2: Fraction = 0.99
    r1_gamma: float = Field(default=1.0, ge=0)
    r2_gamma: float = Field(default=0.0, ge=0)
    r1_interval: int = Field(default=16, ge=1)
    gp_weight: float = Field(default=0.0, ge=0)
    drift: float = Field(default=0.0, ge=0)
    cycle_weight: float = Field(default=0.0, ge=0)
    identity_weight: float = Field(default=0.0, ge=0)
    ema_kimg: float = Field(default=2.0, ge=0)
    ema_rampup: float = Field(default=0.05, ge=0)
    augment: str = NONE
    dequantise: bool = False
    mirror: bool = False
    ada_target: Fraction = 0.0
    ada_kimg: Positive = 500.0
    minibatch_std: int = Field(default=0, ge=0, le=_LARGEST_BATCH)
    stable_kimg: float = Field(default=0.0, ge=0)
    fade_kimg: float = Field(default=0.0, ge=0)
    schedules: SchedulesField = Schedules()
    segments: SegmentsField = ()
    layer_rates: LayerRatesField = ()
    freeze: Annotated[tuple[str, ...], BeforeValidator(_by_commas)] = ()
    seed: int = Field(default=0, ge=0, lt=2**63)
    checkpoint_kimg: Positive = 20.0
    keep_checkpoints: int = Field(default=3, ge=2)
    keep_every_kimg: float = Field(default=0, ge=0)
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
    check_gradients_steps: int = Field(default=100, ge=0)
    metrics: str = NONE
    metrics_kimg: float = Field(default=0, ge=0)
    metrics_samples: int = Field(default=1797, ge=2)

    @field_validator("*", mode="before")
    @classmethod
    def _no_number_is_true(cls, value: object, field: ValidationInfo) -> object:
        kind = cls.model_fields[str(field.field_name)].annotation
        if isinstance(value, bool) and kind not in (bool, str):  # pydantic takes true for 1
            raise PydanticKnownError("float_type" if kind is float else "int_type")
        return value

    @field_validator("preset")
    @classmethod
    def _names_a_folder(cls, name: str) -> str:
        if not _FOLDER_NAME.fullmatch(name):
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

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if broken := first_broken(self):
            value = getattr(self, broken.field)
            raise broken_rule(broken.allowed, value=value, field=broken.field, fix=broken.advice(self))
        plain = {name: getattr(self, name) for name in self.schedules.given if name in type(self).model_fields}
        if found := misfit(self.schedules, self.kimg, plain):
            raise broken_rule(found.allowed, value=found.value, field=f"schedules.{found.name}", fix=found.fix)
        self._segments_can_be()
        return self

    def _segments_can_be(self) -> None:
        """Raises what is wrong with a segment, in the words of what it sets."""
        places = [segment.from_image for segment in self.segments]
        for number, (before, after) in enumerate(pairwise(places), 1):
            if after <= before:
                where = f"segments.{number}.from_image"
                allowed = f"above {before}, where the one before begins"
                raise broken_rule(allowed, value=after, field=where, fix="write the segments in the run's order")
        for values in self.planned if self.segments else ():
            if values.workers is not None and values.workers > values.batch_size:
                raise broken_rule(
                    f"at most the segment's batch_size, {values.batch_size}: each worker needs an image of a step",
                    value=values.workers,
                    field=f"segments.{values.number}.workers",
                    fix=f'"workers": {values.batch_size}, or a larger batch_size',
                )
            try:
                self.within(values)
            except ValidationError as error:
                told = from_validation(error, "", separator="")
                raise broken_rule(
                    told.allowed,
                    value=told.value,
                    field=f"segments.{values.number}.{told.place}",
                    fix=as_keys(told.fix),
                ) from None

    @property
    def planned(self) -> list[Values]:
        """Every segment's values, the first one's from the configuration's own fields."""
        first = Values(None, 0, self.batch_size, self.batch_gpu, self.precision, 1.0, None)
        return list(in_turn(first, self.segments))

    @property
    def bounds(self) -> list[Bounds]:
        """Where the segments of `planned` begin and end, as far as the run reaches."""
        return bounds(self.planned, self.d_steps, max(1, round(self.kimg * 1000)))

    def within(self, values: Values) -> Self:
        """The configuration that a segment's steps compute by: one without segments."""
        if values.number is None and not self.segments:
            return self
        factor = values.lr_factor
        scaled = {name: each.scaled(factor) for name, each in self.schedules.given.items() if name in ("lr_g", "lr_d")}
        return type(self).model_validate(
            {
                **self.model_dump(),
                **values.changes(),
                "lr_g": self.lr_g * factor,
                "lr_d": self.lr_d * factor,
                "schedules": self.schedules.model_copy(update=scaled),
                "segments": (),
            }
        )

    def at(self, name: ScheduledField, images: int) -> float:
        """What a field that may have a schedule is in the step that begins after so many images."""
        schedule: Ramp | Steps | None = getattr(self.schedules, name)
        value: float = getattr(self, name) if schedule is None else schedule.at(images)
        return value

    def shown(self, name: str) -> str:
        """A field's value as the file has it."""
        return json.dumps(self.model_dump(mode="json", include={name}, exclude_none=True).get(name))

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Of one image [C, H, W], or of one clip [C, T, H, W]."""
        time = () if self.frames == 1 else (self.frames,)
        return (self.channels, *time, self.resolution, self.resolution)

    @property
    def translates(self) -> bool:
        """Whether networks make images of images of another domain, and nothing of latents."""
        return self.architecture == "cyclegan"

    @property
    def num_labels(self) -> int:
        """Different labels that the data set's images must have: classes, or domains; 0 for none."""
        return 2 if self.translates else self.num_classes

    @property
    def step_images(self) -> int:
        """Real images shown in a step, of each domain: a batch for each of the discriminator's steps."""
        return self.batch_size * self.d_steps

    @property
    def is_gated(self) -> bool:
        """Whether some images are not augmented: the augmentation adapts, or follows a schedule."""
        return self.ada_target > 0 or self.schedules.augment_p is not None

    @property
    def total_images(self) -> int:
        """Images after which the run is done: whole steps that cover kimg, and one at least."""
        if self.segments:
            return self.bounds[-1].end
        return -(-max(1, round(self.kimg * 1000)) // self.step_images) * self.step_images

    @property
    def group(self) -> int:
        """Images of a batch that stay on one worker and in one micro-batch: minibatch_std's, or 1."""
        return self.minibatch_std or 1

    def check_workers(self, world_size: int, *, equal_shares: bool = False) -> None:
        """TrainerError where batch_size is below world_size: a worker would have no image. Up to that any number will
        do: `World.slice` shares unevenly. `equal_shares` refuses that: XLA's workers must run the same program. With
        minibatch_std whole groups are shared, and count as images do.
        """
        if self.batch_size < world_size * self.group and self.minibatch_std:
            groups = self.batch_size // self.group
            raise TrainerError(
                place="TrainConfig.minibatch_std",
                problem=f"fewer groups in a step than workers, of which there are {world_size}",
                value=f"{groups} groups of {self.group} in a batch of {self.batch_size}",
                allowed=f"at most {groups} workers; a run that has begun keeps its batch size",
                fix=f"start at most {groups} processes, or a new run with --batch-size {world_size * self.group}",
            )
        if self.batch_size < world_size:
            raise TrainerError(
                place="TrainConfig.batch_size",
                problem=f"fewer images in a step than workers, of which there are {world_size}",
                value=self.batch_size,
                allowed=f"at least {world_size} with {world_size} workers; a run that has begun keeps its batch size",
                fix=f"start at most {self.batch_size} processes, or a new run with --batch-size {world_size}",
            )
        if equal_shares and self.batch_size % (world_size * self.group):
            raise TrainerError(
                place="TrainConfig.batch_size",
                problem=f"does not divide by the {world_size} workers, and XLA's workers all have the same share",
                value=self.batch_size,
                allowed=f"a multiple of {world_size * self.group}; a run that has begun keeps its batch size",
                fix="a new run with --batch-size "
                f"{-(-self.batch_size // (world_size * self.group)) * world_size * self.group}",
            )

    def to_json(self) -> str:
        """The config as indented JSON; `from_json` reads it back equal."""
        return self.model_dump_json(indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str, place: str = "TrainConfig") -> Self:
        """Reads what `to_json` wrote, or a human; `place` is the file, for the message. TrainerError: not JSON, an
        unknown field, one given twice, or a value out of range.
        """
        try:
            config = cls.model_validate_json(text)
        except ValidationError as error:
            told = from_validation(error, place, known=cls.model_fields)
            # A file has keys and no flags.
            raise TrainerError(
                **{**told.fields(), "allowed": as_keys(told.allowed), "fix": as_keys(told.fix)}
            ) from None
        given = Counter(name for name, _ in json.loads(text, object_pairs_hook=list))
        if twice := [name for name, times in given.items() if times > 1]:
            raise TrainerError(place=f"{place}: {twice[0]}", problem="is given twice", fix="remove all but one")
        return config

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """`from_json` of a file's text (TrainerError also without the file)."""
        return cls.from_json(read_text_input(path, "name a TrainConfig JSON file"), str(path))

    def replace(self, changes: Mapping[str, object]) -> Self:
        """A copy with some fields changed, validated anew; a TrainerError's place is `TrainConfig.<field>`."""
        try:
            return type(self).model_validate({**self.model_dump(), **changes})
        except ValidationError as error:
            field = str(next(iter(error.errors()[0]["loc"]), ""))
            fix = f"give an allowed value, or leave it out for {self.shown(field)}"
            raise from_validation(error, "TrainConfig", known=type(self).model_fields, separator=".", fix=fix) from None


RESUMABLE_CHANGES = frozenset(
    {
        "kimg",
        "batch_gpu",
        "segments",
        "checkpoint_kimg",
        "keep_checkpoints",
        "keep_every_kimg",
        "stats_kimg",
        "sample_kimg",
        "backend",
        "compile",
        "cuda_graphs",
        "step_graph",
        "activation_checkpointing",
        "shard",
        "check_gradients_steps",
        "metrics",
        "metrics_kimg",
        "metrics_samples",
    }
)
"""Fields that may differ between the sessions of one run: they do not change what a step computes, rounding apart. Of
segments those that have begun may not (trainer.config.segment_plan).
"""
