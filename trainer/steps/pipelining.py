"""Dividing a generator over pairs of workers: half of its weights, moments and average on each.

What is elsewhere stays in the networks as tensors of the meta device, which have a shape and take no memory: names and
numbers of parameters are those of whole networks, and so checkpoints are. The discriminator is on the second stage,
whole: its loss is where fakes end, and images would otherwise travel too, there and back.
"""

import torch
from torch import nn

from trainer.config.train_config import TrainConfig
from trainer.distributed.world import World
from trainer.families.registry import get_family
from trainer.networks.base import Generator
from trainer.networks.halves import FirstHalf, SecondHalf, feature_shape, first_units, parts_of_half
from trainer.phases.optimisers import adam_of_stage
from trainer.steps.pipeline import Stage
from trainer.steps.state import TrainState


def divide(state: TrainState, config: TrainConfig, world: World) -> str:
    """Leaves this worker its part of a new state, all workers together; what was done, and why."""
    if not world.is_pipelined:
        return "ddp: a pipeline was asked for, but one process has nobody to share with"
    generator, stage = state.generator, world.stage
    units, cut = len(generator.units()), first_units(generator)
    for network in (generator, state.ema):
        _leave(network, parts_of_half(network, stage), world.device)
    _leave(state.discriminator, list(state.discriminator.parameters()) if stage else [], world.device)
    for role in state.learners:
        role.optimizer = adam_of_stage(role, state.config)
    shape = _feature_shape(config)
    half = SecondHalf(generator, shape) if stage else FirstHalf(generator)
    state.stage = Stage.of(world, half, state.discriminator, torch.Size(shape).numel())
    pairs = world.dp_size
    return (
        f"pipeline: {cut} of the generator's {units} units on the first of two stages, the others and the "
        f"discriminator on the second, {pairs} pair{'s' * (pairs > 1)}, asked for"
    )


def _leave(network: nn.Module, here: list[nn.Parameter], device: torch.device) -> None:
    """Moves what is here to its device, and leaves of all else the shapes."""
    kept = {id(parameter) for parameter in here}
    for module in network.modules():
        for name, parameter in module.named_parameters(recurse=False):
            to = parameter.to(device) if id(parameter) in kept else parameter.to("meta")
            setattr(module, name, nn.Parameter(to.detach(), requires_grad=parameter.requires_grad))


def _feature_shape(config: TrainConfig) -> tuple[int, ...]:
    with torch.device("meta"):
        network = next(spec.network for spec in get_family(config).roles(config) if spec.name == "generator")
    assert isinstance(network, Generator), "of that name"
    return feature_shape(network, config.z_dim, config.num_classes)
