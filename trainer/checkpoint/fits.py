"""Whether a checkpoint's state is one that this trainer's networks take: asked before any of it is loaded."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from trainer.config.train_config import TrainConfig
from trainer.families.registry import family_of
from trainer.run.optimisers import groups_of
from trainer.steps.roles import RoleSpec, ema_keys


def misfit(config: TrainConfig, state: Mapping[str, Any]) -> str:
    """What of the state the networks of `config` do not take, in one sentence; empty where they take all of it. The
    networks are built without memory, by names and shapes alone.
    """
    with torch.device("meta"):
        roles = family_of(config).roles(config)
    networks = {role.key: role.network for role in roles}
    networks |= {part: role.network for part, role in ema_keys([role for role in roles if role.averaged]).items()}
    for part, network in networks.items():
        if found := _unlike(part, network, state.get(part)):
            return found
    for role in roles:
        if role.lr is not None and (found := _unlike_moments(role, config, state.get(f"opt_{role.key}"))):
            return found
    return ""


def _unlike(part: str, network: nn.Module, saved: object) -> str:
    if not isinstance(saved, Mapping):
        return f"{part} is {'missing' if saved is None else f'a {type(saved).__name__}, not the tensors of a network'}"
    wanted = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    for name in [*wanted, *(name for name in saved if name not in wanted)]:
        there = tuple(saved[name].shape) if isinstance(saved.get(name), Tensor) else None
        if there != wanted.get(name):
            return f"{part}.{name} is {_shown(there)} where this trainer has {_shown(wanted.get(name))}"
    return ""


def _unlike_moments(role: RoleSpec, config: TrainConfig, saved: object) -> str:
    part, groups = f"opt_{role.key}", groups_of(role, config)
    moments = saved.get("state") if isinstance(saved, Mapping) else None
    if not isinstance(moments, Mapping):
        return f"{part} is missing, or has no moments"
    shapes = [tuple(parameter.shape) for group in groups for parameter in group["params"]]
    for number, entry in moments.items():
        there = tuple(entry["exp_avg"].shape) if isinstance(entry, Mapping) and "exp_avg" in entry else None
        wanted = shapes[number] if isinstance(number, int) and number < len(shapes) else None
        if there is None or there != wanted:
            return f"{part}, parameter {number}, is {_shown(there)} where this trainer has {_shown(wanted)}"
    return ""


def _shown(shape: tuple[int, ...] | None) -> str:
    return "nothing" if shape is None else f"of shape {list(shape)}"
