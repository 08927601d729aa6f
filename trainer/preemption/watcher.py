"""A launcher thread that watches for notices, in a file that the machine maintains."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import cast, get_args

from gangway.trainer.core.console import announce
from gangway.trainer.core.regular_files import read_text_file
from gangway.trainer.preemption.notices import Kind, Notice, write_notice

POLL_SEC = 0.25
STALE_SEC = 60.0
"""The machine's service rewrites the file every few seconds, after each answer of the cloud."""

Poll = Callable[[], Iterable[tuple[Kind, str]]]
"""Returns kind and deadline (as the cloud writes it, or empty) of every notice that holds now."""


class NoticesFile:
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
    """Polls until a notice stops the run, then sends SIGTERM to this process; `left_sec` bounds the job."""

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
                    announce(_sentence(notice))
                    if notice.stops:
                        os.kill(os.getpid(), signal.SIGTERM)
                        return
            self._ended.wait(max(0.0, min(self._left_sec(), self._poll_sec)))

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        self.join()

    def _poll_once(self) -> list[tuple[Kind, str]]:
        """The notices that hold now. A repeated error is announced once."""
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


def _sentence(notice: Notice) -> str:
    what = "saving and stopping" if notice.stops else "saving once and continuing"
    return f"{notice.kind}{f' at {notice.deadline}' if notice.deadline else ''}: {what}"
