"""Tensors on their way to a device without a wait: in one piece of page-locked memory, copied at once.

A copy from ordinary memory has the step wait for the GPU, each time. Without a GPU nothing is packed, and nothing
copied that is there already.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

_ALIGNED_BYTES = 512
"""Where each tensor begins: kernels read whole lines of memory."""


class PinnedBatch:
    """Some tensors by name, on the CPU. `pack` puts them into one piece of memory, which `to` then copies at once;
    `pin` into page-locked memory: needs a GPU.
    """

    def __init__(self, contents: Mapping[str, Tensor], *, pack: bool = False, pin: bool = False) -> None:
        self.contents, self._packed = dict(contents), None
        self._places: dict[str, int] = {}
        if not pack:
            return
        size = 0
        for name, tensor in contents.items():
            self._places[name] = size
            size += -(-tensor.nbytes // _ALIGNED_BYTES) * _ALIGNED_BYTES
        self._packed = torch.empty(size, dtype=torch.uint8, pin_memory=pin)
        self.contents = self._views(self._packed, contents)
        for name, tensor in contents.items():
            self.contents[name].copy_(tensor)

    def to(self, device: torch.device) -> dict[str, Tensor]:
        """The tensors on that device: ordered after what it computes now, not waited for."""
        if self._packed is None:
            return {name: tensor.to(device, non_blocking=True) for name, tensor in self.contents.items()}
        return self._views(self._packed.to(device, non_blocking=True), self.contents)

    def _views(self, packed: Tensor, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: packed[place : place + like[name].nbytes].view(like[name].dtype).view(like[name].shape)
            for name, place in self._places.items()
        }


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A small tensor on that device, not waited for."""
    return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)
