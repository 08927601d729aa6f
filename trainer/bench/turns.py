"""Training loops that take turns on one machine, so that a neighbour who comes and goes meets them all.

Each side of a comparison is started once and warmed up. Then one runs for some seconds while the others sleep
(SIGSTOP), and so on round by round: what lies between two turns that are compared is seconds, not a start. Not here:
which sides a benchmark has, and what its loops are (trainer.bench.runs).
"""

import contextlib
import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Loop", "Side", "pace", "rates_in_turn"]

_LEAST_LINES = 3
"""Of a turn: the first ends a step that a pause may lie in, and two that are whole follow."""
_LIMIT_SEC = 600.0
_POLL_SEC = 0.05
Line = Mapping[str, Any]


@dataclass(frozen=True)
class Loop:
    """A command that trains without end.

    Attributes:
        argv: what is started.
        environment: of its processes.
        stats: file that it appends lines to: JSON with the `images` seen so far and the `time`, seconds since 1970.
            Its output goes beside the file's folder.
    """

    argv: Sequence[str]
    environment: Mapping[str, str]
    stats: Path


@dataclass(frozen=True)
class Side:
    """What is compared with another.

    Attributes:
        name: in the results.
        loops: that run at the same time; their images per second are added up.
        warm_up_images: of each loop, before its first turn.
    """

    name: str
    loops: Sequence[Loop]
    warm_up_images: int


def rates_in_turn(
    sides: Sequence[Side], seconds: float, rounds: int, tell: Callable[[str], None]
) -> dict[str, list[float]]:
    """Images per second of each side in each round.

    Args:
        sides: all of which are held in memory at once.
        seconds: of a turn; longer where a loop has written less than three lines by then.
        rounds: turns of each side. Every other round goes the other way round, so that none is always the first.
        tell: is told what begins.

    Raises:
        RuntimeError: a loop ended or stood still; the end of its output is in the message.
    """
    rates: dict[str, list[float]] = {side.name: [] for side in sides}
    with contextlib.ExitStack() as stack:
        running = []
        for side in sides:
            tell(f"{side.name}: start")
            running.append(stack.enter_context(_started(side)))
        for round_ in range(rounds):
            tell(f"round {round_ + 1} of {rounds}: {', '.join(rates)}")
            for each in running if round_ % 2 == 0 else reversed(running):
                rates[each.side.name].append(each.turn(seconds))
    return rates


def pace(lines: Sequence[Line]) -> float:
    """Images over wall time from the first line to the last, disturbances included."""
    first, last = lines[0], lines[-1]
    return float((last["images"] - first["images"]) / (last["time"] - first["time"]))


@dataclass(frozen=True)
class _Running:
    side: Side
    processes: Sequence[subprocess.Popen[bytes]]

    def turn(self, seconds: float) -> float:
        """Lets the side run for a while; returns its images per second."""
        resumed = time.time()
        self.signal(signal.SIGCONT)
        time.sleep(seconds)
        new = [[line for line in lines if line["time"] >= resumed] for lines in self.until(_LEAST_LINES, resumed)]
        self.signal(signal.SIGSTOP)
        return sum(map(pace, new))

    def until(self, count: int, since: float = 0.0, images: int = 0) -> list[list[Line]]:
        """All loops' lines, as soon as each loop has so many since then, and has seen so many images."""
        deadline = time.monotonic() + _LIMIT_SEC
        while True:
            found = [_lines(loop.stats) for loop in self.side.loops]
            enough = [sum(line["time"] >= since for line in lines) >= count for lines in found]
            if all(enough) and all(lines[-1]["images"] >= images for lines in found):
                return found
            for loop, process in zip(self.side.loops, self.processes, strict=True):
                if process.poll() is not None or time.monotonic() > deadline:
                    problem = "stood still" if process.poll() is None else f"ended with {process.returncode}"
                    raise RuntimeError(f"{self.side.name} {problem}:\n{_log(loop).read_text()[-2000:]}")
            time.sleep(_POLL_SEC)

    def signal(self, number: signal.Signals) -> None:
        """To every process of the side: torchrun's workers are in sessions of their own."""
        import psutil

        for process in self.processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                begun = psutil.Process(process.pid)
                for each in (*begun.children(recursive=True), begun):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        each.send_signal(number)


@contextlib.contextmanager
def _started(side: Side) -> Iterator[_Running]:
    """The side, warmed up and asleep; all its processes are gone afterwards."""
    running = _Running(side, [_start(loop) for loop in side.loops])
    try:
        running.until(1, images=side.warm_up_images)
        running.signal(signal.SIGSTOP)
        yield running
    finally:
        running.signal(signal.SIGKILL)
        for process in running.processes:
            process.wait()


def _start(loop: Loop) -> subprocess.Popen[bytes]:
    with _log(loop).open("wb") as output:
        return subprocess.Popen(loop.argv, env=loop.environment, stdout=output, stderr=subprocess.STDOUT)


def _log(loop: Loop) -> Path:
    return loop.stats.parent.with_suffix(".log")


def _lines(file: Path) -> list[Line]:
    """What is whole: events are left out, and a line that is being written."""
    text = file.read_text() if file.exists() else ""
    parsed = [json.loads(line) for line in text.split("\n")[:-1]]
    return [line for line in parsed if "event" not in line]
