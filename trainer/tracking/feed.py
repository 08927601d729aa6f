"""Hands lines to trackers from threads of their own, so that a slow server costs training nothing.

A tracker that fails is told of once and fed on, since servers come back; a full queue drops its newest line, told once
too.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from trainer.tracking.tracker import Line, Tracker

__all__ = ["Feed", "Feeds"]

_QUEUE_LINES = 256
_DONE_SEC = 60.0
"""How long the end of a run waits for its trackers together."""
_CLOSE_SEC = 5.0
"""The same where the run is interrupted or has failed: a spot instance has 30 s in all."""

Task = Callable[[Tracker], None]


class Feed:
    """One tracker with its thread, in which `make` opens it, since importing and connecting may take seconds. `warn` is
    told of the first failure, in one sentence.
    """

    def __init__(self, name: str, make: Callable[[], Tracker], warn: Callable[[str], None]) -> None:
        self._name, self._make, self._warn = name, make, warn
        self._tasks: queue.Queue[Task | None] = queue.Queue(_QUEUE_LINES)
        self._tracker: Tracker | None = None
        self._warned: set[str] = set()
        # A daemon: a server that never answers must not keep the process from ending.
        self._thread = threading.Thread(target=self._work, name=f"tracker-{name}", daemon=True)
        self._thread.start()

    def show(self, line: Line) -> None:
        """Queues a line."""
        self._put(lambda tracker: tracker.show(line))

    def picture(self, path: Path, images: int) -> None:
        """Queues a picture."""
        self._put(lambda tracker: tracker.picture(path, images))

    def close(self, status: str, deadline: float) -> None:
        """Lets the tracker take what is queued and end its session, until `deadline` on time.monotonic's clock."""
        self._put(lambda tracker: tracker.close(status))
        with contextlib.suppress(queue.Full):  # it is told below that the thread has not ended
            self._tasks.put(None, timeout=max(0.0, deadline - time.monotonic()))
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._tell("slow", "has not taken all lines in time; the rest is in stats.jsonl alone")

    def _put(self, task: Task) -> None:
        try:
            self._tasks.put_nowait(task)
        except queue.Full:
            self._tell("full", f"is {_QUEUE_LINES} lines behind; what does not fit is in stats.jsonl alone")

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                self._tracker = self._tracker or self._make()
                task(self._tracker)
            except Exception as error:  # whatever a client library or its server comes up with
                self._tell("failed", f"failed ({type(error).__name__}: {_first_line(error)}); training goes on")

    def _tell(self, kind: str, what: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            self._warn(f"tracker {self._name} {what}")


class Feeds:
    """All feeds of a session; none where nobody follows it."""

    def __init__(self, feeds: Sequence[Feed] = ()) -> None:
        self._feeds = feeds

    def show(self, line: Line) -> None:
        """Queues a line of stats.jsonl for every tracker."""
        for feed in self._feeds:
            feed.show(line)

    def picture(self, path: Path, images: int) -> None:
        """Queues a grid of samples for every tracker."""
        for feed in self._feeds:
            feed.picture(path, images)

    def close(self, status: str) -> None:
        """Ends every tracker's session; waits for all of them together, and not for ever."""
        deadline = time.monotonic() + (_DONE_SEC if status == "done" else _CLOSE_SEC)
        for feed in self._feeds:
            feed.close(status, deadline)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")
