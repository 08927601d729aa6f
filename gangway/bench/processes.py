"""Stop signals during a suite (once: stop in order, twice: leave at once), and processes left by an earlier one."""

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

from gangway.components.core.findings import InputError

_SLICE_SEC = 0.2
_GRACE_SEC = 60.0
_LOOKS = 20
_PROC = Path("/proc")


class AbandonedError(BaseException):
    """The second signal: everything stays as it is. Not an Exception, so that it is not taken for a failed run."""


class Stop:
    """Whether to stop. `asked`: the first signal's name, else empty. `then`: what the message announces."""

    def __init__(self, then: str) -> None:
        self.asked, self._then = "", then

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle signals during the block, in the main thread only. Signals ignored by `nohup` stay ignored."""
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
        # Not print: the signal may interrupt one.
        with suppress(OSError):  # the terminal may be what is gone
            os.write(2, f"\n{self.asked}: stopping{self._then}\n".encode())

    def pause(self, seconds: float) -> None:
        """Sleep until `seconds` have passed or shortly after a stop signal."""
        until = time.monotonic() + seconds
        while not self.asked and (remaining := until - time.monotonic()) > 0:
            time.sleep(min(remaining, _SLICE_SEC))


@contextmanager
def writable_out(folder: Path) -> Iterator[None]:
    """InputError: what is created in --out cannot be."""
    try:
        yield
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
        raise InputError("--out", problem, value=str(folder), fix="name another folder") from None


def last_words(log: Path) -> str:
    """The last lines of a log, in one."""
    return " | ".join(log.read_text("utf-8", "replace").splitlines()[-6:])


def process_facts(pid: int, word: str) -> dict[str, Any]:
    """Facts for the journal, so that `end_leftover` finds the process by a word of its command line."""
    return {"process": {"pid": pid, "host": socket.gethostname(), "word": word}}


def end_leftover(facts: Mapping[str, Any], number: signal.Signals, grace_sec: float = _GRACE_SEC) -> bool:
    """End the process in the facts with its session; return whether it lived. `number`: the first signal."""
    known = facts.get("process")
    if not known or known["host"] != socket.gethostname() or not _lives(known["pid"], known["word"]):
        return False
    with suppress(ProcessLookupError):
        os.kill(known["pid"], number)
        until = time.monotonic() + grace_sec
        while time.monotonic() < until and _lives(known["pid"], known["word"]):
            time.sleep(0.2)
        # It leads its own session and group.
        os.killpg(known["pid"], signal.SIGKILL)
    return True


def _command_line(pid: int) -> str:
    """Of a living process; empty for none, and for a zombie."""
    with suppress(OSError):
        for _ in range(_LOOKS):
            command = (_PROC / str(pid) / "cmdline").read_bytes()
            state = (_PROC / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
            if command or state in "ZX":
                return command.replace(b"\0", b" ").decode("utf-8", "replace")
            time.sleep(0.01)  # a new process briefly has no command line
    return ""


def _lives(pid: int, word: str) -> bool:
    if _PROC.is_dir():  # slim images have no ps
        return word in _command_line(pid)
    # -ww: whole lines at any terminal width.
    command = ["ps", "-ww", "-o", "stat=", "-o", "command=", "-p", str(pid)]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return word in output and not output.startswith("Z")
