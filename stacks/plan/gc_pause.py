"""Pauses Python's garbage collector."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_gc() -> Iterator[None]:
    """Pauses garbage collection while an SDK allocates a million permanent objects, which saves a fifth of a plan."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            # Moves the objects to the oldest generation; otherwise the first collection would scan all of them.
            gc.freeze()
            gc.unfreeze()
            gc.enable()
