"""Networks whose parameters are split over workers (trainer.steps.sharding), for others to ask and to gather."""

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn


def split_parts(module: nn.Module) -> Iterator[Any]:
    """The parts of a module that FSDP2 has split; none of a whole one."""
    return (part for part in module.modules() if hasattr(part, "set_requires_gradient_sync"))


def is_sharded(module: nn.Module) -> bool:
    """Whether a module holds a split network, which averages its gradients itself."""
    return any(True for _ in split_parts(module))


def accumulate(module: nn.Module, *, last: bool) -> None:
    """Lets gradients go from node to node with a step's last micro-batch alone; within a node each micro-batch's are
    divided at once, or they would be whole on every worker. Without effect on a network that is not split.
    """
    for part in split_parts(module):
        part.set_requires_all_reduce(last)


def watching(module: nn.Module) -> AbstractContextManager[object]:
    """For a forward through a module and its backward: the windows of the split networks in it (trainer.distributed
    .gathered_window).
    """
    blocks = contextlib.ExitStack()
    for part in split_parts(module):
        if (window := getattr(part, "gathered", None)) is not None:
            blocks.enter_context(window.watching())
    return blocks


def gradients(network: nn.Module) -> list[Tensor]:
    """The gradients of the step before, of a split network this worker's parts."""
    return [parameter.grad for parameter in network.parameters() if parameter.grad is not None]


def local(tensor: Any) -> Tensor:
    """This worker's part of a split tensor, which shares its memory; a whole one as it is."""
    part: Tensor = tensor.detach().to_local() if hasattr(tensor, "to_local") else tensor
    return part


def placed(value: Any, like: Mapping[Any, Tensor]) -> Any:
    """Nested dicts and lists with every tensor that belongs to a split one, by its name or by the number of the
    parameter that it is a moment of, split like that; without numbers it is made anew. Nobody else is asked for them.
    """

    def split(tensor: Any, other: Any) -> Any:
        if other is not None and other.is_meta:
            return torch.empty_like(tensor, device="meta")  # a pipeline has it on another stage
        if tensor.device.type == "meta":
            same = other is not None and hasattr(other, "placements") and tensor.shape == other.shape
            return torch.empty_like(other) if same else torch.empty(tensor.shape, dtype=tensor.dtype)
        return _split_like(tensor, other)

    def each(item: Any, other: Any) -> Any:
        if isinstance(item, Tensor):
            return split(item, other)
        if isinstance(item, Mapping):
            return {key: each(value, like.get(key, other)) for key, value in item.items()}
        return [each(value, other) for value in item] if isinstance(item, list) else item

    return each(value, None)


def _split_like(tensor: Any, other: Any) -> Any:
    if not hasattr(other, "placements") or hasattr(tensor, "placements") or tensor.shape != other.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    here = tensor.to(other.device).contiguous()
    return distribute_tensor(here, other.device_mesh, other.placements, src_data_rank=None)


def whole(value: Any) -> Any:
    """Nested dicts and lists with every split tensor gathered; all workers call this together where any is split."""
    if isinstance(value, Tensor):
        return value.full_tensor() if hasattr(value, "full_tensor") else value
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    return [whole(item) for item in value] if isinstance(value, list) else value
