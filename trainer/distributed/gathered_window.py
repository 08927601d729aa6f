"""Weights that a backward takes from a sharded network, gathered when they are needed and a few units at a time.

A penalty differentiates the logits inside the forward and is differentiated itself in the backward (trainer.steps
.losses). FSDP2 gathers a unit's weights for its forward, and for the first backward through its outputs; the graph of
the double backward has kept the same weights, and finds them gone (torch 2.15: "its data is not allocated yet"). But
FSDP2 only empties the storage of a gathered weight, and fills the very same one when the unit is gathered again: so
what the graph has kept need but be recognised, and its unit gathered before it is read.
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
"""Units that stay gathered in a backward: those that were read last, whoever has gathered them."""


class _Kept(NamedTuple):
    """A weight that a graph has kept, or a view of one."""

    storage: torch.UntypedStorage
    unit: "FSDPModule"
    tensor: Tensor


class GatheredWindow:
    """Of one network whose `units`, itself among them, are sharded by fully_shard and freed after each pass."""

    def __init__(self, units: Sequence["FSDPModule"]) -> None:
        self._of: dict[int, tuple[torch.UntypedStorage, FSDPModule]] = {}
        self._read: list[FSDPModule] = []
        for unit in units:
            assert isinstance(unit, nn.Module), "a part of the network"
            unit.register_forward_pre_hook(self._know)  # after FSDP2's own, which gathers

    def watching(self) -> AbstractContextManager[object]:
        """A block in which what graphs keep is looked through for weights."""
        return saved_tensors_hooks(self._pack, self._unpack)

    @property
    def bytes(self) -> int:
        """That gathered weights take now."""
        return sum(storage.nbytes() for storage, _ in self._of.values())

    def _know(self, unit: Any, _: object) -> None:
        """Notes where the unit's weights lie when they are gathered: in the same place each time."""
        for parameter in unit.parameters():
            if not hasattr(parameter, "full_tensor"):
                storage = parameter.untyped_storage()
                self._of.setdefault(id(storage), (storage, unit))

    def _pack(self, tensor: Tensor) -> Tensor | _Kept:
        # Without its history: a graph that keeps its own result would keep itself.
        plain = tensor if tensor.is_leaf else tensor.detach()
        found = self._of.get(id(tensor.untyped_storage()))
        return plain if found is None else _Kept(*found, plain)

    def _unpack(self, kept: Tensor | _Kept) -> Tensor:
        if isinstance(kept, Tensor):
            return kept
        if not self._read or self._read[-1] is not kept.unit:
            others = [unit for unit in self._read if unit is not kept.unit]
            while len(others) >= SIZE:
                others.pop(0).reshard()
            self._read = [*others, kept.unit]
        if not kept.storage.nbytes():
            kept.unit.unshard()
        return kept.tensor
