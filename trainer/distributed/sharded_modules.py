"""Queries and gathers for networks whose parameters are split over workers (gangway.trainer.steps.sharding)."""

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn


def split_parts(module: nn.Module) -> Iterator[Any]:
    """Submodules that FSDP2 has sharded; none for a whole module."""
    return (part for part in module.modules() if hasattr(part, "set_requires_gradient_sync"))


def is_sharded(module: nn.Module) -> bool:
    """Whether a module contains a sharded network, which averages its own gradients."""
    return any(True for _ in split_parts(module))


def accumulate(module: nn.Module, *, last: bool) -> None:
    """Reduce gradients across nodes only with a step's last micro-batch. Without effect on whole networks. Within a
    node every micro-batch's gradients are scattered at once, or each worker would hold them whole.
    """
    for part in split_parts(module):
        part.set_requires_all_reduce(last)


def watching(module: nn.Module) -> AbstractContextManager[object]:
    """Apply the gathered windows (gangway.trainer.distributed.gathered_window) in a module's forward and backward."""
    blocks = contextlib.ExitStack()
    for part in split_parts(module):
        if (window := getattr(part, "gathered", None)) is not None:
            blocks.enter_context(window.watching())
    return blocks


def gradients(network: nn.Module) -> list[Tensor]:
    """Gradients of the previous step; of a sharded network this worker's parts."""
    return [parameter.grad for parameter in network.parameters() if parameter.grad is not None]


def local(tensor: Any) -> Tensor:
    """This worker's part of a sharded tensor, sharing its memory; a whole one as is."""
    part: Tensor = tensor.detach().to_local() if hasattr(tensor, "to_local") else tensor
    return part


def placed(value: Any, like: Mapping[Any, Tensor]) -> Any:
    """Shard nested tensors like the parameter of the same name or number, without other workers; meta: empty."""

    def split(tensor: Any, other: Any) -> Any:
        if other is not None and other.is_meta:
            return torch.empty_like(tensor, device="meta")  # on another stage of a pipeline
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

    own = tensor.to(other.device).contiguous()
    return distribute_tensor(own, other.device_mesh, other.placements, src_data_rank=None)


def whole(value: Any) -> Any:
    """Gather every sharded tensor in nested dicts and lists; all workers call this together."""
    if isinstance(value, Tensor):
        return value.full_tensor() if hasattr(value, "full_tensor") else value
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    return [whole(item) for item in value] if isinstance(value, list) else value
