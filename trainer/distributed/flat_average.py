"""Data parallelism for a step that is recorded as a graph: a phase's gradients averaged in one flat message.

DistributedDataParallel sends buckets while the backward computes, by hooks that the host runs. A graph has no host: its
collectives are recorded like kernels (NCCL user guide, "Using NCCL with CUDA Graphs"), and one message after the
backward is the fewest of them.
"""

from typing import Any

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class FlatAverage(nn.Module):
    """The loss inside `wrapped`, over the same parameters. `average` makes the gradients of the backwards since they
    were last set to zero their plain mean over the group; all workers call it together.
    """

    def __init__(self, wrapped: DistributedDataParallel) -> None:
        super().__init__()
        self.loss: nn.Module = wrapped.module
        self._group = wrapped.process_group

    def forward(self, *inputs: Any) -> Any:
        """See the loss."""
        return self.loss(*inputs)

    def average(self) -> None:
        """One all-reduce. Without a gradient nothing is sent."""
        gradients = [each.grad for each in self.loss.parameters() if each.grad is not None]
        if not gradients:
            return
        message = torch.cat([gradient.flatten() for gradient in gradients]) / dist.get_world_size(self._group)
        dist.all_reduce(message, group=self._group)
        for gradient, part in zip(gradients, torch.split(message, [each.numel() for each in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def warm_up(self) -> None:
        """Sends as much once, of zeros: a first message of a size makes connections, which no graph can record."""
        learning = [each for each in self.loss.parameters() if each.requires_grad]
        if learning:
            size = sum(each.numel() for each in learning)
            dist.all_reduce(torch.zeros(size, device=learning[0].device), group=self._group)
