"""One session at a time in a run directory: worker 0 holds it from before anything is read until the session ends.

On one host the kernel knows whether the holder lives: it keeps the lock on `.lock` for as long as that process does. On
another host signs of life tell, whatever a file system makes of locks between hosts: a holder touches the file every
quarter of a minute, and one silent for a minute and a half is taken for gone. One that was only asleep, in a paused
machine say, finds the file another's and ends at once. `evaluate` and `record` may run beside a session.
"""

import contextlib
import errno
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, NamedTuple

from trainer.core.console import warn
from trainer.core.errors import EXIT_FAILED, InUseError
from trainer.core.files import cannot_be_written, check_folder, try_lock
from trainer.core.host import boot_id
from trainer.core.regular_files import open_file, read_file
from trainer.distributed.world import World
from trainer.records.folders import check_run_folder

LOCK_FILE = ".lock"
_POLL_SEC = 0.2
_BEAT_SEC = 15.0
_VANISHED = (errno.ENOENT, errno.ESTALE)


class Patience(NamedTuple):
    """How long a holder is waited for, seconds.

    Attributes:
        here: one on this host; workers notice within seconds that the others have gone.
        elsewhere: one on another host that lives, and may have its last checkpoint to write.
        silent: one on another host that gives no sign of life.
    """

    here: float = 15.0
    elsewhere: float = 60.0
    silent: float = 90.0


_PATIENCE = Patience()


@contextlib.contextmanager
def run_lock(
    run_dir: Path, world: World, stopped: Callable[[], bool], patience: Patience = _PATIENCE
) -> Iterator[bool]:
    """Makes the directory where missing, and keeps other sessions out until the block ends; all workers call it
    together.

    Yields whether it is held: False where a signal (`stopped`) came first. A directory made here and left empty is
    removed. TrainerError on every rank: not writable, or somebody's files are there; InUseError: another session is at
    work in it.
    """
    lock = _LockFile(run_dir)
    try:
        taken = world.run_on_all(lambda: lock.take(stopped, patience) if world.rank == 0 else _TAKEN)
        taken = world.gather(taken, _Taken)[0]
        if taken.holder:
            raise InUseError(
                place="--run-dir",
                problem=f"another session is at work there: {taken.holder}",
                value=str(run_dir),
                allowed="one session at a time",
                fix="let it end, or stop it with Ctrl-C or SIGTERM (it saves first); or name another --run-dir",
            )
        yield not taken.stopped
    finally:
        lock.drop()


class _Taken(NamedTuple):
    """How a wait has ended: with the directory, or with the holder's name, or stopped."""

    holder: str = ""
    stopped: bool = False


_TAKEN = _Taken()


class _Holder(NamedTuple):
    """Who holds a directory: `who` is process, host and since when; `here` is on this host, whose kernel then knows
    that it lives; `sign` of life is another one in a while.
    """

    who: str = "another session"
    here: bool = False
    sign: int = 0


class _LockFile:
    """What the one worker that takes it knows of a directory."""

    def __init__(self, run_dir: Path) -> None:
        self._dir, self._path = run_dir, run_dir / LOCK_FILE
        self._made: list[Path] = []
        since = datetime.now(UTC).isoformat(" ", "seconds")
        who = {"pid": os.getpid(), "host": socket.gethostname(), "since": since, "boot": boot_id()}
        self._mine = json.dumps(who).encode()
        self._handle: int | None = None
        self._ended = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="run-lock", daemon=True)

    def take(self, stopped: Callable[[], bool], patience: Patience) -> _Taken:
        """Returns when the directory is this process's, or will not become so (TrainerError: not writable)."""
        check_folder(self._dir, "--run-dir")
        check_run_folder(self._dir)
        self._made = [folder for folder in (self._dir, *self._dir.parents) if not folder.exists()]
        first: _Holder | None = None
        began = time.monotonic()
        while (holder := self._try()) is not None:
            if first is None or holder.who != first.who:
                first, began = holder, time.monotonic()
                wait = f"{patience.here:g} s" if holder.here else f"{max(patience.elsewhere, patience.silent):g} s"
                warn(f"{self._dir} is in use by {holder.who}: waiting up to {wait} for it to end")
            waited_sec = time.monotonic() - began
            lives = holder.here or holder.sign != first.sign
            if stopped():
                return _Taken(stopped=True)
            if lives and waited_sec >= (patience.here if holder.here else patience.elsewhere):
                return _Taken(holder.who)
            if not lives and waited_sec >= patience.silent:
                warn(f"{holder.who}: no sign of life for {patience.silent:g} s, taken for gone")
                first = None
                with contextlib.suppress(OSError):
                    self._path.unlink()
            time.sleep(_POLL_SEC)
        self._beating.start()
        return _TAKEN

    def drop(self) -> None:
        """Gives the directory back, if it was taken, and leaves no file of it."""
        if self._handle is not None:
            self._ended.set()
            self._beating.join()
            with contextlib.suppress(OSError):  # the directory may be gone, and a session does not fail for that
                if read_file(self._path) == self._mine:
                    self._path.unlink()
            with contextlib.suppress(OSError):
                os.close(self._handle)
        with contextlib.suppress(OSError):
            for folder in self._made:
                folder.rmdir()  # fails at the first that something was written to

    def _try(self) -> _Holder | None:
        """Takes the directory if it is free; otherwise who holds it."""
        try:
            self._dir.mkdir(parents=True, exist_ok=True)
            with open_file(self._path, "a+b", buffering=0) as file:
                holder = self._found(file)
                if holder is None:
                    self._claim(file)
                    self._handle = os.dup(file.fileno())  # with the lock
                return holder
        except OSError as error:
            if error.errno in _VANISHED:  # another session has just removed it, at its end
                return _Holder()
            raise cannot_be_written(self._path, error) from error

    def _claim(self, file: IO[bytes]) -> None:
        try:
            file.truncate(0)  # a killed session's
            file.write(self._mine)
            os.fsync(file.fileno())  # other hosts are to see it now
        except OSError:
            self._path.unlink()
            raise

    def _found(self, file: IO[bytes]) -> _Holder | None:
        """Who holds the directory whose file this is; None for nobody, and then this process has the lock."""
        locked, holder = try_lock(file), self._read()
        if locked is None:
            return None if holder is None else holder._replace(here=False)
        if not locked:
            return holder or _Holder(sign=self._path.stat().st_mtime_ns)
        if not os.path.samestat(os.fstat(file.fileno()), self._path.stat()):
            return _Holder()  # its holder has just removed this very file, and the lock is on nothing
        return None if holder is None or holder.here else holder

    def _read(self) -> _Holder | None:
        """Who the file names; None where it names nobody."""
        try:
            who, sign = json.loads(read_file(self._path)), self._path.stat().st_mtime_ns
            here = bool(who["boot"]) and who["boot"] == boot_id()
            return _Holder(f"process {who['pid']} on {who['host']}, since {who['since']}", here, sign)
        except (ValueError, TypeError, KeyError):
            return None

    def _beat(self) -> None:
        """Gives signs of life, for hosts that cannot see this process, and looks whether it is still taken to live."""
        assert self._handle is not None, "the thread begins with the directory taken"
        while not self._ended.wait(_BEAT_SEC):
            with contextlib.suppress(OSError):
                os.utime(self._handle)
                if read_file(self._path) != self._mine and (other := self._read()) is not None:
                    warn(f"{self._dir} was taken over by {other.who}, as this session gave no sign of life: it ends")
                    os._exit(EXIT_FAILED)  # not in order, which would write to files that are another's now
