"""Busy neighbours: processes that occupy cores, controlled by a run's progress."""

import signal
import subprocess
import sys
from types import TracebackType
from typing import Self

from gangway.bench.experiment.suite import Neighbour

_BUSY = """
import os
parent = os.getppid()
while os.getppid() == parent:  # until the parent dies
    for _ in range(1_000_000):
        pass
"""


class BusyNeighbour:
    """The neighbour of one run; a context. `spans`: its lifetimes in the run's seconds of training."""

    def __init__(self, config: Neighbour | None) -> None:
        self._config = config
        self._processes: list[subprocess.Popen[bytes]] = []
        self._began = self._now = 0.0
        self.spans: list[tuple[float, float]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._end()

    @property
    def pids(self) -> tuple[int, ...]:
        """Of living processes."""
        return tuple(process.pid for process in self._processes)

    def at(self, share: float, training_sec: float) -> None:
        """Start or end them at that share of the run's images and second of training."""
        self._now = training_sec
        if self._config is None:
            return
        low, high = self._config.between
        is_active = low <= share < high
        if is_active and not self._processes:
            self._began = training_sec
            for _ in range(self._config.cores):
                # Its own session: Ctrl-C reaches only the runner, which ends them.
                command = [sys.executable, "-c", _BUSY]
                self._processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True))
        elif not is_active and self._processes:
            self._end()

    def _end(self) -> None:
        if not self._processes:
            return
        for process in self._processes:
            process.send_signal(signal.SIGKILL)
        for process in self._processes:
            process.wait()
        self._processes.clear()
        self.spans.append((self._began, self._now))
