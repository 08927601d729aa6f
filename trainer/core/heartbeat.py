"""A worker's sign of life for the launcher's watchdog (trainer.launch.watchdog), and the evidence it leaves when asked.

The launcher names a folder of the node ($GANGWAY_WATCH). There each worker keeps one file of fixed size, rewritten
after every step, and answers a request with the last collectives of its process groups (PyTorch's flight recorder).
"""

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

from trainer.core.torch_private import last_collectives

WATCH_VARIABLE = "GANGWAY_WATCH"
STACKS_SIGNAL = signal.SIGUSR2
"""Has the interpreter write the stacks of all threads, whatever they are at: also where none of them runs Python."""

_ASKED = "evidence-wanted"
_POLL_SEC = 0.5
_BEAT = struct.Struct("=qqqqd?")


class Beat(NamedTuple):
    """A worker's latest sign of life.

    Attributes:
        rank: over all nodes.
        steps: made in this process with networks of the same shape.
        images: of the run so far, from its beginning: less after a start from a checkpoint.
        at_sec: time.monotonic(), which all processes of a machine share and no clock jump moves.
        training: between two steps; else it prepares, writes or judges, which has no common length.
    """

    pid: int
    rank: int
    steps: int
    images: int
    at_sec: float
    training: bool

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """None for a file that is not there or not whole."""
        try:
            return cls(*_BEAT.unpack(path.read_bytes()))
        except (OSError, struct.error):
            return None


class Heartbeat:
    """Of one worker; `handle` is its file's, None where no launcher watches."""

    def __init__(self, handle: int | None, rank: int) -> None:
        self._handle, self._rank, self._steps, self._images = handle, rank, 0, 0
        self._shape: Hashable = None

    def step(self, images: int, shape: Hashable = None) -> None:
        """A step is about to begin, `images` into the run; the one before it, if any, was made. `shape` is another one
        where the networks have grown or a segment begins: the next steps compile, as the first ones do.
        """
        if shape != self._shape:
            self._shape, self._steps = shape, 0
        self._images = images
        self._write(training=True)
        self._steps += 1

    def busy(self) -> None:
        """What comes now is no step."""
        self._write(training=False)

    def _write(self, *, training: bool) -> None:
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
    answering = threading.Thread(target=_answer, args=(Path(folder), rank, ended), name="evidence", daemon=True)
    with Path(folder, f"stacks-{rank}.txt").open("w", encoding="utf-8") as stacks:
        faulthandler.register(STACKS_SIGNAL, stacks, all_threads=True)
        answering.start()
        try:
            heartbeat = Heartbeat(handle, rank)
            heartbeat.busy()
            yield heartbeat
        finally:
            ended.set()
            answering.join()
            faulthandler.unregister(STACKS_SIGNAL)
            # Not its file's last words: a process that hangs at its end is nobody's step.
            os.close(handle)
            with suppress(OSError):
                beat_file(Path(folder), local_rank).unlink()


def beat_file(folder: Path, local_rank: int) -> Path:
    """Where a worker's beats are."""
    return folder / f"beat-{local_rank}"


def ask_for_evidence(folder: Path) -> None:
    """Has every worker of this node that can still answer write `collectives-RANK.json` into the folder."""
    (folder / _ASKED).touch()


def withdraw_request(folder: Path) -> None:
    """Has the workers that come next write none."""
    (folder / _ASKED).unlink(missing_ok=True)


def _answer(folder: Path, rank: int, ended: threading.Event) -> None:
    while not ended.wait(_POLL_SEC):
        if (folder / _ASKED).exists():
            part = folder / f"collectives-{rank}.part"
            part.write_bytes(last_collectives())
            part.rename(part.with_suffix(".json"))
            return
