"""Ctrl-C, SIGTERM and a closed terminal while a suite runs (once: stop in order, twice: leave at once), and
processes that an earlier one has left.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

_SLICE_SEC = 0.2
_GRACE_SEC = 60.0
_LOOKS = 20
_PROC = Path("/proc")


class AbandonedError(BaseException):
    """The second signal: everything is left as it is. Not an Exception, so that nobody takes it for a failed run."""


class Stop:
    """Whether somebody has asked to stop. `asked`: the first signal's name; empty before it. `then`: what is told of
    what follows.
    """

    def __init__(self, then: str) -> None:
        self.asked, self._then = "", then

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Takes the signals while the block runs; only in the main thread. What `nohup` ignores stays ignored."""
        hears_hangup = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
        numbers = (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hears_hangup else ()))
        before = {number: signal.signal(number, self._on_signal) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise AbandonedError
        self.asked = signal.Signals(number).name
        # Not print: the signal may have come in the middle of one.
        with suppress(OSError):  # the terminal may be what is gone
            os.write(2, f"\n{self.asked}: stopping{self._then}\n".encode())

    def pause(self, seconds: float) -> None:
        """Sleeps, but not much longer than until somebody asks to stop."""
        until = time.monotonic() + seconds
        while not self.asked and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _SLICE_SEC))


def process_facts(pid: int, word: str) -> dict[str, Any]:
    """What the journal keeps of a process, so that `end_left_over` finds it, by a word of its command line."""
    return {"process": {"pid": pid, "host": socket.gethostname(), "word": word}}


def end_left_over(facts: Mapping[str, Any], number: signal.Signals, grace_sec: float = _GRACE_SEC) -> bool:
    """Ends the process that the facts speak of, where it still lives; all of its session in the end. `number`: the
    signal by which it stops in order. Returns whether there was one.
    """
    known = facts.get("process")
    if not known or known["host"] != socket.gethostname() or not _lives(known["pid"], known["word"]):
        return False
    with suppress(ProcessLookupError):
        os.kill(known["pid"], number)
        until = time.monotonic() + grace_sec
        while time.monotonic() < until and _lives(known["pid"], known["word"]):
            time.sleep(0.2)
        # It was started as the leader of a session and group of its own.
        os.killpg(known["pid"], signal.SIGKILL)
    return True


def _command_line(pid: int) -> str:
    """Of a process that lives; empty for none, and for one that has ended and is not yet waited for."""
    with suppress(OSError):
        for _ in range(_LOOKS):
            command = (_PROC / str(pid) / "cmdline").read_bytes()
            state = (_PROC / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
            if command or state in "ZX":
                return command.replace(b"\0", b" ").decode("utf-8", "replace")
            time.sleep(0.01)  # just begun: for a moment it has no words yet
    return ""


def _lives(pid: int, word: str) -> bool:
    if _PROC.is_dir():  # slim images have no ps
        return word in _command_line(pid)
    # -ww: whole lines, however wide the terminal is.
    command = ["ps", "-ww", "-o", "stat=", "-o", "command=", "-p", str(pid)]
    asked = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return word in asked and not asked.startswith("Z")
