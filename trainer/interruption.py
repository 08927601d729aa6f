"""SIGTERM and SIGINT become a flag that the loop asks for after every step.

torchrun passes the signal it receives on to every worker, but the workers get it at different moments: the loop
therefore stops only when all have agreed (`World.agree`), so that one checkpoint holds one step. Not here: spot
notices of the clouds; whoever polls them sends the signal.
"""

import signal
from types import FrameType
from typing import Self

__all__ = ["Interruption"]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interruption:
    """Catches the signals from `install` on; any number of them asks for the same stop, once.

    Attributes:
        cause: name of the first signal, empty until there is one.
    """

    def __init__(self) -> None:
        self.cause = ""

    def install(self) -> Self:
        """Takes the signals over. Must run in the main thread; a second signal during the checkpoint is harmless."""
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)
        return self

    @property
    def requested(self) -> bool:
        """Whether a signal has come."""
        return bool(self.cause)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.cause = self.cause or signal.Signals(number).name
