"""Estimated peak memory of a step on a worker's device, part by part, from the configuration alone. No torch.

The multiples below come from steps traced by torch (gangway.trainer.steps.step_trace); a test compares estimate and
trace for all families and presets. Savings of `activation_checkpointing`, workspaces of libraries (cuDNN, cuBLAS, the
CUDA
context: some hundred MiB) and the allocator's reserve are not included.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from gangway.trainer.config.network_size import (
    device_gib,
    discriminator_size,
    generator_passes,
    generator_size,
    largest_batch_gpu,
    largest_unit,
    penalties,
    stages,
)
from gangway.trainer.config.parts.rules import largest_share, replicas
from gangway.trainer.config.segment_plan import stretches
from gangway.trainer.config.train_config import TrainConfig

GIB = 1 << 30
_FLOAT32 = 4
_PIXEL_BYTES = 1 + _FLOAT32
"""Bytes per number of a real image on a device: uint8, and float32 in -1..1."""
_FRESH_REALS = 0.15
"""Share of the discriminator step's activations if the generator's step judges real images too."""


class StepMemory(NamedTuple):
    """GiB on one worker's device at the peak of a step; `average` of the generators, `activations` with images."""

    parameters: float
    average: float
    moments: float
    gradients: float
    activations: float

    @property
    def total(self) -> float:
        """The sum."""
        return sum(self)


class _PeakMultiples(NamedTuple):
    """Peak of a pass per image in multiples of `Layer.kept`. The discriminator's step, for a real image and a fake:
    without penalty, with R1 or R2, with both, with WGAN-GP's. The generator's step: of its own `kept`, and of the
    discriminator's. `scaled`: each pass copies the weights.
    """

    plain: float
    with_r1: float
    with_both: float
    with_gp: float
    making: float
    judging: float
    scaled: bool = False


_PEAK_MULTIPLES: Mapping[str, _PeakMultiples] = MappingProxyType(
    {
        "dcgan": _PeakMultiples(3.3, 3.7, 5.05, 5.05, 2.55, 1.4),
        "resnet": _PeakMultiples(3.55, 4.9, 7.2, 7.4, 2.9, 1.65),
        "r3gan": _PeakMultiples(3.8, 4.85, 6.15, 6.9, 1.8, 1.85),
        "progressive": _PeakMultiples(7.3, 8.85, 11.7, 13.7, 2.95, 3.65, scaled=True),
        "cyclegan": _PeakMultiples(5.0, 5.0, 5.0, 5.0, 2.85, 2.4),
    }
)


def images_per_worker(config: TrainConfig, workers: int) -> int:
    """Images of a step on the worker with most of them."""
    return largest_share(config.batch_size, replicas(config, workers), config.group)


def images_at_once(config: TrainConfig, workers: int) -> int:
    """Images of that worker's micro-batch."""
    share = images_per_worker(config, workers)
    return min(config.batch_gpu or share, share)


def get_parts(config: TrainConfig, workers: int, num_nodes: int) -> int:
    """Number of workers that weights, gradients and moments are split over; in a pipeline the generator's only."""
    if config.pipeline_stages > 1 and workers * num_nodes > 1:
        return config.pipeline_stages
    return {"ddp": 1, "fsdp2": workers * num_nodes, "hsdp": workers}[config.shard]


def estimate(config: TrainConfig, workers: int = 1, num_nodes: int = 1) -> StepMemory:
    """Peak on the worker with most images, in the segment and at the size that take most, and on a second stage."""
    parts = get_parts(config, workers, num_nodes)
    sizes = [size.config for each in stretches(config) for size in stages(each.config, each.span)]
    return max((_at_size(config, each, workers * num_nodes, parts) for each in sizes), key=lambda each: each.total)


def least_gib(config: TrainConfig, workers: int = 1, num_nodes: int = 1) -> float:
    """Minimum on that worker (`network_size.device_gib`), in the segment that needs most."""
    parts = get_parts(config, workers, num_nodes)
    return max(
        device_gib(each.config, images_at_once(each.config, workers * num_nodes), parts, each.span)
        for each in stretches(config)
    )


def fitting_batch_gpu(config: TrainConfig, memory_gib: float, workers: int = 1, num_nodes: int = 1) -> int | None:
    """The largest micro-batch, a divisor of batch_size in whole groups, with an estimate within `memory_gib`."""

    def fits(size: int) -> bool:
        return estimate(config.model_copy(update={"batch_gpu": size}), workers, num_nodes).total <= memory_gib

    return largest_batch_gpu(config, images_at_once(config, workers * num_nodes), fits)


def _at_size(config: TrainConfig, sized: TrainConfig, workers: int, parts: int) -> StepMemory:
    whole_g: float = generator_size(config).parameters
    whole_d = discriminator_size(config).parameters
    in_use: list[float] = [generator_size(sized).parameters, discriminator_size(sized).parameters]
    gathered = averaged = 0
    if config.pipeline_stages > 1 and parts > 1:
        # The second stage: half of the generator, and the discriminator, from here on treated as whole.
        whole_g, in_use, parts = whole_g / parts, [in_use[0] / parts, in_use[1]], 1
    elif parts > 1:
        unit = largest_unit(config)
        # The two most recent units (gangway.trainer.distributed.sharded_modules) and the one being computed.
        gathered = 3 * unit
        # Whole gradients and the message; with a penalty all of the discriminator's wait for the logits' part.
        averaged = 2 * max(unit, whole_d if penalties(config) else 0)
    return StepMemory(
        parameters=_FLOAT32 * ((whole_g + whole_d) / parts + gathered) / GIB,
        average=_FLOAT32 * whole_g / parts / GIB,
        moments=2 * _FLOAT32 * sum(in_use) / parts / GIB,
        gradients=_FLOAT32 * (sum(in_use) / parts + averaged) / GIB,
        activations=_activations(sized, workers) / GIB,
    )


def _activations(config: TrainConfig, workers: int) -> float:
    images, at_peak = images_at_once(config, workers), _PEAK_MULTIPLES[config.architecture]
    generator, discriminator = generator_size(config), discriminator_size(config)
    number = _FLOAT32 if config.precision == "fp32" else _FLOAT32 // 2
    in_penalties = _FLOAT32 if config.precision == "fp16" else number
    if config.gp_weight:
        plain, penalised, passes = at_peak.plain, at_peak.with_gp - at_peak.plain, 2
    elif config.r1_gamma > 0 and config.r2_gamma > 0:
        plain, penalised, passes = 0.0, at_peak.with_both, 2
    elif config.r1_gamma > 0 or config.r2_gamma > 0:
        plain, penalised, passes = at_peak.plain / 2, at_peak.with_r1 - at_peak.plain / 2, 2
    else:
        plain, penalised, passes = at_peak.plain, 0.0, 1
    d_step = images * (number * plain + in_penalties * penalised) * discriminator.kept
    judging = at_peak.judging + (_FRESH_REALS * at_peak.plain if config.loss == "relativistic" else 0)
    making = at_peak.making * generator_passes(config)
    g_step = number * images * (making * generator.kept + judging * discriminator.kept)

    # Weights in 16 bits, and scaled ones, for each pass.
    copies = (number if number < _FLOAT32 else 0) + (number if at_peak.scaled else 0)
    d_step += copies * passes * discriminator.parameters
    g_step += copies * (generator.parameters + discriminator.parameters)
    streams = 2 if config.g_reals == "fresh" or config.translates else 1
    size = config.channels * config.frames * config.resolution**2
    return max(d_step, g_step) + _PIXEL_BYTES * streams * images_per_worker(config, workers) * size
