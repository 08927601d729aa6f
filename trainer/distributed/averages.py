"""Averages of gradients over workers: asynchronous on CPUs, in one message for CUDA graphs, and in a compiled loss."""

import time
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.func import functional_call
from torch.fx import Graph, Node
from torch.nn.parallel import DistributedDataParallel

from gangway.trainer.core.torch_private import all_reduce_in_graphs

_LARGEST_MB = 25
"""Bucket size, DistributedDataParallel's default; without an explicit value it starts with a bucket of 1 MB."""


class _Pending(NamedTuple):
    group: dist.ProcessGroup | None
    works: list[dist.Work]


class AsyncAllreduce(DistributedDataParallel):
    """Averages gradients on the CPU over a group; `waited_sec` is the total time in `wait`.

    Averages may still be in flight after a backward, so that the next pass can start: it is often of the other network,
    which needs none of them (gangway.trainer.phases.updates). Not for GPUs: NCCL has its own streams, and the gain
    there is not measured.
    """

    def __init__(self, module: nn.Module, group: dist.ProcessGroup | None = None) -> None:
        # One message per network: there is time to send it, and every further one wakes both workers.
        super().__init__(module, process_group=group, gradient_as_bucket_view=True, bucket_cap_mb=_LARGEST_MB)
        self._pending = _Pending(group, [])
        self.waited_sec = 0.0
        self.register_comm_hook(self._pending, _send)

    def wait(self) -> None:
        """Wait for all averages (gloo's RuntimeError: another worker is lost)."""
        began = time.perf_counter()
        while self._pending.works:
            self._pending.works.pop().wait()
        self.waited_sec += time.perf_counter() - began


def _send(
    pending: _Pending,
    bucket: dist.GradBucket,  # type: ignore[name-defined]  # missing in torch.distributed's annotations
) -> torch.futures.Future[torch.Tensor]:
    # Gradients are views of the bucket, so the average arrives in place.
    gradients = bucket.buffer().mul_(1 / dist.get_world_size(pending.group))
    work = dist.all_reduce(gradients, group=pending.group, async_op=True)
    assert work is not None, "asynchronous"
    pending.works.append(work)
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(gradients)
    return done


class FlatAverage(nn.Module):
    """The loss inside `wrapped`; all workers call `average` to replace gradients by their mean over the group.

    For a step that is recorded as a CUDA graph. DistributedDataParallel sends buckets during the backward by host
    hooks, which a graph cannot run: its collectives are recorded like kernels (NCCL user guide, "Using NCCL with CUDA
    Graphs").
    """

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


class InGraphAverage(nn.Module):
    """A loss whose backwards average gradients over the default group, compiled or not; all workers make the same.

    Inside a compiled backward, a message leaves as soon as its gradients exist (`averages_first`).
    """

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss
        self._messages = _split_names(loss)

    def forward(self, *inputs: Any) -> Any:
        """Compute the loss."""
        parameters: dict[str, Tensor] = dict(self.loss.named_parameters())
        for names in self._messages:
            averaged = _Averaged.apply(*(parameters[name] for name in names))
            parameters.update(zip(names, averaged, strict=True))
        return functional_call(self.loss, parameters, inputs)


def _split_names(module: nn.Module) -> list[list[str]]:
    """Splits names into two messages of about equal size: later layers' are sent while the rest is computed."""
    trainable = [(name, p.numel() * p.element_size()) for name, p in module.named_parameters() if p.requires_grad]
    ends = list(accumulate(size for _, size in trainable))
    halves: list[list[str]] = [[], []]
    for (name, size), end in zip(trainable, ends, strict=True):
        halves[end - size / 2 > ends[-1] / 2].append(name)
    return [names for names in halves if names]


def averages_first(graph: Graph) -> None:
    """Reorder a graph in place: each average directly after what it needs, then the rest."""
    # Autograd calls `_Averaged` last, since parameters precede everything computed from them.
    nodes = list(graph.nodes)
    all_reduce = all_reduce_in_graphs()
    averages = [node for node in nodes if node.target is all_reduce]
    place = {node: number for number, node in enumerate(nodes)}
    first: dict[Node, None] = {}
    for average in averages:
        needed, ahead = {average}, [average]
        while ahead:
            found = [node for node in ahead.pop().all_input_nodes if node not in needed and node not in first]
            needed.update(found)
            ahead += found
        first |= dict.fromkeys(sorted(needed, key=place.__getitem__))
    last = next((node for node in reversed(nodes) if node.op == "placeholder"), None)
    if last is None or not averages:
        return
    for node in first:
        if node.op != "placeholder":
            last.append(node)
            last = node


class _Averaged(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *parameters: Tensor) -> tuple[Tensor, ...]:
        return tuple(parameter.view_as(parameter) for parameter in parameters)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        message = torch.cat([gradient.flatten() for gradient in gradients]) / dist.get_world_size()
        dist.all_reduce(message)
        parts = torch.split(message, [gradient.numel() for gradient in gradients])
        return tuple(part.view_as(gradient) for part, gradient in zip(parts, gradients, strict=True))
