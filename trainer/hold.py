"""One session at a time in a run directory: worker 0 holds a lock from before anything is read until the session ends.

Two sessions in one directory would save over each other's checkpoints, and the record of both would be true of neither.
The lock is the kernel's: it ends with its holder, however that ends, so nobody has to clear it away. A holder that is
just leaving, as before a restart, is waited for; so is one on another host, for as long as a file system may take to
notice that the host is gone. Not here: those who only read a run, who need no lock.
"""

import contextlib
import fcntl
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, NamedTuple

from trainer.errors import TrainerError
from trainer.files import cannot_be_written, check_folder
from trainer.workers.distributed import World

__all__ = ["LOCK_FILE", "Patience", "held"]

LOCK_FILE = ".lock"
_POLL_SEC = 0.2
_BEAT_SEC = 30.0


class Patience(NamedTuple):
    """How long a holder is waited for, seconds.

    Attributes:
        alive: one that is known to live and may be about to end.
        silent: one on another host that gives no sign of life, as long as its file system may keep the lock of a host
            that is gone: NFSv4 90 s by default (RFC 7530), Lustre up to 2.25 of its timeout of 100 s. NFSv3 keeps it
            for good: after this time the lock is taken over.
    """

    alive: float = 15.0
    silent: float = 300.0


_PATIENCE = Patience()


@contextlib.contextmanager
def held(run_dir: Path, world: World, patience: Patience = _PATIENCE) -> Iterator[None]:
    """Makes the directory where it is missing, and keeps other sessions out of it until the block ends.

    A directory that was made here, and that nothing was written to, is gone afterwards.

    Args:
        run_dir: of the run.
        world: this worker's place; all workers call it together.
        patience: with another session that may be about to end.

    Raises:
        TrainerError: on every rank: the directory cannot be written, or another session is at work in it.
    """
    hold = _Hold(run_dir)
    try:
        world.first(lambda: hold.take(patience))
        yield
    finally:
        hold.drop()


class _Holder(NamedTuple):
    """Who holds a lock, as far as it says so.

    Attributes:
        who: process, host and since when.
        here: whether it is on this host, whose kernel knows that it lives.
        sign: of life; changes every half minute.
    """

    who: str
    here: bool
    sign: int


class _Hold:
    """The lock, on the one worker that takes it.

    It belongs to the process, not to the open file: no child that outlives a killed worker carries it on.
    """

    def __init__(self, run_dir: Path) -> None:
        self._dir, self._path = run_dir, run_dir / LOCK_FILE
        self._made: list[Path] = []
        self._file: IO[bytes] | None = None
        self._ended = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="hold", daemon=True)

    def take(self, patience: Patience) -> None:
        """Returns when the lock is this process's.

        Raises:
            TrainerError: see `held`.
        """
        check_folder(self._dir, "--run-dir")
        self._made = [folder for folder in (self._dir, *self._dir.parents) if not folder.exists()]
        holder: _Holder | None = None
        while not self._try():
            now, seen = time.monotonic(), self._holder()
            if holder is None or seen.who != holder.who:
                began, holder = now, seen
                _say(f"{self._dir} is in use by {seen.who}: waiting for it to end")
            if (seen.here or seen.sign != holder.sign) and now - began >= patience.alive:
                raise self._in_use(seen.who)
            if seen == holder and now - began >= patience.silent:
                _say(f"{seen.who}: no sign of life for {patience.silent:g} s, taken for gone")
                with contextlib.suppress(OSError):
                    self._path.unlink()
            time.sleep(_POLL_SEC)
        self._beating.start()

    def drop(self) -> None:
        """Gives the lock back, if it was taken, and leaves no file of it."""
        if self._file is None:
            return
        self._ended.set()
        if self._beating.is_alive():
            self._beating.join()
        with contextlib.suppress(OSError):  # the directory may be gone; a session does not fail for that
            if os.path.samestat(os.fstat(self._file.fileno()), self._path.stat()):  # not another's, made after a rescue
                self._path.unlink()
            for folder in self._made:
                folder.rmdir()  # fails at the first that something was written to
        self._file.close()

    def _try(self) -> bool:
        try:
            self._dir.mkdir(parents=True, exist_ok=True)
            file = self._path.open("a+b", buffering=0)
        except OSError as error:
            raise cannot_be_written(self._path, error) from error
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            file.close()
            return False
        except OSError as error:  # a file system without locks, as some parallel ones are mounted
            _say(f"{self._dir} cannot be locked ({error.strerror}): nothing keeps a second session out")
        # Whoever held it has removed the file that this process had opened already: the lock is of no file then.
        if not os.fstat(file.fileno()).st_nlink:
            file.close()
            return False
        self._file = file
        who = {"pid": os.getpid(), "host": socket.gethostname(), "since": datetime.now(UTC).isoformat(" ", "seconds")}
        try:
            file.truncate(0)  # a killed session's
            file.write(json.dumps(who).encode())
        except OSError as error:
            raise cannot_be_written(self._path, error) from error
        return True

    def _beat(self) -> None:
        """Gives a sign of life in a while, by the file's time, to be seen from hosts that cannot see this process."""
        assert self._file is not None, "the thread begins with the lock taken"
        while not self._ended.wait(_BEAT_SEC):
            with contextlib.suppress(OSError):
                os.utime(self._file.fileno())

    def _holder(self) -> _Holder:
        try:
            who, sign = json.loads(self._path.read_text(encoding="utf-8")), self._path.stat().st_mtime_ns
            here = who["host"] == socket.gethostname()
            return _Holder(f"process {who['pid']} on {who['host']}, since {who['since']}", here, sign)
        except (OSError, ValueError, TypeError, KeyError):  # it has just ended, or not yet written who it is
            return _Holder("another session", here=True, sign=0)

    def _in_use(self, holder: str) -> TrainerError:
        return TrainerError(
            place="--run-dir",
            problem=f"another session is at work there: {holder}",
            value=str(self._dir),
            allowed="one session at a time",
            fix="let it end, or stop it with Ctrl-C or SIGTERM (it saves first); or name another --run-dir",
        )


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
