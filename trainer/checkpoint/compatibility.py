"""Checks before loading whether a checkpoint's state fits this trainer's networks."""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import torch
from pydantic import ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from torch import Tensor, nn

from gangway.trainer.config.train_config import RESUMABLE_CHANGES, TrainConfig
from gangway.trainer.families import get_family
from gangway.trainer.phases.optimisers import get_groups
from gangway.trainer.phases.phase import RoleSpec, ema_keys


def misfit(config: TrainConfig, state: Mapping[str, Any]) -> str:
    """Returns how the state differs from the networks of `config`, in a sentence; empty where it fits."""
    if found := _counter_misfit(config, state):
        return found
    with torch.device("meta"):
        roles = get_family(config).roles(config)
    networks = {role.key: role.network for role in roles}
    networks |= {part: role.network for part, role in ema_keys([role for role in roles if role.averaged]).items()}
    for part, network in networks.items():
        if found := _network_misfit(part, network, state.get(part)):
            return found
    for role in roles:
        if role.lr is not None and (found := _moment_misfit(role, config, state.get(f"opt_{role.key}"))):
            return found
    return ""


def _counter_misfit(config: TrainConfig, state: Mapping[str, Any]) -> str:
    images, total = state.get("images"), config.total_images
    if not isinstance(images, int) or isinstance(images, bool) or not 0 <= images <= total:
        return f"images is {images!r}, not a number of images from 0 to {total}"
    step = state.get("step", 0)
    if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step <= images:
        return f"step is {step!r}, not a number of steps from 0 to {images}"
    share = state.get("augment_p", 0.0)
    if not isinstance(share, float) or not 0 <= share <= 1:
        return f"augment_p is {share!r}, not a share from 0 to 1"
    signs = state.get("signs", [0, 0])
    if not isinstance(signs, list) or len(signs) != 2 or not all(type(each) is int for each in signs):
        return f"signs is {signs!r}, not a sum and a number of images"
    return ""


class _Kind(NamedTuple):
    shape: tuple[int, ...]
    dtype: torch.dtype

    def __str__(self) -> str:
        name = str(self.dtype).removeprefix("torch.")
        return f"of shape {list(self.shape)}" + ("" if self.dtype == torch.float32 else f" in {name}")


def _kind(value: object) -> _Kind | None:
    return _Kind(tuple(value.shape), value.dtype) if isinstance(value, Tensor) else None


def _network_misfit(part: str, network: nn.Module, saved: object) -> str:
    if not isinstance(saved, Mapping):
        return f"{part} is {'missing' if saved is None else f'a {type(saved).__name__}, not the tensors of a network'}"
    wanted = {name: _kind(tensor) for name, tensor in network.state_dict().items()}
    for name in [*wanted, *(name for name in saved if name not in wanted)]:
        saved_kind = _kind(saved.get(name))
        if saved_kind != wanted.get(name):
            return f"{part}.{name} is {saved_kind or 'nothing'} where this trainer has {wanted.get(name) or 'nothing'}"
    return ""


def _moment_misfit(role: RoleSpec, config: TrainConfig, saved: object) -> str:
    part, groups = f"opt_{role.key}", get_groups(role, config)
    moments = saved.get("state") if isinstance(saved, Mapping) else None
    if not isinstance(moments, Mapping):
        return f"{part} is missing, or has no moments"
    kinds = [_kind(parameter) for group in groups for parameter in group["params"]]
    for number, entry in moments.items():
        wanted = kinds[number] if isinstance(number, int) and 0 <= number < len(kinds) else None
        for name in ("exp_avg", "exp_avg_sq"):
            saved_kind = _kind(entry.get(name)) if isinstance(entry, Mapping) else None
            if saved_kind is None or saved_kind != wanted:
                where = f"{part}, parameter {number}, {name}"
                return f"{where}, is {saved_kind or 'nothing'} where this trainer has {wanted or 'nothing'}"
        if not isinstance(entry.get("step"), Tensor | int | float):
            return f"{part}, parameter {number}, has no count of steps"
    return ""


_ANY_VALUE = RESUMABLE_CHANGES - {"kimg", "segments"}  # Fields that each session sets again


def _as_saved(value: object, read: ValidatorFunctionWrapHandler) -> TrainConfig:
    """Missing fields compute what older trainers did; refused values that sessions set anew are dropped."""
    try:
        config: TrainConfig = read(value)
    except ValidationError:
        if not isinstance(value, dict):
            raise
        config = read({name: each for name, each in value.items() if name not in _ANY_VALUE})
    return config


SavedConfig = Annotated[TrainConfig, WrapValidator(_as_saved)]
