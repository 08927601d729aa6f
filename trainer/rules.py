"""Which values of a TrainConfig go together: one table, in the words that the user reads."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from trainer.config import TrainConfig

__all__ = ["RULES", "Rule", "first_broken"]


class Rule(NamedTuple):
    """One rule: `field` is what the message names, `allowed` what would have been accepted, `fix` mends it."""

    field: str
    is_broken: Callable[["TrainConfig"], bool]
    allowed: str
    fix: str


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
        "a shorter --frames, or a larger --resolution",
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
        "a --batch-gpu that divides --batch-size",
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
        "--ngf 64, for example",
    ),
    Rule(
        "ndf",
        lambda c: c.architecture == "r3gan" and c.ndf % max(8, c.resolution // 4) > 0,
        "a multiple of 8 (16 at 64x64, 32 at 128x128, ...) for r3gan, whose convolutions take 16 channels in a group",
        "--ndf 64, for example",
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
        "cuda_graphs",
        lambda c: c.cuda_graphs and c.compile == "off",
        "false without compile, which records the graphs",
        "--compile on, or --cuda-graphs false",
    ),
    Rule(
        "precision",
        lambda c: c.shard != "ddp" and c.precision in ("fp16", "fp8"),
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
