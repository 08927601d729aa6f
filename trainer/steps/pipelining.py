"""Divides a generator over pairs of workers: half of its weights, moments and average on each.

The other half stays in the networks as meta tensors, which have a shape and take no memory, so that names and numbers
of parameters, and checkpoints, are those of whole networks. The whole discriminator is on the second stage; otherwise
images would travel between the stages too.
"""

import torch
from torch import nn

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.distributed.world import World
from gangway.trainer.families.registry import get_family
from gangway.trainer.networks.base import Generator
from gangway.trainer.networks.halves import FirstHalf, SecondHalf, feature_shape, first_units, parts_of_half
from gangway.trainer.phases.optimisers import adam_of_stage
from gangway.trainer.steps.pipeline import Stage
from gangway.trainer.steps.state import TrainState


def divide(state: TrainState, config: TrainConfig, world: World) -> str:
    """Keeps only this worker's part of a new state; returns the choice with its reason. Collective."""
    if not world.is_pipelined:
        return "ddp: a pipeline was asked for, but one process has nobody to share with"
    generator, stage = state.generator, world.stage
    units, cut = len(generator.units()), first_units(generator)
    for network in (generator, state.ema):
        _keep_only(network, parts_of_half(network, stage), world.device)
    _keep_only(state.discriminator, list(state.discriminator.parameters()) if stage else [], world.device)
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


def _keep_only(network: nn.Module, here: list[nn.Parameter], device: torch.device) -> None:
    """Moves the parameters in `here` to the device, and all others to meta."""
    here_ids = {id(parameter) for parameter in here}
    for module in network.modules():
        for name, parameter in module.named_parameters(recurse=False):
            to = parameter.to(device) if id(parameter) in here_ids else parameter.to("meta")
            setattr(module, name, nn.Parameter(to.detach(), requires_grad=parameter.requires_grad))


def _feature_shape(config: TrainConfig) -> tuple[int, ...]:
    with torch.device("meta"):
        network = next(spec.network for spec in get_family(config).roles(config) if spec.name == "generator")
    assert isinstance(network, Generator), "of that name"
    return feature_shape(network, config.z_dim, config.num_classes)
