"""A process that an earlier `gangway bench` has started and left: is it still there, and end it.

By its id and the words of its command line, since an id may be somebody else's by now. Not a supervisor.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["end_left_over", "process_facts"]

_GRACE_SEC = 60.0
_LOOKS = 20
_PROC = Path("/proc")


def process_facts(pid: int, word: str) -> dict[str, Any]:
    """What the journal keeps of a process, so that `end_left_over` finds it, by a word of its command line."""
    return {"process": {"pid": pid, "host": socket.gethostname(), "word": word}}


def end_left_over(facts: Mapping[str, Any], number: signal.Signals, grace_sec: float = _GRACE_SEC) -> bool:
    """Ends the process that the facts speak of, where it still lives; all of its session in the end.

    Args:
        facts: of the journal.
        number: the signal by which it stops in order.
        grace_sec: until it is killed.

    Returns:
        Whether there was one.
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
            words = (_PROC / str(pid) / "cmdline").read_bytes()
            state = (_PROC / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
            if words or state in "ZX":
                return words.replace(b"\0", b" ").decode("utf-8", "replace")
            time.sleep(0.01)  # just begun: for a moment it has no words yet
    return ""


def _lives(pid: int, word: str) -> bool:
    if _PROC.is_dir():  # slim images have no ps
        return word in _command_line(pid)
    # -ww: whole lines, however wide the terminal is.
    command = ["ps", "-ww", "-o", "stat=", "-o", "command=", "-p", str(pid)]
    asked = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return word in asked and not asked.startswith("Z")
