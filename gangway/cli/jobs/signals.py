"""SIGTERM and SIGHUP as Ctrl-C has it: what was begun is undone before the process ends."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def undone_by_signals() -> Iterator[None]:
    """A signal raises SystemExit, with the exit code that a shell has for it; those after it are passed over. One that
    somebody ignores, as nohup does, or has a handler for stays as it is.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python leaves handlers to the main one alone
        return
    ours = [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_DFL]

    def leave(number: int, frame: FrameType | None) -> None:
        for each in ours:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for number in ours:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
