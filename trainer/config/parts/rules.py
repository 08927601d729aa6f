"""Rules on several fields: those that follow from architecture and loss, and others; shares of a batch. No torch."""

from collections.abc import Callable, Iterator, Mapping
from math import gcd
from typing import NamedTuple

from gangway.trainer.config.parts.choices import ARCHITECTURES, LOSSES, Choice, Narrower, PartField
from gangway.trainer.config.parts.fields import ConfigFields
from gangway.trainer.core.errors import TrainerError


def replicas(config: ConfigFields, workers: int) -> int:
    """Shares of a batch: one per worker, or per pair in a pipeline. A single process has whole networks."""
    return max(1, workers // config.pipeline_stages)


def largest_share(batch_size: int, shares: int, group: int = 1) -> int:
    """Images in the largest of so many shares of whole groups."""
    return -(-batch_size // (shares * group)) * group


def unpaired(config: ConfigFields, workers: int) -> TrainerError | None:
    """Why so many workers cannot train in a pipeline, which needs whole pairs and micro-batches of one size."""
    stages = config.pipeline_stages
    if stages == 1 or workers == 1:
        return None
    if workers % stages:
        return TrainerError(
            place="TrainConfig.pipeline_stages",
            problem=f"{workers} workers are no whole pairs, and each half of the generator is on one of a pair",
            value=stages,
            allowed="1, or 2 with an even number of workers; one process alone has whole networks",
            fix=f"start {workers - 1} or {workers + 1} processes, or --pipeline-stages 1",
        )
    shares = replicas(config, workers)
    share = config.batch_size // shares
    micro = min(config.batch_gpu or share, share)
    if micro and config.batch_size % (shares * config.group) == 0 and share % micro == 0:
        return None
    unit = shares * max(config.batch_gpu, config.group)
    return TrainerError(
        place="TrainConfig.batch_size",
        problem=f"is no whole micro-batches of one size for each of {shares} pairs of workers, as a pipeline has them",
        value=config.batch_size,
        allowed=f"a multiple of {unit}; a run that has begun keeps its batch size, but not its batch_gpu",
        fix=f"a new run with --batch-size {-(-config.batch_size // unit) * unit}, another number of workers, "
        "or --pipeline-stages 1",
    )


class Rule(NamedTuple):
    """One rule: the `field` to report, the `allowed` values, and a `fix`, which may depend on the configuration."""

    field: str
    is_broken: Callable[[ConfigFields], bool]
    allowed: str
    fix: str | Callable[[ConfigFields], str]

    def advice(self, config: ConfigFields) -> str:
        """The fix for this configuration."""
        return self.fix if isinstance(self.fix, str) else self.fix(config)


def _divisor(config: ConfigFields) -> int:
    batch = config.batch_size
    divisors = (each for each in range(1, batch + 1) if batch % each == 0)
    return min(divisors, key=lambda each: (abs(each - config.batch_gpu), -each))  # the nearest; the larger of two


def _r3gan_step(config: ConfigFields) -> int:
    """Widths of r3gan are multiples of this: at the narrowest, twice the width must be whole groups."""
    narrowed = max(1, config.resolution // config.full_width_up_to)
    return narrowed * (config.group_width // gcd(config.group_width, 2))


def _nearest_width(config: ConfigFields, width: int) -> int:
    step = _r3gan_step(config)
    return max(step, round(width / step) * step)


def _choice_rules(choice: Choice) -> Iterator[Rule]:
    narrower: dict[tuple[str, Narrower], dict[str, PartField]] = {}
    for word, fields in choice.fields.items():
        for name, field in fields.items():
            if field.narrower:
                narrower.setdefault((name, field.narrower), {})[word] = field
    for (name, (allowed, fix)), with_word in narrower.items():
        yield Rule(name, _refuses(choice.by, name, with_word), allowed, fix)


def _refuses(by: str, name: str, with_word: Mapping[str, PartField]) -> Callable[[ConfigFields], bool]:
    def is_broken(config: ConfigFields) -> bool:
        word = getattr(config, by)
        return word in with_word and not with_word[word].takes(getattr(config, name))

    return is_broken


PIPELINED = ("resnet", "r3gan")
"""Architectures whose generators can be split over two workers."""
_NO_PIPELINE = "--pipeline-stages 1"


def _pipeline_rule(field: str, is_wrong: Callable[[ConfigFields], bool], allowed: str) -> Rule:
    return Rule(field, lambda c: c.pipeline_stages > 1 and is_wrong(c), allowed, _NO_PIPELINE)


_PIPELINE_RULES = (
    _pipeline_rule(
        "pipeline_stages",
        lambda c: c.architecture not in PIPELINED,
        f"1 but for {' and '.join(PIPELINED)}, whose generators are rows of units",
    ),
    _pipeline_rule("shard", lambda c: c.shard != "ddp", "ddp in a pipeline, which divides the networks already"),
    _pipeline_rule("backend", lambda c: c.backend == "xla", "auto, gloo or nccl in a pipeline"),
    _pipeline_rule("precision", lambda c: c.precision == "fp16", "fp32 or bf16 in a pipeline"),
    _pipeline_rule("compile", lambda c: c.compile == "on", "off or auto in a pipeline, which runs uncompiled"),
    _pipeline_rule("step_graph", lambda c: c.step_graph == "on", "off or auto in a pipeline"),
    _pipeline_rule("freeze", lambda c: bool(c.freeze), "none in a pipeline"),
    _pipeline_rule(
        "segments",
        lambda c: any(each.workers is not None or each.precision is not None for each in c.segments),
        "segments without workers and precision in a pipeline",
    ),
)

_FIELD_RULES = (
    *_PIPELINE_RULES,
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
        "ngf",
        lambda c: c.architecture == "r3gan" and c.ngf % _r3gan_step(c) > 0,
        "for r3gan a multiple of half of group_width, and of as much again with each doubling above full_width_up_to",
        lambda c: f"--ngf {_nearest_width(c, c.ngf)}",
    ),
    Rule(
        "ndf",
        lambda c: c.architecture == "r3gan" and c.ndf % _r3gan_step(c) > 0,
        "for r3gan a multiple of half of group_width, and of as much again with each doubling above full_width_up_to",
        lambda c: f"--ndf {_nearest_width(c, c.ndf)}",
    ),
    Rule(
        "ada_target",
        lambda c: c.ada_target > 0 and c.augment == "none",
        "0 without augmentation: there is nothing to adapt",
        "--augment translation, for example, or --ada-target 0",
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
        lambda c: c.shard != "ddp" and any(each.precision not in (None, c.precision) for each in c.segments),
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
        "metrics_kimg",
        lambda c: (c.metrics == "none") != (c.metrics_kimg == 0),
        "above 0 with metrics, which are computed at its multiples; 0 without",
        "--metrics fd-enl0 --metrics-kimg 20, for example; or --metrics none --metrics-kimg 0",
    ),
)
PART_RULES = (*_choice_rules(ARCHITECTURES), *_choice_rules(LOSSES))
"""Rules that follow from architecture and loss."""
RULES = (*PART_RULES, *_FIELD_RULES)
"""In the order of reporting; only the first broken one is reported."""


def first_broken(config: ConfigFields) -> Rule | None:
    """The first broken rule, None if there is none."""
    return next((rule for rule in RULES if rule.is_broken(config)), None)
