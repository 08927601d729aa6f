"""A memory limit for decoding untrusted files."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STATM = Path("/proc/self/statm")


@contextmanager
def memory_limit(more_bytes: int) -> Iterator[None]:
    """Limit this process to `more_bytes` above its present use (MemoryError or a library's own error). Linux only.
    RLIMIT_DATA counts private writable memory; RLIMIT_AS would also count the addresses that torch and CUDA reserve. It
    limits the whole process.
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
    try:
        return int(_STATM.read_text("ascii").split()[5]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None
