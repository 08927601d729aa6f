"""Ctrl-C, SIGTERM and a closed terminal while a suite runs: once means stop in order, twice means leave at once.

Only what a signal sets; who looks at it destroys what stands. Nothing here knows what that is.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

__all__ = ["AbandonedError", "Stop"]

_SLICE_SEC = 0.2
_ONCE = "\n{}: stopping, and destroying what stands. Once more leaves it standing.\n"


class AbandonedError(BaseException):
    """The second signal: everything is left as it is. Not an Exception, so that nobody takes it for a failed run."""


class Stop:
    """Whether somebody has asked to stop.

    Attributes:
        asked: the first signal's name; empty before it.
    """

    def __init__(self) -> None:
        self.asked = ""

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Takes the signals while the block runs; only in the main thread. What `nohup` ignores stays ignored."""
        hears_hangup = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
        numbers = (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hears_hangup else ()))
        before = {number: signal.signal(number, self._told) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _told(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise AbandonedError
        self.asked = signal.Signals(number).name
        # Not print: the signal may have come in the middle of one.
        with suppress(OSError):  # the terminal may be what is gone
            os.write(2, _ONCE.format(self.asked).encode())

    def pause(self, seconds: float) -> None:
        """Sleeps, but not much longer than until somebody asks to stop."""
        until = time.monotonic() + seconds
        while not self.asked and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _SLICE_SEC))
