"""Adam for a role's parameters: frozen ones, step sizes by layer, loading of moments."""

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError, nearest
from gangway.trainer.phases.phase import Role, RoleSpec

FACTOR = "lr_factor"  # Key of an optimiser's group, where layers have different step sizes


def frozen_by_role(config: TrainConfig, specs: Sequence[RoleSpec]) -> Mapping[str, frozenset[str]]:
    """Returns the parameters that the configuration freezes, by role (TrainerError: a pattern is of no use)."""
    names = {spec.name: [name for name, _ in spec.network.named_parameters()] for spec in specs}
    every = [f"{role}.{name}" for role, own in names.items() for name in own]
    for pattern in config.freeze:
        _check_pattern("freeze", pattern, every)
    found = {
        role: frozenset(n for n in own if any(fnmatch.fnmatchcase(f"{role}.{n}", each) for each in config.freeze))
        for role, own in names.items()
    }
    learning = [f"{role}.{name}" for role, own in names.items() for name in own if name not in found[role]]
    for number, rate in enumerate(config.layer_rates):
        _check_pattern("layer_rates", rate.layers, every)
        if not any(fnmatch.fnmatchcase(name, rate.layers) for name in learning):
            raise TrainerError(
                place=f"TrainConfig.layer_rates.{number}.layers",
                problem="all weights of such a name are frozen, and a step size is nothing to them",
                value=rate.layers,
                allowed="patterns of some weights at least that freeze does not name",
                fix="leave this rate out, or freeze fewer layers",
            )
    for spec in specs:
        if spec.lr is not None and len(found[spec.name]) == len(names[spec.name]):
            raise TrainerError(
                place="TrainConfig.freeze",
                problem=f"freezes all weights of the {spec.name}, which would learn nothing",
                value=",".join(config.freeze),
                allowed=f"patterns that leave some of the {spec.name}'s weights",
                fix="name fewer layers",
            )
    return {role: frozen for role, frozen in found.items() if frozen}


def _check_pattern(field: str, pattern: str, every: Sequence[str]) -> None:
    if any(fnmatch.fnmatchcase(name, pattern) for name in every):
        return
    layers = dict.fromkeys(f"{name.rpartition('.')[0]}.*" for name in every)
    near = nearest(pattern, layers if "*" in pattern else every)
    raise TrainerError(
        place=f"TrainConfig.{field}",
        problem="no weights of these networks have such a name",
        value=pattern,
        allowed=f"names such as {every[0]}, with * for any part of one",
        fix=f"did you mean {near!r}?" if near else f"'{every[0].rpartition('.')[0]}.*', for example",
    )


def get_groups(role: Role | RoleSpec, config: TrainConfig) -> list[dict[str, Any]]:
    """Returns a role's parameters for its optimiser, in one group per step size."""
    if not config.layer_rates:
        return [{"params": list(role.network.parameters())}]
    groups: dict[float, list[nn.Parameter]] = {}
    for name, parameter in role.network.named_parameters():
        fitting = (rate for rate in config.layer_rates if fnmatch.fnmatchcase(f"{role.name}.{name}", rate.layers))
        factor = next((rate.lr_factor for rate in fitting), 1.0)
        groups.setdefault(factor, []).append(parameter)
    return [{"params": parameters, FACTOR: factor} for factor, parameters in groups.items()]


def adam(
    groups: list[dict[str, Any]], lr: float, betas: tuple[float, float], *, scheduled: bool
) -> torch.optim.Optimizer:
    """Returns Adam in its fast form for the device; `scheduled`: step size or decay will change."""
    # Without fused kernels the number of steps must be a tensor (capturable): as a Python number it would be a new
    # constant, and on XLA a new program, in every step.
    device = next((each.device for group in groups for each in group["params"]), torch.device("cpu"))
    on_xla = device.type == "xla"
    for group in groups:
        group["lr"] = lr * group.get(FACTOR, 1.0)
    if on_xla and scheduled:  # likewise what changes from step to step
        for group in groups:
            group["lr"] = torch.tensor(group["lr"], device=device)
            group["betas"] = betas[0], torch.tensor(betas[1], device=device)
        return torch.optim.Adam(groups, foreach=False, capturable=True)
    return torch.optim.Adam(groups, lr, betas, fused=not on_xla, capturable=on_xla)


def adam_of_stage(role: Role, config: TrainConfig) -> torch.optim.Optimizer:
    """Returns Adam for this stage; the other's parameters are in its groups, on meta, so that numbers stay the same."""
    groups = get_groups(role, config)
    whole = [group["params"] for group in groups]
    for group in groups:
        group["params"] = [parameter for parameter in group["params"] if not parameter.is_meta]
    scheduled = not config.schedules.given.keys().isdisjoint(("lr_g", "lr_d", "beta2"))
    optimiser = adam(groups, getattr(config, role.lr or "lr_g"), (config.beta1, config.beta2), scheduled=scheduled)
    for group, parameters in zip(optimiser.param_groups, whole, strict=True):
        group["params"] = parameters
        for each in parameters:
            zeros = {name: torch.zeros_like(each) for name in ("exp_avg", "exp_avg_sq")}
            optimiser.state[each] = {"step": torch.zeros((), dtype=torch.float32, device=each.device), **zeros}
    return optimiser


def saved_moments(optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    """Returns moments and step counts by parameter; the rest follows from configuration and device."""
    state = optimiser.state_dict()
    return {"state": state["state"], "param_groups": [{"params": each["params"]} for each in state["param_groups"]]}


def load_moments(optimiser: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Loads what `saved_moments` returned, and older checkpoints, which have more.

    Moments take their parameters' layout: fused kernels pair numbers by place in memory, so another would mix them up.
    """
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    state = {
        number: {name: _laid_out_like(parameters[number], value) for name, value in entry.items()}
        for number, entry in saved["state"].items()
    }
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def _laid_out_like(parameter: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    same_shape = value.shape == parameter.shape
    return torch.empty_like(parameter, device=value.device).copy_(value) if same_shape else value


def like_current(current: float | torch.Tensor, value: float) -> float | torch.Tensor:
    """Returns the value like the optimiser's current one: in the same tensor, or as a number."""
    if not isinstance(current, torch.Tensor):
        return value
    # A number passed to a kernel needs no wait; on XLA each number would be another program.
    return current.copy_(torch.tensor(value)) if current.device.type == "xla" else current.fill_(value)
