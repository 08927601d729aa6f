"""One session at a time in a run directory: worker 0 locks it before anything is read, until the session ends.

On one host the kernel keeps the lock for as long as the holder lives. Between hosts heartbeats decide: a holder touches
the file every 15 s, and counts as dead after 90 s without; one that was only asleep sees another's file and ends.
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

from gangway.trainer.core.console import warn
from gangway.trainer.core.errors import EXIT_FAILED, InUseError
from gangway.trainer.core.files import cannot_be_written, check_folder, try_lock
from gangway.trainer.core.host import boot_id
from gangway.trainer.core.regular_files import open_file, read_file
from gangway.trainer.distributed.world import World
from gangway.trainer.records.folders import check_run_folder

LOCK_FILE = ".lock"
_POLL_SEC = 0.2
_BEAT_SEC = 15.0
_VANISHED = (errno.ENOENT, errno.ESTALE)


class Patience(NamedTuple):
    """How long to wait for a holder, seconds."""

    here: float = 15.0  # on this host; workers notice within seconds that the others have gone
    elsewhere: float = 60.0  # on another host, alive: it may have its last checkpoint to write
    silent: float = 90.0  # on another host, without a heartbeat


_PATIENCE = Patience()


@contextlib.contextmanager
def run_lock(
    run_dir: Path, world: World, stopped: Callable[[], bool], patience: Patience = _PATIENCE
) -> Iterator[bool]:
    """Locks the directory for the block, False after a signal (TrainerError, InUseError on every rank). Collective."""
    lock = _LockFile(run_dir)
    try:
        result = world.run_on_all(lambda: lock.acquire(stopped, patience) if world.rank == 0 else _LockResult())
        result = world.gather(result, _LockResult)[0]
        if result.holder:
            raise InUseError(
                place="--run-dir",
                problem=f"another session is at work there: {result.holder}",
                value=str(run_dir),
                allowed="one session at a time",
                fix="let it end, or stop it with Ctrl-C or SIGTERM (it saves first); or name another --run-dir",
            )
        yield not result.stopped
    finally:
        lock.release()


class _LockResult(NamedTuple):
    holder: str = ""
    stopped: bool = False


class _Holder(NamedTuple):
    """`who` names process, host and start; `here`: on this host, so it lives; `sign` changes while it lives."""

    who: str = "another session"
    here: bool = False
    sign: int = 0


class _LockFile:
    def __init__(self, run_dir: Path) -> None:
        self._dir, self._path = run_dir, run_dir / LOCK_FILE
        self._made: list[Path] = []
        since = datetime.now(UTC).isoformat(" ", "seconds")
        who = {"pid": os.getpid(), "host": socket.gethostname(), "since": since, "boot": boot_id()}
        self._content = json.dumps(who).encode()
        self._handle: int | None = None
        self._ended = threading.Event()
        self._beat_thread = threading.Thread(target=self._beat, name="run-lock", daemon=True)

    def acquire(self, stopped: Callable[[], bool], patience: Patience) -> _LockResult:
        check_folder(self._dir, "--run-dir")
        check_run_folder(self._dir)
        self._made = [folder for folder in (self._dir, *self._dir.parents) if not folder.exists()]
        first: _Holder | None = None
        began = time.monotonic()
        while (holder := self._try_lock()) is not None:
            if first is None or holder.who != first.who:
                first, began = holder, time.monotonic()
                wait = f"{patience.here:g} s" if holder.here else f"{max(patience.elsewhere, patience.silent):g} s"
                warn(f"{self._dir} is in use by {holder.who}: waiting up to {wait} for it to end")
            waited_sec = time.monotonic() - began
            lives = holder.here or holder.sign != first.sign
            if stopped():
                return _LockResult(stopped=True)
            if lives and waited_sec >= (patience.here if holder.here else patience.elsewhere):
                return _LockResult(holder.who)
            if not lives and waited_sec >= patience.silent:
                warn(f"{holder.who}: no sign of life for {patience.silent:g} s, taken for gone")
                first = None
                with contextlib.suppress(OSError):
                    self._path.unlink()
            time.sleep(_POLL_SEC)
        self._beat_thread.start()
        return _LockResult()

    def release(self) -> None:
        if self._handle is not None:
            self._ended.set()
            self._beat_thread.join()
            with contextlib.suppress(OSError):  # the directory may be gone, and a session does not fail for that
                if read_file(self._path) == self._content:
                    self._path.unlink()
            with contextlib.suppress(OSError):
                os.close(self._handle)
        with contextlib.suppress(OSError):
            for folder in self._made:
                folder.rmdir()  # fails at the first that something was written to

    def _try_lock(self) -> _Holder | None:
        try:
            self._dir.mkdir(parents=True, exist_ok=True)
            with open_file(self._path, "a+b", buffering=0) as file:
                holder = self._find_holder(file)
                if holder is None:
                    try:
                        file.truncate(0)  # a killed session's
                        file.write(self._content)
                        os.fsync(file.fileno())  # so that other hosts see it now
                    except OSError:
                        self._path.unlink()
                        raise
                    self._handle = os.dup(file.fileno())  # with the lock
                return holder
        except OSError as error:
            if error.errno in _VANISHED:  # another session has just removed it, at its end
                return _Holder()
            raise cannot_be_written(self._path, error) from error

    def _find_holder(self, file: IO[bytes]) -> _Holder | None:
        locked, holder = try_lock(file), self._read()
        if locked is None:
            return None if holder is None else holder._replace(here=False)
        if not locked:
            return holder or _Holder(sign=self._path.stat().st_mtime_ns)
        if not os.path.samestat(os.fstat(file.fileno()), self._path.stat()):
            return _Holder()  # its holder has just removed this very file, and the lock is on nothing
        return None if holder is None or holder.here else holder

    def _read(self) -> _Holder | None:
        try:
            who, sign = json.loads(read_file(self._path)), self._path.stat().st_mtime_ns
            here = bool(who["boot"]) and who["boot"] == boot_id()
            return _Holder(f"process {who['pid']} on {who['host']}, since {who['since']}", here, sign)
        except (ValueError, TypeError, KeyError):
            return None

    def _beat(self) -> None:
        assert self._handle is not None, "the thread starts with the lock"
        while not self._ended.wait(_BEAT_SEC):
            with contextlib.suppress(OSError):
                os.utime(self._handle)
                if read_file(self._path) != self._content and (other := self._read()) is not None:
                    warn(f"{self._dir} was taken over by {other.who}, as this session gave no sign of life: it ends")
                    os._exit(EXIT_FAILED)  # at once: an orderly end would write to files of the new holder
