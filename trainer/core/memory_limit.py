"""A bound for what untrusted files may take of the memory: beyond it their decoder fails, not the machine."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STATM = Path("/proc/self/statm")


@contextmanager
def memory_limit(more_bytes: int) -> Iterator[None]:
    """While the block runs the process takes at most so much more than it has: MemoryError, or a library's own word for
    it, beyond that. Linux alone; elsewhere nothing is bounded.

    RLIMIT_DATA counts what is private and can be written; RLIMIT_AS would count the addresses that torch and CUDA
    reserve, which are many times the memory. It is of the whole process: nothing else works in it meanwhile.
    """
    used = _data_bytes()
    if used is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    present = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([used + more_bytes, *present]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _data_bytes() -> int | None:
    """What counts now; None where nobody says it."""
    try:
        return int(_STATM.read_text("ascii").split()[5]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None
