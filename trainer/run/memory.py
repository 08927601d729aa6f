"""Memory: one setting of the C library's allocator, for training on a CPU; and too little of it, in words.

Networks that cannot fit are refused before they are made: the kernel would promise their memory, and kill the process
when it is used. What a step's own tensors take is an estimate (trainer.config.step_memory), and refuses nothing. glibc
returns every large freed block to the kernel, and a step takes the same again: a quarter of the CPU time went into
mapping pages anew (1.2-1.4 to 0.9 CPU seconds per thousand images, dcgan-digits).
"""

import ctypes
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from trainer.config.network_size import host_gib, smaller_networks
from trainer.config.refusals import Refusal, device_memory, xla_memory
from trainer.config.train_config import TrainConfig
from trainer.config.values.segments import Span
from trainer.core.errors import LoneError, TrainerError
from trainer.distributed.world import World, is_shared_failure
from trainer.telemetry.devices import device_memory_gib, free_host_memory_gib

# From malloc.h of glibc.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEEP_BYTES = 1 << 30
_GIB = 1 << 30
_CPU_REFUSED = re.compile(r"DefaultCPUAllocator: .*allocate (\d+) bytes")
"""In torch's message, which is a plain RuntimeError's."""


def keep_freed_memory() -> str:
    """Lets this process keep what it frees, up to 1 GiB, for its next allocations; returns what was done."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return "unchanged: the C library has no mallopt"
    done = mallopt(_M_MMAP_THRESHOLD, _KEEP_BYTES) and mallopt(_M_TRIM_THRESHOLD, _KEEP_BYTES)
    return "glibc, freed memory kept" if done else "unchanged: mallopt refused"


def check_networks_fit(config: TrainConfig, world: World, span: Span | None = None) -> None:
    """TrainerError, with the field to blame, where this node's memory has no room for the networks, or a GPU's none for
    them and a step, or a TPU's none for what stays between steps. `span` is the part of the run that is looked at, with
    the sizes that networks which grow have in it; None for all of it.

    Each worker makes both on the CPU, and the generator's average. What trains there whole has gradients and Adam's two
    moments besides.
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
    field = smaller_networks(config, needed_gib, lambda each: needed_gib(each) <= free_gib).field
    parts = "weights, gradients, moments and average" if trains_here else "weights and average"
    of_whom = f"{workers} workers" if workers > 1 else "a worker"
    raise TrainerError(
        place=f"TrainConfig.{field}",
        problem=f"the networks' {parts} need {needed_gib(config):,.1f} GiB for {of_whom} on a node",
        value=getattr(config, field),
        allowed=f"what fits into the {free_gib:,.1f} GiB that are free here",
        fix=f"a smaller --{field.replace('_', '-')}{', fewer workers on a node' if workers > 1 else ''}, "
        "or a node with more memory",
    )


@contextmanager
def enough_memory(config: TrainConfig, world: World) -> Iterator[None]:
    """LoneError, naming batch_gpu with the next smaller size, where a GPU or CPU runs out of memory in this block."""
    try:
        yield
    except RuntimeError as error:
        found = _too_little(error)
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


def _too_little(error: RuntimeError) -> str:
    """What an allocator says that has no more; nothing where the error is another."""
    if isinstance(error, torch.OutOfMemoryError):
        return str(error).split(". ", maxsplit=1)[0]
    refused = _CPU_REFUSED.search(str(error))
    return f"no room for a tensor of {int(refused[1]) / _GIB:,.1f} GiB" if refused else ""
