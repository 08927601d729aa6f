"""Memory: one setting of the C library's allocator, for training on a CPU; and a GPU that has too little, in words.

glibc returns every large freed block to the kernel, and a training step frees and takes the same tensors again: a
quarter of the CPU time went into mapping pages anew (1.2-1.4 to 0.9 CPU seconds per thousand images, dcgan-digits).
Not a memory pool of our own.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from trainer.config import TrainConfig
from trainer.errors import LoneError
from trainer.workers.distributed import World, is_told

__all__ = ["enough_memory", "keep_freed_memory"]

# From malloc.h of glibc.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEEP_BYTES = 1 << 30


def keep_freed_memory() -> str:
    """Lets this process keep what it frees, up to 1 GiB, for its next allocations; returns what was done."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return "unchanged: the C library has no mallopt"
    done = mallopt(_M_MMAP_THRESHOLD, _KEEP_BYTES) and mallopt(_M_TRIM_THRESHOLD, _KEEP_BYTES)
    return "glibc, freed memory kept" if done else "unchanged: mallopt refused"


@contextmanager
def enough_memory(config: TrainConfig, world: World) -> Iterator[None]:
    """Says of a GPU that runs out of memory in this block which field makes a step need less.

    Raises:
        LoneError: naming batch_gpu, with the next smaller size.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        if is_told(error):  # of metrics or a grid of samples, which no batch_gpu makes smaller
            raise
        share = world.slice(config.batch_size)
        size = config.batch_gpu or share.stop - share.start
        smaller = [each for each in range(1, size) if config.batch_size % each == 0]
        fewer = f"--batch-gpu {smaller[-1]}: a run that has begun may change it" if smaller else "smaller networks"
        raise LoneError(
            place="TrainConfig.batch_gpu",
            problem=f"worker {world.rank}'s memory does not hold a step on {size} image(s) at once ({_first(error)})",
            value=config.batch_gpu,
            allowed=f"a divisor of the batch of {config.batch_size} below {size}" if smaller else "",
            fix=f"{fewer}; or GPUs with more memory, or more of them",
        ) from error


def _first(error: Exception) -> str:
    return str(error).split(". ", maxsplit=1)[0]
