"""Queries and gathers for networks whose parameters are split over workers (gangway.trainer.steps.sharding)."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule


def _split_parts(module: nn.Module) -> Iterator[Any]:
    """Submodules that FSDP2 has sharded; none for a whole module."""
    return (part for part in module.modules() if hasattr(part, "set_requires_gradient_sync"))


def is_sharded(module: nn.Module) -> bool:
    """Whether a module contains a sharded network, which averages its own gradients."""
    return any(True for _ in _split_parts(module))


def accumulate(module: nn.Module, *, last: bool) -> None:
    """Reduces gradients across nodes only with a step's last micro-batch; no effect on whole networks."""
    for part in _split_parts(module):
        part.set_requires_all_reduce(last)


def watching(module: nn.Module) -> AbstractContextManager[object]:
    """Apply the gathered windows in a module's forward and backward."""
    blocks = contextlib.ExitStack()
    for part in _split_parts(module):
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
        if not hasattr(other, "placements") or hasattr(tensor, "placements") or tensor.shape != other.shape:
            return tensor
        from torch.distributed.tensor import distribute_tensor

        own = tensor.to(other.device).contiguous()
        return distribute_tensor(own, other.device_mesh, other.placements, src_data_rank=None)

    def each(item: Any, other: Any) -> Any:
        if isinstance(item, Tensor):
            return split(item, other)
        if isinstance(item, Mapping):
            return {key: each(value, like.get(key, other)) for key, value in item.items()}
        return [each(value, other) for value in item] if isinstance(item, list) else item

    return each(value, None)


def whole(value: Any) -> Any:
    """Gather every sharded tensor in nested dicts and lists; all workers call this together."""
    return map_tensors(value, lambda tensor: tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor)


def map_tensors(value: Any, change: Callable[[Any], Any]) -> Any:
    """Change every tensor in nested dicts and lists, in order."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {key: map_tensors(item, change) for key, item in value.items()}
    return [map_tensors(item, change) for item in value] if isinstance(value, list | tuple) else value


def tensors(value: object, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yields all tensors in nested dicts and lists by their keys, joined with slashes."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, Mapping | list | tuple):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from tensors(item, f"{name}/{key}" if name else str(key))


SIZE = 2  # Units that stay gathered in a backward: the most recently read ones


class _SavedWeight(NamedTuple):
    storage: torch.UntypedStorage
    unit: "FSDPModule"
    tensor: Tensor


class GatheredWindow:
    """Regathers weights that a double backward reads, a few at a time; `units` of fully_shard include the network.

    A penalty differentiates the logits inside the forward and is differentiated itself in the backward
    (gangway.trainer.phases.losses). FSDP2 frees a unit's weights after its first backward, but the graph of the double
    backward saved them (torch 2.15: "its data is not allocated yet"). FSDP2 only empties the storage of a gathered
    weight and refills the same one later, so it is enough to recognise saved weights and gather their unit before they
    are read.
    """

    def __init__(self, units: Sequence["FSDPModule"]) -> None:
        self._units: dict[int, tuple[torch.UntypedStorage, FSDPModule]] = {}
        self._read: list[FSDPModule] = []
        for unit in units:
            assert isinstance(unit, nn.Module), "a part of the network"
            unit.register_forward_pre_hook(self._register)  # after FSDP2's own, which gathers

    def watching(self) -> AbstractContextManager[object]:
        """A block in which saved tensors are checked for weights."""
        return saved_tensors_hooks(self._pack, self._unpack)

    @property
    def bytes(self) -> int:
        """Size of the gathered weights at present."""
        return sum(storage.nbytes() for storage, _ in self._units.values())

    def _register(self, unit: Any, _: object) -> None:
        """Remember the storages of a gathered unit, which stay the same each time."""
        for parameter in unit.parameters():
            if not hasattr(parameter, "full_tensor"):
                storage = parameter.untyped_storage()
                self._units.setdefault(id(storage), (storage, unit))

    def _pack(self, tensor: Tensor) -> Tensor | _SavedWeight:
        # Detached: a graph that saves its own result would keep itself alive.
        plain = tensor if tensor.is_leaf else tensor.detach()
        found = self._units.get(id(tensor.untyped_storage()))
        return plain if found is None else _SavedWeight(*found, plain)

    def _unpack(self, saved: Tensor | _SavedWeight) -> Tensor:
        if isinstance(saved, Tensor):
            return saved
        if not self._read or self._read[-1] is not saved.unit:
            others = [unit for unit in self._read if unit is not saved.unit]
            while len(others) >= SIZE:
                others.pop(0).reshard()
            self._read = [*others, saved.unit]
        if not saved.storage.nbytes():
            saved.unit.unshard()
        return saved.tensor
