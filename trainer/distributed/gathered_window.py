"""Regather weights of a sharded network that a double backward reads, a few units at a time.

A penalty differentiates the logits inside the forward and is differentiated itself in the backward
(gangway.trainer.steps.losses). FSDP2 frees a unit's weights after its first backward, but the graph of the double
backward saved them (torch 2.15: "its data is not allocated yet"). FSDP2 only empties the storage of a gathered weight
and refills the same one later, so it is enough to recognise saved weights and gather their unit before they are read.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule

SIZE = 2
"""Units that stay gathered in a backward: the most recently read ones."""


class _SavedWeight(NamedTuple):
    storage: torch.UntypedStorage
    unit: "FSDPModule"
    tensor: Tensor


class GatheredWindow:
    """The window of one network whose `units`, including itself, are sharded by fully_shard."""

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
