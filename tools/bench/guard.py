"""The benchmark's folder and processes, which end with it whatever ends it: SIGKILL, or want of memory.

A process in a session of its own makes the folder and reads a pipe whose other end the benchmark alone holds. When that
ends, all processes with the folder's name in their environment are killed, sleeping ones (SIGSTOP) too, and the folder
is removed. What ends all processes of a container or service at once ends the guard too: the folder stays. What the
benchmark forks without exec is not found. Needs /proc; no torch or psutil, to stay small.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_FOLDER_VARIABLE = "GANGWAY_BENCH_FOLDER"
_LIMIT_SEC = 30.0
_POLL_SEC = 0.1


@contextlib.contextmanager
def guarded_folder() -> Iterator[Path]:
    """A temporary folder; neither it nor a program started meanwhile remains. RuntimeError: no folder."""
    argv = [sys.executable, "-m", "tools.bench.guard"]
    pipe = subprocess.PIPE  # made so that no program that is started later holds its end open
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as guard:
        assert guard.stdout is not None, "asked for above"
        folder = guard.stdout.readline().rstrip("\n")
        if not folder:
            raise RuntimeError(f"the benchmark's guard ended with {guard.wait()}")
        os.environ[_FOLDER_VARIABLE] = folder
        try:
            yield Path(folder)
        finally:
            del os.environ[_FOLDER_VARIABLE]
            # Here too, in case somebody has killed the guard; what it finds done it does not do again.
            _clear(folder)


def _guard() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    folder = tempfile.mkdtemp(prefix="gangway-bench-")
    try:
        print(folder, flush=True)
        sys.stdin.read()
    finally:
        _clear(folder)


def _clear(folder: str) -> None:
    """Kills processes with the folder in their environment and removes it, until neither remains."""
    deadline = time.monotonic() + _LIMIT_SEC
    looks = 0
    while time.monotonic() < deadline:
        looks = 0 if _kill_all(folder) else looks + 1
        if looks > 1:  # a process that is just becoming another program shows no environment for a moment
            shutil.rmtree(folder, ignore_errors=True)
            if not Path(folder).exists():
                return
        time.sleep(_POLL_SEC)


def _kill_all(folder: str) -> bool:
    """Kills them; returns whether there was any, as a killed one may have started another."""
    entry = os.fsencode(f"{_FOLDER_VARIABLE}={folder}")
    found = False
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile, or is another user's
            if entry in (process / "environ").read_bytes().split(b"\0"):
                # At once, not from a list made before: a number that is free may be given to somebody else.
                os.kill(int(process.name), signal.SIGKILL)
                found = True
    return found


if __name__ == "__main__":
    _guard()
