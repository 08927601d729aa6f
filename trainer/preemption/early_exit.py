"""Leaving in the middle of what nobody can break off, where nothing is lost by it: while a compiler is at work.

Workers agree on a stop between steps. While losses compile, at a session's beginning or at a later shape, no step ends
for minutes, and whoever told a worker to leave kills it after half a minute (torchrun's --shutdown-timeout). Compilers
cannot be broken off: they are C++, or helpers in other processes, which the same signal may have ended so that they
answer no more. So the loop saves before it compiles (trainer.run.loop). From then on a thread may end the process at
any moment: what it would lose is half a step, and that is made again from the same state and the same draws, to the
bit.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trainer.core.errors import EXIT_INTERRUPTED
from trainer.preemption.notices import Interruption

PATIENCE_SEC = 5.0
"""After the signal, in which a step that is about to end does so: then all workers leave as ever."""
_POLL_SEC = 0.1


class Leaving:
    """Of one worker, whose signals `interruption` hears."""

    def __init__(self, interruption: Interruption, patience_sec: float = PATIENCE_SEC) -> None:
        self._interruption, self._patience_sec = interruption, patience_sec

    @contextmanager
    def at_any_moment(self, farewell: Callable[[], None]) -> Iterator[None]:
        """A block that would lose nothing: once a stop is asked for, and the block does not end soon, the process ends
        with 75. `farewell` is called before, in another thread, to write of it.
        """
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
                finally:  # a disk that is full, say, keeps nobody: the state is on it
                    os._exit(EXIT_INTERRUPTED)
