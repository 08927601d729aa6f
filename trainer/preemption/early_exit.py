"""Exit in the middle of a compilation, which cannot be interrupted, without losing anything.

Workers agree on a stop between steps, but compilations take minutes and the launcher kills workers half a minute after
the signal (torchrun's --shutdown-timeout). Compilers are C++, or helper processes that the same signal may have ended.
So the loop saves before it compiles (gangway.trainer.run.loop), and a thread may then end the process at any moment:
half a step is lost and repeated from the same state and random draws, to the bit.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gangway.trainer.core.errors import EXIT_INTERRUPTED
from gangway.trainer.preemption.notices import Interruption

PATIENCE_SEC = 5.0
"""After the signal: a step that ends within it leads to the regular stop of all workers."""
_POLL_SEC = 0.1


class Leaving:
    """Early exit of one worker on the signals of `interruption`."""

    def __init__(self, interruption: Interruption, patience_sec: float = PATIENCE_SEC) -> None:
        self._interruption, self._patience_sec = interruption, patience_sec

    @contextmanager
    def at_any_moment(self, farewell: Callable[[], None]) -> Iterator[None]:
        """A block that a requested stop may cut off, with exit code 75; another thread calls `farewell` before."""
        ended = threading.Event()
        watching = threading.Thread(target=self._watch, args=(ended, farewell), name="leaving", daemon=True)
        watching.start()
        try:
            yield
        finally:
            ended.set()
            watching.join()

    def _watch(self, ended: threading.Event, farewell: Callable[[], None]) -> None:
        while not ended.wait(_POLL_SEC):
            if self._interruption.heard() and self._interruption.waited_sec >= self._patience_sec:
                try:
                    farewell()
                    sys.stdout.flush()
                    sys.stderr.flush()
                finally:  # even on a full disk: the state is saved already
                    os._exit(EXIT_INTERRUPTED)
