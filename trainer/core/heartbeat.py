"""A worker's heartbeat for the launcher's watchdog, and the evidence it leaves on request, in $GANGWAY_WATCH."""

import faulthandler
import os
import signal
import struct
import threading
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Self

from gangway.trainer.core.host import BUSY_VARIABLE
from gangway.trainer.core.torch_private import last_collectives

WATCH_VARIABLE = "GANGWAY_WATCH"
STACKS_SIGNAL = signal.SIGUSR2
"""The interpreter then writes the stacks of all threads, even if none of them runs Python."""

_REQUEST_FILE = "evidence-wanted"
_POLL_SEC = 0.5
_BUSY_SEC = 60.0
_COMPILING_STEPS = 20
"""The first steps with networks of the same shape, in which kernels are compiled."""
_BEAT = struct.Struct("=qqqqd?")


class Beat(NamedTuple):
    """A worker's latest sign of life.

    Attributes:
        steps: in this process, with networks of the same shape.
        images: of the run so far; less after a start from a checkpoint.
        at_sec: time.monotonic(), which all processes of a machine share and no clock jump moves.
        training: between two steps; otherwise it prepares, writes or evaluates for an unknown time.
    """

    pid: int
    rank: int
    steps: int
    images: int
    at_sec: float
    training: bool

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """None for a missing or partial file."""
        try:
            return cls(*_BEAT.unpack(path.read_bytes()))
        except (OSError, struct.error):
            return None


class Heartbeat:
    """Heartbeat of one worker; `handle` is a file descriptor, None without a launcher."""

    def __init__(self, handle: int | None, rank: int) -> None:
        self._handle, self._rank, self._steps, self._images = handle, rank, 0, 0
        self._shape: Hashable = None
        self._training = False

    def step(self, images: int, shape: Hashable = None) -> None:
        """Mark a step, `images` into the run. A new `shape` restarts the step count: the next steps compile."""
        if shape != self._shape:
            self._shape, self._steps = shape, 0
        self._images = images
        self._write(training=True)
        self._steps += 1

    def busy(self) -> None:
        """Mark work outside of steps."""
        self._write(training=False)

    @property
    def may_leave_device_idle(self) -> bool:
        """Whether this worker prepares, compiles, writes or evaluates."""
        return not self._training or self._steps <= _COMPILING_STEPS

    def _write(self, *, training: bool) -> None:
        self._training = training
        if self._handle is not None:
            beat = Beat(os.getpid(), self._rank, self._steps, self._images, time.monotonic(), training)
            os.pwrite(self._handle, _BEAT.pack(*beat), 0)


@contextmanager
def beating(rank: int, local_rank: int) -> Iterator[Heartbeat]:
    """This worker's heartbeat within the block."""
    folder = os.environ.get(WATCH_VARIABLE)
    if not folder:
        yield Heartbeat(None, rank)
        return
    ended = threading.Event()
    handle = os.open(beat_file(Path(folder), local_rank), os.O_CREAT | os.O_WRONLY, 0o600)
    with Path(folder, f"stacks-{rank}.txt").open("w", encoding="utf-8") as stacks:
        faulthandler.register(STACKS_SIGNAL, stacks, all_threads=True)
        heartbeat = Heartbeat(handle, rank)
        arguments = (Path(folder), rank, heartbeat, ended)
        answering = threading.Thread(target=_answer, args=arguments, name="evidence", daemon=True)
        answering.start()
        try:
            heartbeat.busy()
            yield heartbeat
        finally:
            ended.set()
            answering.join()
            faulthandler.unregister(STACKS_SIGNAL)
            # Without its file, a process that hangs at its end does not count as a hanging step.
            os.close(handle)
            with suppress(OSError):
                beat_file(Path(folder), local_rank).unlink()


def beat_file(folder: Path, local_rank: int) -> Path:
    """Path of a worker's heartbeat file."""
    return folder / f"beat-{local_rank}"


def ask_for_evidence(folder: Path) -> None:
    """Ask every worker of this node to write `collectives-RANK.json` into the folder."""
    (folder / _REQUEST_FILE).touch()


def withdraw_request(folder: Path) -> None:
    """Withdraw the request, for the next workers."""
    (folder / _REQUEST_FILE).unlink(missing_ok=True)


def _answer(folder: Path, rank: int, heartbeat: Heartbeat, ended: threading.Event) -> None:
    is_answered, busy_at = False, float("-inf")
    busy_file = os.environ.get(BUSY_VARIABLE)
    while not ended.wait(_POLL_SEC):
        if busy_file and heartbeat.may_leave_device_idle and time.monotonic() - busy_at >= _BUSY_SEC:
            busy_at = time.monotonic()
            with suppress(OSError):  # training continues; the node then counts as idle meanwhile
                _touch(busy_file)
        if not is_answered and (folder / _REQUEST_FILE).exists():
            part = folder / f"collectives-{rank}.part"
            part.write_bytes(last_collectives())
            part.rename(part.with_suffix(".json"))
            is_answered = True


def _touch(file: str) -> None:
    """By this machine's clock, which its node compares, not by a file server's."""
    Path(file).touch()
    os.utime(file, times=(time.time(), time.time()))
