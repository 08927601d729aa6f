"""Splits networks that do not fit on one worker with their optimisers: by FSDP2, HSDP, or in a pipeline of two stages.

A pass gathers one of a network's units (`Network.units`) at a time; the penalties' double backward gathers them once
more (`GatheredWindow`). Every micro-batch reduces its gradients at once, or they would be whole on every worker. In
bf16 weights are gathered in bfloat16, and gradients averaged in float32. Not for progressive networks.
"""

import warnings

import torch
from torch import nn

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.distributed.sharded_modules import GatheredWindow, placed
from gangway.trainer.distributed.world import World
from gangway.trainer.families import get_family
from gangway.trainer.networks.base import Generator, Network
from gangway.trainer.phases.optimisers import adam_of_stage, load_moments
from gangway.trainer.steps.pipeline import FirstHalf, SecondHalf, Stage, feature_shape, first_units, parts_of_half
from gangway.trainer.steps.state import TrainState


def shard(state: TrainState, config: TrainConfig, world: World) -> str:
    """Splits networks, averages and optimisers by `config.shard`; returns the choice with its reason. Collective."""
    if config.shard == "ddp":
        return "ddp: whole networks on every worker"
    if world.mesh is None:
        return f"ddp: {config.shard} was asked for, but one process has nothing to share"
    # The networks' outputs are only read, never changed in place.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor", UserWarning)
    saved = [role.learner.state_dict()["state"] for role in state.learners]
    units = 0
    for role in state.roles.values():
        units += _split(role.network, world, torch.bfloat16 if config.precision == "bf16" else None)
        if role.ema is not None:
            _split(role.ema, world, None)
    state.renew_optimisers()
    for role, moments in zip(state.learners, saved, strict=True):
        parameters = dict(enumerate(each for group in role.learner.param_groups for each in group["params"]))
        load_moments(role.learner, {"state": placed(moments, parameters)})
    return f"{config.shard}: over {' x '.join(map(str, world.mesh.shape))} workers, {units} units, asked for"


def _split(network: Network, world: World, dtype: torch.dtype | None) -> int:
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

    for parameter in network.parameters():
        parameter.data = parameter.data.contiguous()  # FSDP2 splits no other layout; activations keep theirs
    units = [*network.units(), network]
    split: list[FSDPModule] = []
    for unit in units:
        lowered = dtype if unit is not network and not getattr(unit, "exact", False) else None
        # Autocast casts the inputs, only where it would without sharding.
        policy = MixedPrecisionPolicy(lowered, torch.float32 if lowered else None, cast_forward_inputs=False)
        whole = fully_shard(unit, mesh=world.mesh, reshard_after_forward=True, mp_policy=policy)
        split.append(whole)
    network.gathered = GatheredWindow(split)
    return len(units)


def divide(state: TrainState, config: TrainConfig, world: World) -> str:
    """Divides a generator over pairs of workers; the other half stays as meta tensors, so that names do not change."""
    if not world.is_pipelined:
        return "ddp: a pipeline was asked for, but one process has nobody to share with"
    generator, stage = state.generator, world.stage
    units, cut = len(generator.units()), first_units(generator)
    for network in (generator, state.ema):
        _keep_only(network, parts_of_half(network, stage), world.device)
    _keep_only(state.discriminator, list(state.discriminator.parameters()) if stage else [], world.device)
    for role in state.learners:
        role.optimizer = adam_of_stage(role, state.config)
    with torch.device("meta"):
        whole = next(spec.network for spec in get_family(config).roles(config) if spec.name == "generator")
    assert isinstance(whole, Generator), "of that name"
    shape = feature_shape(whole, config.z_dim, config.num_classes)
    half = SecondHalf(generator, shape) if stage else FirstHalf(generator)
    state.stage = Stage(world, half, state.discriminator, torch.Size(shape).numel())
    pairs = world.dp_size
    return (
        f"pipeline: {cut} of the generator's {units} units on the first of two stages, the others and the "
        f"discriminator on the second, {pairs} pair{'s' * (pairs > 1)}, asked for"
    )


def _keep_only(network: nn.Module, here: list[nn.Parameter], device: torch.device) -> None:
    here_ids = {id(parameter) for parameter in here}
    for module in network.modules():
        for name, parameter in module.named_parameters(recurse=False):
            to = parameter.to(device) if id(parameter) in here_ids else parameter.to("meta")
            setattr(module, name, nn.Parameter(to.detach(), requires_grad=parameter.requires_grad))
