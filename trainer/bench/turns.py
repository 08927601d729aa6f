"""Training loops that take turns on one machine, so that a neighbour who comes and goes meets them all.

Each side is started once; its first statistics line ends its warm-up. Then one side runs while the others sleep
(SIGSTOP), round by round. A turn is measured from the last line of the side's turn before to its own last line, less
the sleep: every step counts once, as does what happens every so many steps. Needs psutil.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.errors import TrainerError

if TYPE_CHECKING:
    import psutil

__all__ = ["Loop", "Side", "pace", "rates_in_turn", "whole_lines"]

_LIMIT_SEC = 600.0
_POLL_SEC = 0.1
_Line = Mapping[str, Any]


@dataclass(frozen=True)
class Loop:
    """A command that trains without end and appends lines to `stats`: JSON with the `images` seen so far and the
    `time`, seconds since 1970. Its output goes beside that file's folder.
    """

    argv: Sequence[str]
    environment: Mapping[str, str]
    stats: Path


@dataclass(frozen=True)
class Side:
    """What is compared with another: `loops` run at the same time, and their images per second are added up."""

    name: str
    loops: Sequence[Loop]


def rates_in_turn(
    sides: Sequence[Side], seconds: float, rounds: int, tell: Callable[[str], None]
) -> dict[str, list[float]]:
    """Images per second of each side in each round; all sides are in memory at once, compared ones should be
    neighbours.

    A turn takes at least `seconds`, to the next line. Every other round goes the other way round, so that none is
    always the first. TrainerError: psutil is missing; RuntimeError, with its output: a loop ended or stood still.
    """
    if importlib.util.find_spec("psutil") is None:
        problem = "lets loops take turns, for which it needs psutil"
        raise TrainerError(place="python -m trainer.bench", problem=problem, fix="make bench, or pip install psutil")
    rates: dict[str, list[float]] = {side.name: [] for side in sides}
    with contextlib.ExitStack() as stack:
        running: dict[str, list[_Running]] = {}
        for side in sides:
            tell(f"{side.name}: start")
            running[side.name] = [stack.enter_context(_started(loop, side.name)) for loop in side.loops]
            _turn(running[side.name], 0)
        for round_ in range(rounds):
            tell(f"round {round_ + 1} of {rounds}: {'; '.join(rates)}")
            for name in rates if round_ % 2 == 0 else reversed(rates):
                rates[name].append(_turn(running[name], seconds))
    return rates


def pace(lines: Sequence[_Line], pauses: Sequence[tuple[float, float]] = ()) -> float:
    """Images per second from the first line to the last, disturbances included, `pauses` (beginning, end) not."""
    first, last = lines[0], lines[-1]
    began, ended = first["time"], last["time"]
    asleep = sum(max(0.0, min(ended, end) - max(began, begin)) for begin, end in pauses)
    return float((last["images"] - first["images"]) / (ended - began - asleep))


def whole_lines(file: Path) -> list[_Line]:
    """The lines of a `Loop.stats` so far, if any; events and a line that is being written are left out."""
    text = file.read_text() if file.exists() else ""
    parsed = [json.loads(line) for line in text.split("\n")[:-1]]
    return [line for line in parsed if "event" not in line]


def _turn(running: Sequence[_Running], seconds: float) -> float:
    """Lets loops run for a while; returns their images per second since their turn before, 0 for the first turn."""
    for each in running:
        each.resume()
    time.sleep(seconds)
    for each in running:
        each.await_line()
    for each in running:
        each.pause()
    return sum(each.measured() for each in running)


@dataclass
class _Running:
    """A loop that has been started.

    Attributes:
        known: processes that it has started in turn: torchrun's workers are in sessions of their own.
        pauses: so far, beginning and end; `asleep_since` is the present one's beginning.
        measured_lines: number of lines up to the end of its last turn.
    """

    loop: Loop
    side: str
    process: psutil.Popen
    known: set[psutil.Process] = field(default_factory=set)
    pauses: list[tuple[float, float]] = field(default_factory=list)
    asleep_since: float | None = None
    measured_lines: int = 0

    def resume(self) -> None:
        self.send(signal.SIGCONT)
        if self.asleep_since is not None:
            self.pauses.append((self.asleep_since, time.time()))

    def pause(self) -> None:
        self.asleep_since = time.time()
        self.send(signal.SIGSTOP)

    def await_line(self) -> None:
        before, deadline = len(whole_lines(self.loop.stats)), time.monotonic() + _LIMIT_SEC
        while len(whole_lines(self.loop.stats)) == before:
            if self.process.poll() is not None or time.monotonic() > deadline:
                problem = "stood still" if self.process.poll() is None else f"ended with {self.process.poll()}"
                raise RuntimeError(f"{self.side} {problem}:\n{_log(self.loop).read_text()[-2000:]}")
            time.sleep(_POLL_SEC)

    def measured(self) -> float:
        """Images per second since this was last asked for."""
        lines = whole_lines(self.loop.stats)
        new = lines[max(self.measured_lines - 1, 0) :]
        self.measured_lines = len(lines)
        return pace(new, self.pauses) if len(new) > 1 else 0.0

    def send(self, number: signal.Signals) -> list[psutil.Process]:
        """Sends a signal to all its processes; returns these."""
        import psutil

        with contextlib.suppress(psutil.NoSuchProcess):
            self.known.update(self.process.children(recursive=True))
        everyone = [*self.known, self.process]
        for each in everyone:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.send_signal(number)
        return everyone


@contextlib.contextmanager
def _started(loop: Loop, side: str) -> Iterator[_Running]:
    """The loop; none of its processes is left afterwards."""
    import psutil

    with _log(loop).open("wb") as output:
        process = psutil.Popen(loop.argv, env=loop.environment, stdout=output, stderr=subprocess.STDOUT)
    running = _Running(loop, side, process)
    try:
        yield running
    finally:
        psutil.wait_procs(running.send(signal.SIGKILL))


def _log(loop: Loop) -> Path:
    return loop.stats.parent.with_suffix(".log")
