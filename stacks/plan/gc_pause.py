"""Python's garbage collector, kept out of work that makes a million objects which all live on."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_gc() -> Iterator[None]:
    """A cloud's SDK allocates a million objects that live on: collecting among them costs a fifth of a plan."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            # Freezing and unfreezing hands them to the oldest generation: otherwise the first thing that a collector
            # does when it is back is to look through all of them.
            gc.freeze()
            gc.unfreeze()
            gc.enable()
