"""The engine `local`: jobs on this machine, one at a time, in a folder. Each has a process that waits for its turn,
runs the job and outlives the terminal (`gangway.jobs.local.runner`); there is no daemon.

    FOLDER                        locked by the running job: `Turn`
    FOLDER/<id>/alive             locked by the job's process
    FOLDER/<id>/exit-code         START CODE of the last start, and no-room while nothing else can be written
    FOLDER/<id>/spent.json        failures and spontaneous interruptions so far

The disk space of exit-code is reserved before the start: even on a full disk no ended start is repeated. For the other
files see `gangway.jobs.job_folders`.
"""

import json
import math
import os
import subprocess
import sys
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Self

from gangway.components.core.findings import Finding, InputError
from gangway.components.core.whole_files import is_locked, lock, lock_soon
from gangway.components.estimate.regions import Place
from gangway.jobs.base import JobStatus, Phase, Room, lost_output_findings, rendezvous_findings, resource_findings
from gangway.jobs.job_folder import (
    JobFolder,
    OwnJobFolder,
    UnreadableError,
    check_open,
    get_number,
    list_own_jobs,
    sharing_findings,
    user_name,
)
from gangway.jobs.job_folders import (
    CANCEL_FILE,
    LOG_FILE,
    RUNNER_MARK,
    FolderEngine,
    get_environment,
    read_job,
    read_status,
    without_marks,
    working_folder_findings,
)
from gangway.jobs.run_intervals import get_run_intervals
from gangway.stacks.config.job_file import JobFile, Priority
from gangway.stacks.config.paths import module_environment

ALIVE_FILE = "alive"
RANK: Mapping[Priority, int] = MappingProxyType({Priority.HIGH: 0, Priority.NORMAL: 1, Priority.LOW: 2})
_EXIT, _SPENT = "exit-code", "spent.json"
_BYTES = 32
_NO_END, _NO_ROOM = "-", "no-room"


class LocalQueue(FolderEngine):
    """`is_named`: the user named the folder, so it has to exist when jobs are listed."""

    kind = "local"

    def __init__(self, folder: Path, region: Place | None = None, *, is_named: bool = False) -> None:
        super().__init__(folder, region)
        self._is_named = is_named

    def jobs(self) -> Sequence[JobStatus]:
        """See `Engine`. InputError: there is no such folder, or it is closed."""
        check_open(self._folder)
        if self._is_named and not self._folder.is_dir():
            raise InputError(
                f"--on {self.kind}", "not a folder" if self._folder.exists() else "there is no such folder",
                value=self.where, allowed="a folder with submitted jobs",
                fix="correct the path, or submit a job there first",
            )  # fmt: skip
        return super().jobs()

    def findings(self, job: JobFile) -> Iterable[Finding]:
        """See `Engine`."""
        if job.image is not None:
            yield Finding.error(
                "job.image",
                "image",
                "this engine runs no containers, so the command would not run in the image",
                "leave image out to run in this environment, or use another engine",
            )
        yield from sharing_findings(self._folder)
        yield from working_folder_findings(job, is_here=True)
        yield from lost_output_findings(job)
        yield from resource_findings(job)
        yield from rendezvous_findings(job, "anyone who can reach this machine's ports, including its other users")
        if job.team:
            yield Finding.warning(
                "job.team", "team", "only shown in lists: this engine has no quotas",
                "leave it out, or submit it to another engine",
            )  # fmt: skip
        if job.nodes.min > 1:
            yield Finding.error(
                "job.nodes", "nodes.min", f"this engine has one node, not {job.nodes.min}", "nodes: {min: 1, max: 1}"
            )
        elif job.nodes.max > 1:
            yield Finding.info("job.nodes", "nodes.max", "this engine has only one node")

    def room(self, job: JobFile) -> Room:
        """See `Engine`."""
        before = self._jobs_ahead((RANK[job.priority], math.inf))
        return Room(not before, f"{', '.join(before)} before it" if before else "no jobs run or wait")

    def _has_started(self, folder: OwnJobFolder) -> bool:
        return is_alive(folder)

    def _begin(self, job_id: str) -> None:
        """Also restarts other jobs whose process is gone, because the machine was rebooted."""
        begin_runner(self._open_job(job_id))
        for each in list_own_jobs(self._folder):
            with suppress(InputError, OSError):  # not this job's problem; its own status reports it
                if each.name != job_id and not self._read_any(each).phase.is_over and not is_alive(each):
                    begin_runner(each)

    def status(self, job_id: str) -> JobStatus:
        """See `Engine`."""
        folder = self._open_job(job_id)
        found = self._read_any(folder)
        if found.phase is not Phase.WAITING or found.reason:
            return found
        before = self._jobs_ahead(queue_position(folder))
        return replace(found, reason=f"{', '.join(before)} before it" if before else "")

    def _jobs_ahead(self, place: tuple[float, float]) -> list[str]:
        """Own jobs that run or come before this place in the queue; else who holds the turn."""
        if found := [each.name for each in list_own_jobs(self._folder) if _is_before(each, place)]:
            return found
        with suppress(OSError), Turn(self._folder) as turn:
            return [cause] if (cause := turn.cause()) else []
        return []

    def _read_any(self, folder: JobFolder) -> JobStatus:
        found, runs = read_status(folder), is_alive(folder)
        if not runs:
            found = read_status(folder)  # it may have ended meanwhile
        found = replace(found, stretches=get_run_intervals(folder, runs=found.phase is Phase.RUNNING and runs))
        if found.phase.is_over:
            return found
        if runs:
            return replace(found, reason=_current_reason(folder, found))
        if folder.is_own:
            read_job(folder), Spent.read(folder), get_environment(folder)  # unreadable jobs are not restarted
        return replace(
            found,
            phase=Phase.WAITING,
            reason="its process is gone; the next submit, or `gangway job wait`, restarts it",
        )

    def _failures(self, folder: JobFolder) -> int:
        return Spent.read(folder).failures

    def _interruptions(self, folder: JobFolder) -> int:
        return Spent.read(folder).interruptions

    def stop(self, job_id: str) -> None:
        """See `FolderEngine`."""
        folder = self._open_job(job_id)
        try:
            folder.touch(CANCEL_FILE)
            if not self.status(job_id).phase.is_over and not is_alive(folder):
                begin_runner(folder)  # only records the cancel
        except OSError as error:
            raise self._write_error(error, f"{job_id} cannot be cancelled") from None


def _current_reason(folder: JobFolder, found: JobStatus) -> str:
    code = find_end(folder, found.known_starts) if found.phase is Phase.RUNNING else None
    if code is not None and lacks_space(folder):
        return f"ended with exit code {code}; waiting for disk space"
    if not folder.has(CANCEL_FILE):
        return found.reason if found.reason or code is None else f"ended with exit code {code}"
    if found.phase is Phase.RUNNING and code is None:
        return f"being cancelled: it was asked to stop, and is killed after {read_job(folder).grace_sec} s"
    return "being cancelled"


def queue_position(folder: JobFolder) -> tuple[int, int]:
    """The waiting job with the smaller position starts first. UnreadableError."""
    return RANK[read_job(folder).priority], get_number(folder.name)


def _is_before(folder: OwnJobFolder, place: tuple[float, float]) -> bool:
    try:
        phase = read_status(folder).phase
        if phase is Phase.RUNNING and is_alive(folder):
            return True
        return not phase.is_over and queue_position(folder) < place
    except UnreadableError:
        return False  # or it was just removed


def is_alive(folder: JobFolder) -> bool:
    """Whether the job has a process."""
    try:
        with folder.open_file(ALIVE_FILE) as file:
            return is_locked(file)
    except OSError:
        return False


def begin_runner(folder: OwnJobFolder) -> None:
    """Starts the job's process in a new session, out of reach of Ctrl-C. It inherits the lock on the turn."""
    with folder.append_to(LOG_FILE) as output, folder.append_to(ALIVE_FILE) as alive:
        if not lock_soon(alive):
            return  # another process started one
        if read_status(folder).phase.is_over:
            return  # it ended meanwhile
        runner = [sys.executable, "-m", "gangway.jobs.local.runner", str(folder.path), str(alive.fileno())]
        # Through a shell that exits at once: a long-lived submitter must not be its parent.
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", *runner],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            # A job submitted by a job is not part of it.
            env={**module_environment(without_marks(os.environ)), RUNNER_MARK: str(folder.path)},
            pass_fds=(alive.fileno(),),
            check=True,
        )


def reserve_space(folder: OwnJobFolder, start: int) -> None:
    """Reserves space for the end of that start. OSError: there is none."""
    folder.write(_EXIT, _padded(start, _NO_END))


def record_end(folder: OwnJobFolder, start: int, code: int) -> None:
    """Uses the reserved space, so it works on a full disk."""
    folder.overwrite(_EXIT, _padded(start, code))


def record_space(folder: OwnJobFolder, *, lacks: bool) -> None:
    """Records whether the runner waits for disk space after the last start; no effect before an end."""
    if len(words := _words(folder)) >= 2 and words[1].isdecimal():
        with suppress(OSError):  # it is in the log, too
            folder.overwrite(_EXIT, _padded(*words[:2], *([_NO_ROOM] if lacks else [])))


def lacks_space(folder: JobFolder) -> bool:
    """Whether the runner waits for disk space."""
    return _words(folder)[2:] == [_NO_ROOM]


def find_end(folder: JobFolder, start: int) -> int | None:
    """The exit code of that start; None if it has not ended, or was killed with its runner."""
    words = _words(folder)
    known = len(words) >= 2 and words[0] == str(start) and words[1].isdecimal()
    return int(words[1]) if known else None


@dataclass(frozen=True)
class Spent:
    """A job's failures so far on this engine, over all its processes.

    Attributes:
        start: the last one counted.
        before: failures without it, so that a start is counted once even if its end was only half recorded.
    """

    failures: int = 0
    start: int = 0
    before: int = 0
    interruptions: int = 0
    interruptions_before: int = 0

    @classmethod
    def read(cls, folder: JobFolder) -> Self:
        """UnreadableError: the file was changed."""
        path = folder.path / _SPENT
        try:
            found = json.loads(folder.read(_SPENT))
            return cls(*(int(found[each.name]) for each in fields(cls)))
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise UnreadableError(str(path), f"not a count of failures: {error}", fix=f"move {path} aside") from None

    def write(self, folder: OwnJobFolder) -> None:
        """InputError: no room."""
        folder.save(_SPENT, json.dumps(asdict(self)).encode())

    def without(self, start: int) -> tuple[int, int]:
        """Failures and interruptions before that start."""
        if self.start == start:
            return self.before, self.interruptions_before
        return self.failures, self.interruptions


def _words(folder: JobFolder) -> list[str]:
    try:
        return folder.read(_EXIT).decode().split()
    except (OSError, UnicodeDecodeError):
        return []


def _padded(*words: object) -> bytes:
    return " ".join(map(str, words)).ljust(_BYTES - 1).encode() + b"\n"


# Which job of a folder may run: a kernel lock on the folder itself, released with its holder. There is no lock file
# that another user could make, remove or replace; anyone who can list the folder can hold the lock.
#
# On network file systems such a lock usually applies to this machine only (NFS, Lustre), which is what `local` needs.

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
