"""Notices about this node, one JSON line each, and the requests that they and signals make to the loop."""

import ctypes
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from pathlib import Path
from types import FrameType
from typing import Literal, NamedTuple, Self, cast, get_args

from gangway.trainer.core.console import announce
from gangway.trainer.core.errors import EXIT_INTERRUPTED
from gangway.trainer.core.regular_files import read_text_file
from gangway.trainer.distributed.ranks import Ranks

NOTICES_VARIABLE = "GANGWAY_NOTICES"

Kind = Literal["spot-interruption", "lifecycle-terminate", "max-hours", "rebalance", "host-maintenance", "host-restart"]
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_PR_SET_PDEATHSIG = 1


class Notice(NamedTuple):
    """One notice, seen at seconds since 1970; `deadline` as the cloud wrote it, or empty. Not all kinds stop a run."""

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
    FAIL = 3  # A worker's checkpoint failed or its data is damaged: all stop at once, with its error


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


PATIENCE_SEC = 5.0  # After the signal: a step that ends within it leads to the regular stop of all workers
_POLL_SEC = 0.1


def _follow_launcher() -> None:
    """Let the kernel send SIGTERM when the launcher is killed: this worker would train on, unobserved."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))


@contextmanager
def leaving_at_any_moment(
    interruption: Interruption, farewell: Callable[[], None], patience_sec: float = PATIENCE_SEC
) -> Iterator[None]:
    """A block that a requested stop may cut off, with exit code 75; another thread calls `farewell` before.

    For compilations, which take minutes and cannot be interrupted. The loop saves before it compiles
    (gangway.trainer.run.loop), so a thread may end the process at any moment.
    """
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_POLL_SEC):
            if interruption.heard() and interruption.waited_sec >= patience_sec:
                try:
                    farewell()
                    sys.stdout.flush()
                    sys.stderr.flush()
                finally:  # even on a full disk: the state is saved already
                    os._exit(EXIT_INTERRUPTED)

    watching = threading.Thread(target=watch, name="leaving", daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()


POLL_SEC = 0.25
STALE_SEC = 60.0  # The machine's service rewrites the file every few seconds, after each answer of the cloud

Poll = Callable[[], Iterable[tuple[Kind, str]]]
"""Returns kind and deadline (as the cloud writes it, or empty) of every notice that holds now."""


class HeldNotices:
    """The notices that hold now, a line `KIND` or `KIND DEADLINE` each: the job must not reach the cloud's tokens."""

    def __init__(self, path: Path, stale_sec: float = STALE_SEC) -> None:
        self._path, self._stale_sec = path, stale_sec

    def poll(self) -> Iterator[tuple[Kind, str]]:
        """The notices that hold now, without unknown kinds. OSError: no file, or older than `stale_sec`."""
        if time.time() - self._path.stat().st_mtime > self._stale_sec:
            raise TimeoutError(f"{self._path}: not written for {self._stale_sec:g} s")
        for line in read_text_file(self._path).splitlines():
            kind, _, deadline = line.partition(" ")
            if kind in get_args(Kind):
                yield cast(Kind, kind), deadline


class Watcher(threading.Thread):
    """A launcher's thread: polls until a notice stops the run, then sends SIGTERM; `left_sec` bounds the job."""

    def __init__(
        self,
        notices: Path,
        poll: Poll | None,
        left_sec: Callable[[], float] | None = None,
        poll_sec: float = POLL_SEC,
    ) -> None:
        super().__init__(name="gangway-watch", daemon=True)
        self._file, self._poll, self._poll_sec = notices, poll, poll_sec
        self._left_sec = left_sec or (lambda: float("inf"))
        self._known: set[Kind] = set()
        self._ended = threading.Event()
        self._last_error = ""

    def run(self) -> None:
        """Poll until closed or a notice stops the run."""
        while not self._ended.is_set():
            for kind, deadline in self._poll_once():
                if kind not in self._known:
                    self._known.add(kind)
                    notice = write_notice(self._file, kind, deadline)
                    what = "saving and stopping" if notice.stops else "saving once and continuing"
                    announce(f"{kind}{f' at {deadline}' if deadline else ''}: {what}")
                    if notice.stops:
                        os.kill(os.getpid(), signal.SIGTERM)
                        return
            self._ended.wait(max(0.0, min(self._left_sec(), self._poll_sec)))

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        self.join()

    def _poll_once(self) -> list[tuple[Kind, str]]:
        if self._left_sec() <= 0:
            return [("max-hours", "")]
        try:
            found = list(self._poll()) if self._poll is not None else []
        except Exception as error:  # without this thread notices and the end of hours would be missed
            message = f"{type(error).__name__}: {error}"
            if message != self._last_error:
                announce(f"cannot see notices, trying on: {message}")
            self._last_error = message
            return []
        self._last_error = ""
        return found
