"""Compares the workers' networks bit by bit at an interval.

An all-reduce makes gradients equal whatever they came from, so weights, moments and averages are compared first.
"""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn
from torch import distributed as dist

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.distributed.sharded_modules import local
from gangway.trainer.distributed.world import World
from gangway.trainer.steps.state import TrainState

_MOMENTS = ("exp_avg", "exp_avg_sq")


def is_due(config: TrainConfig, step: int) -> bool:
    """Whether to compare the workers after `step`."""
    return config.check_gradients_steps > 0 and step % config.check_gradients_steps == 0


def check_same(world: World, state: TrainState) -> None:
    """Raises TrainerError on all for the first tensor that differs between workers with the same part. Collective."""
    found = first_difference(world, _named_tensors(state))
    if found is None:
        return
    name, sums = found
    raise TrainerError(
        place=name,
        problem="differs between workers; training on would be wrong",
        value=f"bit sums by rank {sums}",
        allowed="the same bits on every rank",
        fix="resume from the last checkpoint; if it happens again, suspect a device or a mixed image",
    )


def first_difference(world: World, named: Iterable[tuple[str, Tensor]]) -> tuple[str, list[int]] | None:
    """Returns the first float32 tensor whose bits differ, and every worker's bit sum, or None. Collective."""
    in_stages = world.is_pipelined
    tensors = [(name, local(tensor), in_stages or tensor is not local(tensor)) for name, tensor in named]
    if world.control is None or not tensors:
        return None
    sums = torch.stack([_bit_sum(tensor, world.device) for _, tensor, _ in tensors]).cpu()
    everyone = [torch.empty_like(sums) for _ in range(world.world_size)]
    dist.all_gather(everyone, sums, group=world.control)
    rows, split = torch.stack(everyone), torch.tensor([split for _, _, split in tensors])
    reference = torch.where(split, rows[world.first_with_part], rows[0])
    differs = (rows != reference).any(dim=0).nonzero()
    if not len(differs):
        return None
    first = int(differs[0])
    return tensors[first][0], [int(row[first]) for row in everyone]


def _named_tensors(state: TrainState) -> Iterator[tuple[str, Tensor]]:
    roles = state.roles.values()
    for role in roles:
        yield from _named("weight", role.name, role.network)
    for role in state.learners:
        for name, parameter in role.network.named_parameters():
            moments = role.learner.state.get(parameter, {})
            yield from ((f"Adam's {each} of {role.name}.{name}", moments[each]) for each in _MOMENTS if each in moments)
    for role in roles:
        if role.ema is not None:
            yield from _named("weight", f"averaged {role.name}", role.ema)
    for role in roles:
        for name, parameter in role.network.named_parameters():
            # A stage does not know which meta parameters have gradients elsewhere, so all count.
            if parameter.grad is not None or parameter.is_meta:
                yield f"gradient of {role.name}.{name}", parameter if parameter.grad is None else parameter.grad


def _named(kind: str, label: str, network: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return ((f"{kind} {label}.{name}", parameter) for name, parameter in network.named_parameters())


def _bit_sum(tensor: Tensor, device: torch.device) -> Tensor:
    if tensor.is_meta:  # another stage's
        return torch.zeros((), dtype=torch.int64, device=device)
    # As integers, whose sum is exact in any order.
    return tensor.detach().contiguous().view(torch.int32).sum(dtype=torch.int64)
