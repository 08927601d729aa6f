"""Memory: an allocator setting for training on a CPU, and errors where memory is too small.

Networks that cannot fit are refused before they are built: the kernel would promise the memory, then kill the process
that uses it. A step's tensors are only estimated (gangway.trainer.config.step_memory), so they refuse nothing. glibc
returns every large freed block to the kernel, and the next step takes it again: mapping pages took a quarter of the CPU
time (1.2-1.4 to 0.9 CPU seconds per thousand images, dcgan-digits).
"""

import ctypes
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from gangway.trainer.config.network_size import host_gib, smaller_networks
from gangway.trainer.config.refusals import Refusal, device_memory, xla_memory
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.segments import Span
from gangway.trainer.core.errors import LoneError, TrainerError
from gangway.trainer.distributed.world import World, is_shared_failure
from gangway.trainer.telemetry.devices import device_memory_gib, free_host_memory_gib

# From malloc.h of glibc.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEEP_BYTES = 1 << 30
_GIB = 1 << 30
_CPU_REFUSED = re.compile(r"DefaultCPUAllocator: .*allocate (\d+) bytes")
"""torch raises a plain RuntimeError with this message."""


def keep_freed_memory() -> str:
    """Lets this process reuse up to 1 GiB of freed memory; returns a description of the setting."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return "unchanged: the C library has no mallopt"
    done = mallopt(_M_MMAP_THRESHOLD, _KEEP_BYTES) and mallopt(_M_TRIM_THRESHOLD, _KEEP_BYTES)
    return "glibc, freed memory kept" if done else "unchanged: mallopt refused"


def check_networks_fit(config: TrainConfig, world: World, span: Span | None = None) -> None:
    """Raises TrainerError where the networks exceed the memory of this node, GPU (with a step) or TPU (between steps).

    `span` limits the check to a part of the run, for networks that grow; None for all of it. Each worker builds both
    networks and the generator's average on the CPU; training there adds gradients and Adam's two moments.
    """
    trains_here = world.device.type == "cpu" and config.shard == "ddp"
    workers = world.world_size // world.num_nodes
    _check_host(config, workers, trains_here=trains_here)
    memory_gib = device_memory_gib(world.device)
    if memory_gib is None:
        return
    found: Iterable[Refusal]
    if world.on_xla:
        found = xla_memory(config, memory_gib, "this device", span)
    else:
        found = device_memory(config, workers, world.num_nodes, memory_gib, "this GPU", span)
    for one in found:
        flags = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in one.changes.items())
        raise TrainerError(
            place=f"TrainConfig.{one.field}",
            problem=one.problem,
            value=getattr(config, one.field),
            allowed=one.allowed,
            fix=flags or "smaller networks, or devices with more memory",
        )


def _check_host(config: TrainConfig, workers: int, *, trains_here: bool) -> None:
    def needed_gib(each: TrainConfig) -> float:
        return workers * host_gib(each, trains_here=trains_here)

    free_gib = free_host_memory_gib()
    if needed_gib(config) <= free_gib:
        return
    field, _ = smaller_networks(config, needed_gib, lambda each: needed_gib(each) <= free_gib)
    parts = "weights, gradients, moments and average" if trains_here else "weights and average"
    owners = f"{workers} workers" if workers > 1 else "a worker"
    raise TrainerError(
        place=f"TrainConfig.{field}",
        problem=f"the networks' {parts} need {needed_gib(config):,.1f} GiB for {owners} on a node",
        value=getattr(config, field),
        allowed=f"what fits into the {free_gib:,.1f} GiB that are free here",
        fix=f"a smaller --{field.replace('_', '-')}{', fewer workers on a node' if workers > 1 else ''}, "
        "or a node with more memory",
    )


@contextmanager
def enough_memory(config: TrainConfig, world: World) -> Iterator[None]:
    """Turns running out of memory into a LoneError that names batch_gpu and the next smaller size."""
    try:
        yield
    except RuntimeError as error:
        found = _allocator_message(error)
        if not found or is_shared_failure(error):  # of metrics, or samples: no batch_gpu makes them smaller
            raise
        share = world.slice(config.batch_size, config.group)
        size = config.batch_gpu or share.stop - share.start
        smaller = [each for each in range(config.group, size, config.group) if config.batch_size % each == 0]
        flags = f"--batch-gpu {smaller[-1] if smaller else 1}{' --cuda-graphs false' if config.cuda_graphs else ''}"
        fewer = f"{flags}: a run that has begun may change it" if smaller else "smaller networks"
        raise LoneError(
            place="TrainConfig.batch_gpu",
            problem=f"worker {world.rank}'s memory does not hold a step on {size} image(s) at once ({found})",
            value=config.batch_gpu,
            allowed=f"a divisor of the batch of {config.batch_size} below {size}" if smaller else "",
            fix=f"{fewer}; or machines with more memory, or more of them",
        ) from error


def _allocator_message(error: RuntimeError) -> str:
    """Returns the allocator's message; empty for any other error."""
    if isinstance(error, torch.OutOfMemoryError):
        return str(error).split(". ", maxsplit=1)[0]
    refused = _CPU_REFUSED.search(str(error))
    return f"no room for a tensor of {int(refused[1]) / _GIB:,.1f} GiB" if refused else ""
