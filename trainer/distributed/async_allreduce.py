"""Data parallelism whose averages may still travel when a backward has returned, so that what comes next can begin.

On CPUs the next thing is often a pass of the other network, which needs none of them (trainer.phases.updates). Not for
GPUs: NCCL has streams of its own to wait for, and the gain there has not been measured.
"""

import time
from typing import NamedTuple

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

_LARGEST_MB = 25
"""Of a message. That is DistributedDataParallel's default too; but where it is told, it does not begin with 1 MB."""


class _UnderWay(NamedTuple):
    """Averages of a group that have been asked for, and have not come yet."""

    group: dist.ProcessGroup | None
    works: list[dist.Work]


class AsyncAllreduce(DistributedDataParallel):
    """Averages gradients, on the CPU, plainly over a group, None for the default one. They are ready once `wait` has
    returned.

    Attributes:
        waited_sec: in `wait`, since it was made.
    """

    def __init__(self, module: nn.Module, group: dist.ProcessGroup | None = None) -> None:
        # A network's gradients in one message: there is time for it to travel, and each one more wakes both workers.
        super().__init__(module, process_group=group, gradient_as_bucket_view=True, bucket_cap_mb=_LARGEST_MB)
        self._under_way = _UnderWay(group, [])
        self.waited_sec = 0.0
        self.register_comm_hook(self._under_way, _begin)

    def wait(self) -> None:
        """Returns when all averages have come (gloo's RuntimeError: another worker has gone)."""
        began = time.perf_counter()
        while self._under_way.works:
            self._under_way.works.pop().wait()
        self.waited_sec += time.perf_counter() - began


def _begin(
    under_way: _UnderWay,
    bucket: dist.GradBucket,  # type: ignore[name-defined]  # torch.distributed has it, and its annotations do not say so
) -> torch.futures.Future[torch.Tensor]:
    """Sends a bucket off. Gradients are views of it, so the average comes to where they are."""
    gradients = bucket.buffer().mul_(1 / dist.get_world_size(under_way.group))
    work = dist.all_reduce(gradients, group=under_way.group, async_op=True)
    assert work is not None, "asynchronous"
    under_way.works.append(work)
    at_once: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    at_once.set_result(gradients)
    return at_once
