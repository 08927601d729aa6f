"""Counts a step's work once on the meta device, and its share of the machine's peak (MFU)."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.utils.flop_counter import flop_registry

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.accelerators import find_peak
from gangway.trainer.core.torch_private import each_operation
from gangway.trainer.families import cyclegan
from gangway.trainer.networks.factory import build
from gangway.trainer.phases.augment import UNIFORMS
from gangway.trainer.phases.batch import Unpaired
from gangway.trainer.phases.losses import DLoss, GLoss, Inputs
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import RunContext

_COUNTED = "counted by shapes: convolutions (groups taken into account) and matrix products, forward and backward"
_IMAGES = 4  # Of the batch that is counted; a step's work grows with its images alone


def peak_flops(device: str, precision: str, given: Mapping[str, Quantity]) -> Quantity:
    """Returns one device's peak for fp32, tf32, bf16 or fp16, FLOP/s; `given` is the launcher's, TFLOP/s."""
    given_peak = given.get(precision)
    if given_peak is not None and given_peak.value is not None:
        return given_peak.model_copy(update={"value": given_peak.value * 1e12, "unit": "FLOP/s"})
    if (peak := find_peak(device, precision)) is not None:
        return Quantity(
            value=peak.tflops * 1e12,
            unit="FLOP/s",
            provenance="assumed",
            source=f"the vendor's data sheet of the {peak.name}, dense {precision}",
        )
    return Quantity.absent("FLOP/s", f"no published {precision} peak of this device: {device}; the launcher gave none")


class StepFlops(NamedTuple):
    """A step's work per real image, with fakes and lazy penalties, and one device's `peak`, FLOP/s."""

    per_image: Quantity
    peak: Quantity

    def utilisation(self, images_per_sec: float, world_size: int) -> float | None:
        """Returns the model FLOPs utilisation, 0..1; None if unknown."""
        if self.per_image.value is None or self.peak.value is None:
            return None
        return images_per_sec * self.per_image.value / (self.peak.value * world_size)


def step_flops(config: TrainConfig, device: str, context: RunContext) -> StepFlops:
    """Returns a step's work and this device's peak; `device` is its name in the record."""
    numbers = "tf32" if config.precision == "fp32" and config.tf32 else config.precision
    return StepFlops(count_step(config), peak_flops(device, numbers, context.accelerator_tflops))


def count_step(config: TrainConfig) -> Quantity:
    """Returns a step's work per real image, or image of each domain, FLOP: all updates, with lazy penalties."""
    if config.architecture == "progressive":
        return Quantity.absent("FLOP", "networks that grow do another amount of work at each resolution")
    per_image = _translation(config) if config.translates else _per_image(config)
    return Quantity(value=per_image, unit="FLOP", provenance="estimated", source=_COUNTED)


def _per_image(config: TrainConfig) -> float:
    generator, discriminator = build(config)
    generator.to("meta")
    discriminator.to("meta")
    d_work: list[int] = []
    with torch.device("meta"):
        inputs = _inputs(config)
        for penalised in (False, True):
            with _counting() as work:
                with torch.no_grad():
                    fakes = generator(inputs.latents, inputs.labels)
                DLoss(discriminator, config)(inputs, fakes, penalised).total.backward()
            d_work.append(sum(work))
        discriminator.requires_grad_(False)
        with _counting() as g_work:
            GLoss(generator, discriminator, config)(inputs).backward()
    plain, with_penalties = d_work
    d_step = plain + (with_penalties - plain) / config.r1_interval
    return (d_step + sum(g_work) / config.d_steps) / _IMAGES


def _translation(config: TrainConfig) -> float:
    roles = {role.name: role.network.to("meta") for role in cyclegan.roles(config)}
    work = 0.0
    with torch.device("meta"):
        images = torch.empty(_IMAGES, *config.image_shape)
        for phase in cyclegan.phases(config, roles):
            for name in phase.resting:
                roles[name].learn(on=False)
            with _counting() as done:
                terms = phase.run(phase.loss, Unpaired(images, images), penalised=False, settle=None)
                torch.autograd.backward(terms.total)
            work += sum(done) / _IMAGES / (1 if phase.batches else config.d_steps)
    return work


def _inputs(config: TrainConfig) -> Inputs:
    uniforms = torch.empty(_IMAGES, UNIFORMS)
    return Inputs(
        latents=torch.empty(_IMAGES, config.z_dim),
        fake_uniforms=uniforms,
        real=torch.empty(_IMAGES, *config.image_shape),
        real_uniforms=uniforms,
        labels=torch.zeros(_IMAGES, dtype=torch.int64) if config.num_classes else None,
        mix=torch.empty(_IMAGES, 1),
    )


@contextmanager
def _counting() -> Iterator[list[int]]:
    """Lists each operation's work; FlopCounterMode hooks into autograd so that autograd.grad is forbidden."""
    work: list[int] = []

    def note(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        if operation is torch.ops.aten.convolution_backward:
            work.append(_convolution_backward(*args))
        elif (count := flop_registry.get(operation)) is not None:
            work.append(int(count(*args, **kwargs, out_val=result)))

    with each_operation(note):
        yield work


def _convolution_backward(outputs: torch.Tensor, inputs: torch.Tensor, weight: torch.Tensor, *rest: Any) -> int:
    """Each weight meets every position of every image once in the inputs' gradient, and once in its own."""
    transposed, (of_inputs, of_weight, _) = rest[4], rest[-1]
    slid_over = inputs if transposed else outputs
    positions = len(slid_over) * math.prod(slid_over.shape[2:])
    return 2 * positions * weight.numel() * (int(of_inputs) + int(of_weight))
