"""A thread of the launcher that looks, all the time, whether this node is to go: by a file that the machine keeps."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import cast, get_args

from trainer.core.console import announce
from trainer.core.regular_files import read_text_file
from trainer.preemption.notices import Kind, Notice, write_notice

POLL_SEC = 0.25
STALE_SEC = 60.0
"""Whoever keeps the file asks his cloud every few seconds, and writes it after each answer."""

Poll = Callable[[], Iterable[tuple[Kind, str]]]
"""Asks once: the kind and the deadline (as the cloud writes it, or empty) of every notice that holds now."""


class NoticesFile:
    """What the machine keeps of its cloud's notices: a line `KIND` or `KIND DEADLINE` for each that holds now. The job
    itself may not ask: who reaches a cloud's metadata gets its tokens too.
    """

    def __init__(self, path: Path, stale_sec: float = STALE_SEC) -> None:
        self._path, self._stale_sec = path, stale_sec

    def poll(self) -> Iterator[tuple[Kind, str]]:
        """The notices that hold now; kinds that a newer machine tells are passed over. OSError: no file, or one that
        nobody has written for `stale_sec`.
        """
        if time.time() - self._path.stat().st_mtime > self._stale_sec:
            raise TimeoutError(f"{self._path}: nobody has written it for {self._stale_sec:g} s")
        for line in read_text_file(self._path).splitlines():
            kind, _, deadline = line.partition(" ")
            if kind in get_args(Kind):
                yield cast(Kind, kind), deadline


class Watcher(threading.Thread):
    """Polls until the first notice that stops the run, then sends SIGTERM to this process and ends. `poll` None keeps
    the job's hours alone, of which `left_sec` says how many seconds are left; None for no end.
    """

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
        self._seen: set[Kind] = set()
        self._ended = threading.Event()
        self._trouble = ""

    def run(self) -> None:
        """The thread's body; `start` calls it."""
        while not self._ended.is_set():
            for kind, deadline in self._ask():
                if kind not in self._seen:
                    self._seen.add(kind)
                    notice = write_notice(self._file, kind, deadline)
                    announce(_sentence(notice))
                    if notice.stops:
                        os.kill(os.getpid(), signal.SIGTERM)
                        return
            self._ended.wait(self._wait_sec())

    def close(self) -> None:
        """Ends the thread; the launcher is done."""
        self._ended.set()
        self.join()

    def _ask(self) -> list[tuple[Kind, str]]:
        """What holds now. What cannot be read is told once, not every time, and read again."""
        if self._left_sec() <= 0:
            return [("max-hours", "")]
        try:
            found = list(self._poll()) if self._poll is not None else []
        except Exception as error:  # whatever it is: without this thread nobody hears of notices or of the hours
            said = f"{type(error).__name__}: {error}"
            if said != self._trouble:
                announce(f"cannot see notices, trying on: {said}")
            self._trouble = said
            return []
        self._trouble = ""
        return found

    def _wait_sec(self) -> float:
        return max(0.0, min(self._left_sec(), self._poll_sec))


def _sentence(notice: Notice) -> str:
    what = "saving and leaving" if notice.stops else "saving once, and going on"
    return f"{notice.kind}{f' at {notice.deadline}' if notice.deadline else ''}: {what}"
