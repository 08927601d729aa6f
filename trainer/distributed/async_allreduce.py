"""Data parallelism on CPUs whose averages may still be in flight after a backward, so that the next pass can start.

The next pass is often of the other network, which needs none of them (gangway.trainer.phases.updates). Not for GPUs:
NCCL has its own streams, and the gain there is not measured.
"""

import time
from typing import NamedTuple

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

_LARGEST_MB = 25
"""Bucket size, DistributedDataParallel's default; without an explicit value it starts with a bucket of 1 MB."""


class _Pending(NamedTuple):
    group: dist.ProcessGroup | None
    works: list[dist.Work]


class AsyncAllreduce(DistributedDataParallel):
    """Averages gradients on the CPU over a group; `waited_sec` is the total time in `wait`."""

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
