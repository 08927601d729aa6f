"""Notices about this node, one JSON line each, and the requests that notices and signals make to the loop."""

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

from gangway.trainer.core.regular_files import read_text_file
from gangway.trainer.distributed.ranks import Ranks

NOTICES_VARIABLE = "GANGWAY_NOTICES"

Kind = Literal["spot-interruption", "lifecycle-terminate", "max-hours", "rebalance", "host-maintenance", "host-restart"]
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_PR_SET_PDEATHSIG = 1


class Notice(NamedTuple):
    """One notice, seen at seconds since 1970; `deadline` is when the node goes, ISO 8601 as the cloud wrote it, if
    known.

    Kinds: spot-interruption, lifecycle-terminate (an Auto Scaling group or scale set removes the node), max-hours (the
    job's time is over), rebalance (an interruption is likely: save and continue), host-maintenance (the host goes away
    within an hour or pauses for seconds: save and continue until shutdown), host-restart (the machine restarts soon,
    here or on another host).
    """

    kind: Kind
    seen_at: float
    deadline: str = ""

    @property
    def stops(self) -> bool:
        """Whether the run must leave this node."""
        return self.kind not in ("rebalance", "host-maintenance")


def notices_file() -> Path | None:
    """The node's file; None outside `gangway.trainer.launch`."""
    path = os.environ.get(NOTICES_VARIABLE)
    return Path(path) if path else None


def write_notice(path: Path, kind: Kind, deadline: str = "") -> Notice:
    """Append a notice with the present time, in one write so that readers see whole lines."""
    notice = Notice(kind, time.time(), deadline)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(notice._asdict()) + "\n")
    return notice


def read_notices(path: Path | None) -> list[Notice]:
    """All notices so far, oldest first; empty without a file."""
    if path is None or not path.exists():
        return []
    return [Notice(**json.loads(line)) for line in read_text_file(path).splitlines()]


class Request(IntEnum):
    """What a worker asks of the loop; the highest one of all workers counts."""

    NOTHING = 0
    SAVE = 1
    STOP = 2
    FAIL = 3
    """A worker's checkpoint failed or its data is damaged: all stop at once, with its error."""


class Interruption:
    """Handles signals from `install` on, as one stop; `notices` None is the environment's file, if any."""

    def __init__(self, notices: Path | None = None) -> None:
        self._notices = notices or notices_file()
        self._signal, self._signal_at = "", 0.0
        self._saved_size = 0
        self._reader: int | None = None

    def install(self) -> Self:
        """Install the handlers, in the main thread; a second signal during the checkpoint is harmless."""
        self._saved_size = self._file_size()  # a restarted worker does not save for an old notice
        if Ranks.under_torchrun():
            _follow_launcher()
        self._reader, writer = os.pipe()
        for pipe in (self._reader, writer):
            os.set_blocking(pipe, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)
        return self

    @property
    def requested(self) -> bool:
        """Whether a signal arrived."""
        return bool(self._signal)

    def heard(self) -> bool:
        """The same for another thread, even while the main one is in C++: reads the wakeup pipe."""
        if not self._signal and self._reader is not None:
            with suppress(BlockingIOError):
                for number in os.read(self._reader, 64):
                    if number in _SIGNALS:
                        self._on_signal(number, None)
        return self.requested

    def request(self) -> Request:
        """What this worker asks for; costs one stat of the notices file."""
        if self._signal:
            return Request.STOP
        return Request.SAVE if self._file_size() > self._saved_size else Request.NOTHING

    def saved(self) -> None:
        """Every worker calls this after an agreed SAVE; notices so far are handled."""
        self._saved_size = self._file_size()

    @property
    def notice(self) -> Notice | None:
        """The newest notice, only of those that stop a run if a signal arrived."""
        relevant = [notice for notice in read_notices(self._notices) if notice.stops or not self._signal]
        return relevant[-1] if relevant else None

    @property
    def cause(self) -> str:
        """Why the run must stop: the notice's kind or the first signal's name; empty without a signal."""
        if not self._signal:
            return ""
        notice = self.notice
        return notice.kind if notice is not None else self._signal

    @property
    def waited_sec(self) -> float:
        """Seconds since the first signal; 0 without one."""
        return time.monotonic() - self._signal_at if self._signal else 0.0

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._signal:
            self._signal, self._signal_at = signal.Signals(number).name, time.monotonic()

    def _file_size(self) -> int:
        try:
            return self._notices.stat().st_size if self._notices is not None else 0
        except FileNotFoundError:
            return 0


def _follow_launcher() -> None:
    """Let the kernel send SIGTERM when the launcher is killed: this worker would train on, unobserved."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
