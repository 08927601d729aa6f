"""Data parallelism for a step that is recorded as a CUDA graph: a phase's gradients averaged in one message.

DistributedDataParallel sends buckets during the backward by host hooks, which a graph cannot run: its collectives are
recorded like kernels (NCCL user guide, "Using NCCL with CUDA Graphs").
"""

from typing import Any

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class FlatAverage(nn.Module):
    """The loss inside `wrapped`; all workers call `average` to replace gradients by their mean over the group."""

    def __init__(self, wrapped: DistributedDataParallel) -> None:
        super().__init__()
        self.loss: nn.Module = wrapped.module
        self._group = wrapped.process_group

    def forward(self, *inputs: Any) -> Any:
        """Compute the loss."""
        return self.loss(*inputs)

    def average(self) -> None:
        """Average in one all-reduce; without gradients nothing is sent."""
        gradients = [each.grad for each in self.loss.parameters() if each.grad is not None]
        if not gradients:
            return
        message = torch.cat([gradient.flatten() for gradient in gradients]) / dist.get_world_size(self._group)
        dist.all_reduce(message, group=self._group)
        for gradient, part in zip(gradients, torch.split(message, [each.numel() for each in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def warm_up(self) -> None:
        """Send zeros of the same size: the first message of a size opens connections, which no graph can record."""
        learning = [each for each in self.loss.parameters() if each.requires_grad]
        if learning:
            size = sum(each.numel() for each in learning)
            dist.all_reduce(torch.zeros(size, device=learning[0].device), group=self._group)
