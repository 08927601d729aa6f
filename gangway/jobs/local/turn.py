"""Which job of a folder may run: a kernel lock on the folder itself, released with its holder. There is no lock file
that another user could make, remove or replace; anyone who can list the folder can hold the lock.

On network file systems such a lock usually applies to this machine only (NFS, Lustre), which is what `local` needs.
"""

import os
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from gangway.components.core.whole_files import is_locked, lock
from gangway.jobs.job_folder import user_name

_LOCKS = Path("/proc/locks")
_LOOK_AGAIN_SEC = 0.05
"""Longer than a process shares the lock to query it."""


@dataclass(frozen=True)
class Holder:
    """A process with the lock; `uid` is None if it has passed the lock on, or is hidden from this user."""

    pid: int
    uid: int | None


class Turn:
    """The turn of a folder of jobs, while this is open."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.close = weakref.finalize(self, os.close, self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take(self) -> None:
        """BlockingIOError: another process holds or shares it."""
        lock(self._descriptor)

    @property
    def is_taken(self) -> bool:
        """Whether a process holds it exclusively, as a running job does."""
        return is_locked(self._descriptor)

    def cause(self) -> str:
        """Who keeps the user's first job from its turn; empty if no process does."""
        if self.is_taken:
            return self._cause(next(self._holders("WRITE"), None))
        if not (shared := {*self._holders("READ")}):
            return ""
        time.sleep(_LOOK_AGAIN_SEC)
        lasting = shared & {*self._holders("READ")}
        return self._cause(min(lasting, key=lambda each: each.pid)) if lasting else ""

    def _cause(self, holder: Holder | None) -> str:
        if holder is None or holder.uid is None:
            hidden = f"root can see the process: fuser -v {self._folder}"
            return f"another user's job or lock on {self._folder} ({hidden})"
        process = f"process {holder.pid} of {user_name(holder.uid)}"
        if holder.uid == os.geteuid():
            return f"a job whose folder was removed, or another lock on {self._folder} ({process})"
        return f"another user's job or lock on {self._folder} ({process})"

    def _holders(self, kind: str) -> Iterator[Holder]:
        """Other processes that share it (READ), or all that hold it (WRITE); empty if the kernel does not say."""
        seen = os.fstat(self._descriptor)
        place = f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}:{seen.st_ino}"
        with suppress(OSError):
            for line in _LOCKS.read_text("ascii").splitlines():
                match line.split():
                    case [_, "FLOCK", _, found, pid, where, *_] if (found, where) == (kind, place):
                        if kind == "WRITE" or int(pid) != os.getpid():
                            yield Holder(int(pid), _uid(int(pid)))


def _uid(pid: int) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        lines = Path(f"/proc/{pid}/status").read_text("utf-8", "replace").splitlines()
        return int(next(line for line in lines if line.startswith("Uid:")).split()[2])
    return None
