"""The process of a local job, `python -m gangway.jobs.local.runner FOLDER ALIVE`; ALIVE is the open file of the lock
that it holds. It waits for its turn, runs the job as often as its exit codes require, and writes its state. It ends all
processes of the job: those with its variable, and its own descendants, since it adopts orphans.
"""

import ctypes
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TypeVar

from gangway.components.core.findings import GangwayError, InputError
from gangway.components.core.job import OPEN_FILES
from gangway.jobs.base import Phase, after, restart_limit, restart_limit_reason
from gangway.jobs.copying import with_data
from gangway.jobs.job_folder import OwnJobFolder, UnreadableError, list_own_jobs
from gangway.jobs.job_folders import (
    CANCEL_FILE,
    LOG_FILE,
    MARK,
    RUN_FOLDER,
    RUNNER_MARK,
    get_environment,
    read_job,
    read_status,
    write_status,
)
from gangway.jobs.local.engine import (
    Spent,
    Turn,
    find_end,
    is_alive,
    queue_position,
    record_end,
    record_space,
    reserve_space,
)
from gangway.jobs.node_command import TRAIN_FILE, Place, node_argv, node_variables, own_job_script, train_document
from gangway.jobs.run_intervals import RunningInterval, end_interval, get_run_intervals, used_sec
from gangway.stacks.config.job_file import JobFile
from gangway.stacks.config.paths import module_environment
from gangway.trainer.core.errors import EXIT_BAD_INPUT, EXIT_ENDED_FOR_ALL, EXIT_INTERRUPTED

_Written = TypeVar("_Written")
_POLL_SEC, _MOST_WAIT_SEC = 0.1, 1.0
"""Pause between looks; while waiting for a turn it grows to the maximum."""
_ROOM_SEC, _MOST_ROOM_SEC = 0.2, 5.0
"""Pause between writes on a full disk, growing to the maximum."""
_UPDATE_SEC = 5.0
_PAUSE_SEC = 1.0
_NOTICES = "notices.jsonl"
_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def main(argv: list[str]) -> int:
    """Returns 0; the job's state says how it went."""
    folder = OwnJobFolder(Path(argv[0]))
    adopt_orphans()
    _raise_limits()
    with os.fdopen(int(argv[1]), "ab"):
        runner = _Runner(folder)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, runner.leave)
        try:
            runner.run()
        except (_StoppedError, UnreadableError) as error:
            end_processes(folder, 0.0)
            _write_log(str(error))
    return 0


def _raise_limits() -> None:
    _, locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (locked, locked))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, OPEN_FILES)), hard))


class _StoppedError(GangwayError):
    """The state could not be written: the folder was removed, or the machine is shutting down."""


class _Runner:
    def __init__(self, folder: OwnJobFolder) -> None:
        self._folder, self._queue = folder, folder.path.parent
        self._job, self._status = read_job(folder), read_status(folder)
        self._leaves = self._is_reported = False
        self._over = set[str]()

    def leave(self, number: int, frame: FrameType | None) -> None:
        """The machine is shutting down: signals the job, which the next submit restarts."""
        self._leaves = True

    def run(self) -> None:
        if self._status.phase is Phase.RUNNING:  # its previous process was killed
            code = find_end(self._folder, self._status.known_starts)
            if code is not None and self._settle(code):
                return
            # End its leftovers before waiting: other jobs start meanwhile, and only one may run.
            end_processes(self._folder, self._job.grace_sec)
            self._update_status(phase=Phase.WAITING, reason="restarted after its process was killed")
        with self._write(lambda: Turn(self._queue)) as turn:
            if not self._wait_for_turn(turn):
                return
            self._end_lost()
            # Two starts must not write into one folder.
            end_processes(self._folder, self._job.grace_sec)
            self._write(lambda: end_interval(self._folder))
            while not self._is_not_to_start():
                code = self._start(self._job.max_hours * 3600 - self._used_sec())
                # First, since this needs no disk space: an ended start must not be repeated.
                self._write(lambda code=code: record_end(self._folder, self._status.known_starts, code))  # type: ignore[misc]
                if self._settle(code):
                    return
                time.sleep(_PAUSE_SEC)

    def _wait_for_turn(self, turn: Turn) -> bool:
        pause = _POLL_SEC
        while not self._has_turn(turn):
            if self._is_not_to_start():
                return False
            time.sleep(pause)  # leaves the CPUs to the running job
            pause = min(1.5 * pause, _MOST_WAIT_SEC)
        return True

    def _is_not_to_start(self) -> bool:
        if self._is_cancelled:
            end_processes(self._folder, self._job.grace_sec)
            self._update_status(phase=Phase.CANCELLED, reason="cancelled while it waited", ended_at=datetime.now(UTC))
            return True
        return self._leaves

    def _end_lost(self) -> None:
        """Only one job may run: ends what is left of own jobs whose process was killed."""
        for other in list_own_jobs(self._queue):
            while other.name != self._folder.name and not self._is_stopping and _is_running(other):
                if is_alive(other):
                    time.sleep(_POLL_SEC)
                elif _is_running(other):  # check again: it may have ended meanwhile
                    end_processes(other, _grace_sec(other))
                    break

    def _settle(self, code: int) -> bool:
        end_processes(self._folder, 0.0)
        self._write(lambda: end_interval(self._folder))
        if self._leaves and code:
            self._update_status(phase=Phase.WAITING, reason="its process was asked to stop", exit_code=code)
            return True
        phase: Phase | None
        if self._is_cancelled and code:
            phase, reason = Phase.CANCELLED, "cancelled while it ran"
        elif self._used_sec() >= self._job.max_hours * 3600 and code:
            phase, reason = Phase.OVER_HOURS, f"ended after {self._job.max_hours:g} hours"
        else:
            phase, reason, code = self._count_end(code)
        if phase is not None:
            self._update_status(phase=phase, reason=reason, exit_code=code, ended_at=datetime.now(UTC))
            return True
        self._update_status(reason=reason)
        return False

    def _count_end(self, code: int) -> tuple[Phase | None, str, int]:
        spent, start, before = Spent.read(self._folder), self._status.known_starts, self._status.earlier_usage
        failures, interruptions = spent.without(start)
        step = after(code, before.failures + failures, self._job.max_restarts, other_nodes=False)
        here, now = step.failures - before.failures, interruptions + (code == EXIT_INTERRUPTED)
        self._write(lambda: Spent(here, start, failures, now, interruptions).write(self._folder))
        if step.phase is None and step.failures + before.interruptions + now > restart_limit(self._job):
            return Phase.FAILED, restart_limit_reason(self._job), EXIT_ENDED_FOR_ALL
        return step.phase, step.reason, code

    def _used_sec(self) -> float:
        here = used_sec(get_run_intervals(self._folder, runs=False), datetime.now(UTC))
        return self._status.earlier_usage.sec + here

    @property
    def _is_cancelled(self) -> bool:
        return self._folder.has(CANCEL_FILE)

    @property
    def _is_stopping(self) -> bool:
        return self._leaves or self._is_cancelled or not self._folder.is_in_place

    def _has_turn(self, turn: Turn) -> bool:
        if turn.is_taken:
            return False  # checked first, since reading many jobs takes long
        own = queue_position(self._folder)
        for other in list_own_jobs(self._queue):
            if other.name != self._folder.name and other.name not in self._over and self._is_ahead(other, before=own):
                return False
        if self._is_stopping:
            return False
        try:
            turn.take()
        except BlockingIOError:
            return False
        return True

    def _is_ahead(self, other: OwnJobFolder, before: tuple[int, int]) -> bool:
        try:
            phase = read_status(other).phase
            if phase.is_over:
                self._over.add(other.name)
            return phase is Phase.WAITING and queue_position(other) < before and is_alive(other)
        except InputError:
            return False

    def _start(self, left_sec: float) -> int:
        of_submit = get_environment(self._folder)
        self._update_status(
            phase=Phase.RUNNING,
            starts=self._status.known_starts + 1,
            nodes=(socket.gethostname(),),
            reason="",
            started_at=self._status.started_at or datetime.now(UTC),
        )
        self._write(lambda: reserve_space(self._folder, self._status.known_starts))
        stretch = self._write(lambda: RunningInterval(self._folder, nodes=1))
        job = with_data(self._job, self._queue)
        folder = self._folder.path
        place = Place(str(folder / RUN_FOLDER), str(folder / TRAIN_FILE), str(own_job_script()), sys.executable)
        if (document := train_document(job, place)) is not None:
            self._write(lambda: self._folder.write(TRAIN_FILE, document.encode()))
        self._write(lambda: self._folder.write(_NOTICES, b""))
        of_submit = of_submit if job.preset is None else module_environment(of_submit)
        # This environment's programs last: torchrun is found if there is no other.
        path = f"{of_submit.get('PATH', os.defpath)}:{Path(sys.executable).parent}"
        variables = {**of_submit, "PATH": path, **node_variables(job, place, str(folder / _NOTICES))}
        with self._folder.append_to(LOG_FILE) as output:
            try:
                process = subprocess.Popen(
                    node_argv(job, place),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=self._job.workdir or folder / RUN_FOLDER,
                    env={**variables, MARK: str(folder)},
                    start_new_session=True,
                )
            except OSError as error:
                _write_log(f"gangway: cannot start: {error}")
                return EXIT_BAD_INPUT
        code = self._wait_for_end(process, stretch, time.monotonic() + left_sec)
        _update(stretch)
        return 128 - code if code < 0 else code

    def _wait_for_end(self, process: subprocess.Popen[bytes], stretch: RunningInterval, deadline: float) -> int:
        say_at = time.monotonic() + _UPDATE_SEC
        while process.poll() is None and time.monotonic() < deadline and not self._is_stopping:
            time.sleep(_POLL_SEC)
            reap_orphans(but=process.pid)
            if time.monotonic() > say_at:
                _update(stretch)
                say_at += _UPDATE_SEC
        if process.poll() is not None:
            return process.returncode
        try:
            with self._folder.append_to(_NOTICES) as file:  # before the signal, whose handler reads it
                file.write(json.dumps({"kind": "stop", "seen_at": time.time(), "deadline": ""}).encode() + b"\n")
        except OSError as error:  # the signal must not wait for disk space
            _write_log(f"gangway: {_NOTICES}: {error.strerror}")
        return terminate_job(process, self._job)

    def _update_status(self, **changes: object) -> None:
        self._status = replace(self._status, **changes)  # type: ignore[arg-type]  # of JobStatus, each
        self._write(lambda: write_status(self._folder, self._status))

    def _write(self, write: Callable[[], _Written]) -> _Written:
        """Writes, waiting for room: another process must not repeat a start whose end is not recorded."""
        pause = _ROOM_SEC
        while True:
            try:
                written = write()
            except UnreadableError:
                raise
            except (OSError, InputError) as error:
                if self._leaves or not self._folder.is_in_place:
                    raise _StoppedError(f"gangway: {error}") from None
                if not self._is_reported:
                    self._is_reported = _write_log(f"gangway: waiting for disk space: {error}")
                record_space(self._folder, lacks=True)
                time.sleep(pause)
                pause = min(2 * pause, _MOST_ROOM_SEC)
            else:
                if pause > _ROOM_SEC:
                    record_space(self._folder, lacks=False)
                self._is_reported = False
                return written


def _is_running(folder: OwnJobFolder) -> bool:
    with suppress(InputError):
        return read_status(folder).phase is Phase.RUNNING
    return False


def _grace_sec(folder: OwnJobFolder) -> float:
    with suppress(InputError):
        return read_job(folder).grace_sec
    return 0.0


def _update(stretch: RunningInterval) -> None:
    with suppress(OSError):  # its time is then known up to the last update
        stretch.update()


def _write_log(line: str) -> bool:
    try:
        return os.write(sys.stderr.fileno(), os.fsencode(f"{line}\n")) > 0
    except OSError:
        return False


def adopt_orphans() -> None:
    """Makes this process the parent of orphaned descendants, so that none escapes by a new session or environment."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans(but: int) -> None:
    """Reaps ended children except `but`, which has its own waiter; os.waitid may be missing."""
    if sys.platform != "linux":
        return
    with suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid != but:
            os.waitpid(ended.si_pid, 0)


def end_processes(folder: OwnJobFolder, grace_sec: float) -> None:
    """Ends the job's processes in any session, with SIGTERM first if there is a grace period."""
    until = time.monotonic() + grace_sec
    signalled, others = set[int](), set[int]()
    while processes := set(_get_processes(folder)) - others:
        number = signal.SIGTERM if time.monotonic() < until else signal.SIGKILL
        for pid in processes if number == signal.SIGKILL else processes - signalled:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
            except PermissionError:
                others.add(pid)  # runs with another user's rights
        signalled |= processes
        time.sleep(_POLL_SEC)


def terminate_job(process: subprocess.Popen[bytes], job: JobFile) -> int:
    """Sends SIGTERM, and kills its session after the grace period. Its exit code."""
    process.terminate()
    try:
        return process.wait(job.grace_sec)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


def _get_processes(folder: OwnJobFolder) -> Iterator[int]:
    """Without zombies."""
    reap_orphans(but=0)
    parents = dict(_live_parents())
    variables = {pid: _variables(pid) for pid in parents}
    own, slurm_id = os.fsencode(f"{MARK}={folder.path}"), f"SLURM_JOB_ID={_slurm_id(folder)}".encode()
    for pid in parents:
        is_marked = own in variables[pid] and not any(
            each.startswith(b"SLURM_JOB_ID=") and each != slurm_id for each in variables[pid]
        )  # sbatch passes the mark on to another job
        if is_marked or _is_descendant(pid, parents, variables, own):
            yield pid


def _slurm_id(folder: OwnJobFolder) -> str:
    with suppress(UnreadableError):
        return get_environment(folder).get("SLURM_JOB_ID", "")
    return ""


def _is_descendant(pid: int, parents: Mapping[int, int], variables: Mapping[int, list[bytes]], own: bytes) -> bool:
    """Whether it descends from this process, but not through another job, which this one may have submitted."""
    while pid in parents:
        for each in variables[pid]:
            if each.startswith(f"{RUNNER_MARK}=".encode()) or (each.startswith(f"{MARK}=".encode()) and each != own):
                return False
        if (pid := parents[pid]) == os.getpid():
            return True
    return False


def _live_parents() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state not in ("Z", "X"):
                yield int(entry.name), int(parent)


def _variables(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []  # of another user, or gone


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
