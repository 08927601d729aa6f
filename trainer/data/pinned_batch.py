"""Copy tensors to a device from one page-locked block: a copy from ordinary memory waits for the GPU."""

from collections.abc import Mapping

import torch
from torch import Tensor

_ALIGNED_BYTES = 512
"""Alignment of tensors: kernels read whole lines of memory."""


class PinnedBatch:
    """Tensors by name on the CPU; `pack` puts them into one block for a single copy, page-locked with `pin`."""

    def __init__(self, contents: Mapping[str, Tensor], *, pack: bool = False, pin: bool = False) -> None:
        self.contents, self._packed = dict(contents), None
        self._offsets: dict[str, int] = {}
        if not pack:
            return
        size = 0
        for name, tensor in contents.items():
            self._offsets[name] = size
            size += -(-tensor.nbytes // _ALIGNED_BYTES) * _ALIGNED_BYTES
        self._packed = torch.empty(size, dtype=torch.uint8, pin_memory=pin)
        self.contents = self._views(self._packed, contents)
        for name, tensor in contents.items():
            self.contents[name].copy_(tensor)

    def to(self, device: torch.device) -> dict[str, Tensor]:
        """The tensors on that device, copied asynchronously in stream order."""
        if self._packed is None:
            return {name: tensor.to(device, non_blocking=True) for name, tensor in self.contents.items()}
        return self._views(self._packed.to(device, non_blocking=True), self.contents)

    def _views(self, packed: Tensor, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: packed[offset : offset + like[name].nbytes].view(like[name].dtype).view(like[name].shape)
            for name, offset in self._offsets.items()
        }


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a small tensor to the device asynchronously."""
    return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)
