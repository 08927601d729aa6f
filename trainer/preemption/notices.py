"""What a cloud or a launcher has said about this node's future (one JSON line a notice, in a file of the node), and
how notices and signals become a request that the loop asks for in every step.
"""

import ctypes
import json
import os
import signal
import time
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from types import FrameType
from typing import Literal, NamedTuple, Self

from trainer.core.regular_files import read_text_file
from trainer.distributed.ranks import Ranks

NOTICES_VARIABLE = "GANGWAY_NOTICES"

Kind = Literal["spot-interruption", "lifecycle-terminate", "max-hours", "rebalance", "host-maintenance", "host-restart"]
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_PR_SET_PDEATHSIG = 1


class Notice(NamedTuple):
    """One notice.

    Attributes:
        kind: spot-interruption, lifecycle-terminate (its Auto Scaling group or scale set wants the node to go),
            max-hours (the job's time is over), rebalance (an interruption has become likely: save, and go on),
            host-maintenance (the host will be taken away, up to an hour from now, or stand still for some seconds:
            save, and go on until the machine is shut down), or host-restart (the machine will be restarted soon, here
            or on another host, and come back).
        seen_at: seconds since 1970.
        deadline: when the node goes, ISO 8601 as the cloud wrote it; empty where it does not say.
    """

    kind: Kind
    seen_at: float
    deadline: str = ""

    @property
    def stops(self) -> bool:
        """Whether the run must leave this node."""
        return self.kind not in ("rebalance", "host-maintenance")


def notices_file() -> Path | None:
    """The node's file; None outside `trainer.launch`."""
    path = os.environ.get(NOTICES_VARIABLE)
    return Path(path) if path else None


def write_notice(path: Path, kind: Kind, deadline: str = "") -> Notice:
    """Appends a notice with the present time, in one write, so that a reader never sees half of it."""
    notice = Notice(kind, time.time(), deadline)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(notice._asdict()) + "\n")
    return notice


def read_notices(path: Path | None) -> list[Notice]:
    """All notices so far, oldest first; none where there is no file yet."""
    if path is None or not path.exists():
        return []
    return [Notice(**json.loads(line)) for line in read_text_file(path).splitlines()]


class Request(IntEnum):
    """What a worker wants the loop to do; of different wishes the highest counts."""

    NOTHING = 0
    SAVE = 1
    STOP = 2
    FAIL = 3
    """A worker's checkpoint has failed, or its data is damaged: all stop at once, with its error."""


class Interruption:
    """Catches the signals from `install` on; any number of them asks for the same stop, once. `notices` is the node's
    file of them; None for the one that the environment names, if any.
    """

    def __init__(self, notices: Path | None = None) -> None:
        self._notices = notices or notices_file()
        self._signal, self._signal_at = "", 0.0
        self._saved_size = 0
        self._arrivals: int | None = None

    def install(self) -> Self:
        """Takes the signals over. Must run in the main thread; a second signal during the checkpoint is harmless."""
        self._saved_size = self._file_size()  # a restarted worker does not save for an old notice
        if Ranks.under_torchrun():
            _hear_of_the_launchers_end()
        self._arrivals, arrived = os.pipe()
        for end in (self._arrivals, arrived):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(arrived, warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)
        return self

    @property
    def requested(self) -> bool:
        """Whether a signal has come."""
        return bool(self._signal)

    def heard(self) -> bool:
        """The same for another thread, and also where the main one, in which alone Python runs handlers, is in C++: the
        kernel's own call has left the signal's number in a pipe.
        """
        if not self._signal and self._arrivals is not None:
            with suppress(BlockingIOError):
                for number in os.read(self._arrivals, 64):
                    if number in _SIGNALS:
                        self._on_signal(number, None)
        return self.requested

    def request(self) -> Request:
        """What this worker wants now; costs one look at a file's size."""
        if self._signal:
            return Request.STOP
        return Request.SAVE if self._file_size() > self._saved_size else Request.NOTHING

    def saved(self) -> None:
        """Every worker's answer to an agreed SAVE: what has been noticed up to now is dealt with."""
        self._saved_size = self._file_size()

    @property
    def notice(self) -> Notice | None:
        """The newest notice, of those that stop a run when a signal has come."""
        fitting = [notice for notice in read_notices(self._notices) if notice.stops or not self._signal]
        return fitting[-1] if fitting else None

    @property
    def cause(self) -> str:
        """Why the run must stop: the notice's kind, or the first signal's name; empty until a signal has come."""
        if not self._signal:
            return ""
        notice = self.notice
        return notice.kind if notice is not None else self._signal

    @property
    def waited_sec(self) -> float:
        """Seconds since the first signal; 0 until one has come."""
        return time.monotonic() - self._signal_at if self._signal else 0.0

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._signal:
            self._signal, self._signal_at = signal.Signals(number).name, time.monotonic()

    def _file_size(self) -> int:
        try:
            return self._notices.stat().st_size if self._notices is not None else 0
        except FileNotFoundError:
            return 0


def _hear_of_the_launchers_end() -> None:
    """Has the kernel send this worker a SIGTERM when its launcher is killed; it would train on, unknown to all."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
