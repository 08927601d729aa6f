"""The process of one job of the local queue, `python -m gangway.jobs.local.runner FOLDER ALIVE`, the second the open
file of the lock that it has. It waits for its turn, runs the job as often as its exit codes ask for, and writes its
state.
"""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TypeVar

from components.core.findings import InputError
from components.core.job import OPEN_FILES
from gangway.jobs.attempts import after, most_restarts, too_often
from gangway.jobs.base import Phase
from gangway.jobs.data_sets import with_data
from gangway.jobs.environment import MARK, get_environment
from gangway.jobs.job_folder import OwnJobFolder, UnreadableError
from gangway.jobs.job_folders import CANCEL_FILE, LOG_FILE, RUN_FOLDER, read_job, read_status, write_status
from gangway.jobs.listing import own_jobs
from gangway.jobs.local.engine import is_alive, queue_position
from gangway.jobs.local.outcomes import Spent, find_end, put_down, say_room, take_room
from gangway.jobs.local.processes import adopt_orphans, end_all, reap_orphans, told_to_end
from gangway.jobs.local.turn import Turn
from gangway.jobs.node_command import TRAIN_FILE, Place, node_argv, node_variables, own_job_script, train_document
from gangway.jobs.run_intervals import RunningStretch, end_stretch, get_run_intervals, used_sec
from stacks.config.paths import module_environment
from trainer.core.errors import EXIT_BAD_INPUT, EXIT_ENDED_FOR_ALL, EXIT_INTERRUPTED

_Written = TypeVar("_Written")
_POLL_SEC, _MOST_WAIT_SEC = 0.1, 1.0
"""Between two looks; of one that waits for its turn at first, and at most."""
_ROOM_SEC, _MOST_ROOM_SEC = 0.2, 5.0
"""Between two tries to write on a full disk: at first, and at most."""
_SAY_SEC = 5.0
_PAUSE_SEC = 1.0
_NOTICES = "notices.jsonl"
"""Between two starts."""


def main(argv: list[str]) -> int:
    """Returns 0; what became of the job stands in its state."""
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
            end_all(folder, 0.0)
            _tell(str(error))
    return 0


def _raise_limits() -> None:
    """The job may lock as much memory, and open as many files, as this machine lets its user: whatever is left of that
    in the submitter's shell.
    """
    _, locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (locked, locked))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, OPEN_FILES)), hard))


class _StoppedError(Exception):
    """Something is left to write, and nobody waits for it: the folder is gone, or the machine goes down."""


class _Runner:
    """One job in its folder, whose lock is held meanwhile."""

    def __init__(self, folder: OwnJobFolder) -> None:
        self._folder, self._queue = folder, folder.path.parent
        self._job, self._status = read_job(folder), read_status(folder)
        self._leaves = self._is_told = False
        self._over = set[str]()

    def leave(self, number: int, frame: FrameType | None) -> None:
        """The machine goes down: the job is told, and goes on with the next submit."""
        self._leaves = True

    def run(self) -> None:
        """Until it is over, or this process is to leave. _StoppedError, UnreadableError."""
        if self._status.phase is Phase.RUNNING:  # its process before this one was killed
            code = find_end(self._folder, self._status.known_starts)
            if code is not None and self._is_settled(code):
                return
            # What that one has left, before this one waits: others are begun meanwhile, and only one is to run.
            end_all(self._folder, self._job.grace_sec)
            self._say(phase=Phase.WAITING, reason="taken up again")
        with self._kept(lambda: Turn(self._queue)) as turn:
            if not self._waited_for(turn):
                return
            self._end_lost()
            # Two of them must not write into one folder either.
            end_all(self._folder, self._job.grace_sec)
            self._kept(lambda: end_stretch(self._folder))
            while not self._is_off():
                code = self._start(self._job.max_hours * 3600 - self._used_sec())
                # First of all, for this needs no room: what has ended is begun again by nobody.
                self._kept(lambda code=code: put_down(self._folder, self._status.known_starts, code))  # type: ignore[misc]
                if self._is_settled(code):
                    return
                time.sleep(_PAUSE_SEC)

    def _waited_for(self, turn: Turn) -> bool:
        """Whether it is this job's turn now; False where it is over, or this process is to leave."""
        pause = _POLL_SEC
        while not self._has_turn(turn):
            if self._is_off():
                return False
            time.sleep(pause)  # of the CPUs that whoever runs needs
            pause = min(1.5 * pause, _MOST_WAIT_SEC)
        return True

    def _is_off(self) -> bool:
        """Whether it is not begun any more, by this process at least: it is cancelled, or this process is to leave."""
        if self._is_cancelled:
            end_all(self._folder, self._job.grace_sec)
            self._say(phase=Phase.CANCELLED, reason="cancelled while it waited", ended_at=datetime.now(UTC))
            return True
        return self._leaves

    def _end_lost(self) -> None:
        """Whoever has the turn runs alone: what lives of an own job whose process was killed is told and ended, and a
        process that takes such a job up does so itself.
        """
        for other in own_jobs(self._queue):
            while other.name != self._folder.name and not self._is_stopping and _is_running(other):
                if is_alive(other):
                    time.sleep(_POLL_SEC)
                elif _is_running(other):  # still: it may have ended between the two looks
                    end_all(other, _grace_sec(other))
                    break

    def _is_settled(self, code: int) -> bool:
        """Writes down what comes of a start that has ended: whether nothing more does, from this process."""
        end_all(self._folder, 0.0)
        self._kept(lambda: end_stretch(self._folder))
        if self._leaves and code:
            self._say(phase=Phase.WAITING, reason="its process was told to leave", exit_code=code)
            return True
        phase, reason = self._ended(code)
        if phase is None:
            phase, reason, code = self._counted(code)
        if phase is not None:
            self._say(phase=phase, reason=reason, exit_code=code, ended_at=datetime.now(UTC))
            return True
        self._say(reason=reason)
        return False

    def _counted(self, code: int) -> tuple[Phase | None, str, int]:
        """What comes after a start that has ended of itself, why, and the code with which the job ends."""
        spent, start, before = Spent.read(self._folder), self._status.known_starts, self._status.used_before
        failures, interruptions = spent.without(start)
        step = after(code, before.failures + failures, self._job.max_restarts, other_nodes=False)
        here, now = step.failures - before.failures, interruptions + (code == EXIT_INTERRUPTED)
        self._kept(lambda: Spent(here, start, failures, now, interruptions).write(self._folder))
        if step.phase is None and step.failures + before.interruptions + now > most_restarts(self._job):
            return Phase.FAILED, too_often(self._job), EXIT_ENDED_FOR_ALL
        return step.phase, step.reason, code

    def _used_sec(self) -> float:
        here = used_sec(get_run_intervals(self._folder, runs=False), datetime.now(UTC))
        return self._status.used_before.sec + here

    def _ended(self, code: int) -> tuple[Phase | None, str]:
        """Where it was us who ended it."""
        if self._is_cancelled and code:
            return Phase.CANCELLED, "cancelled while it ran"
        if self._used_sec() >= self._job.max_hours * 3600 and code:
            return Phase.OVER_HOURS, f"ended after {self._job.max_hours:g} hours"
        return None, ""

    @property
    def _is_cancelled(self) -> bool:
        return self._folder.has(CANCEL_FILE)

    @property
    def _is_stopping(self) -> bool:
        """Whether nothing more of it is to run, by this process at least."""
        return self._leaves or self._is_cancelled or not self._folder.is_in_place

    def _has_turn(self, turn: Turn) -> bool:
        """Whether nobody runs, and none that waits comes before this one."""
        if turn.is_taken:
            return False  # before all others are looked at, which takes long where there are many
        own = queue_position(self._folder)
        for other in own_jobs(self._queue):
            if other.name != self._folder.name and other.name not in self._over and self._waits(other, before=own):
                return False
        if self._is_stopping:
            return False
        try:
            turn.take()
        except BlockingIOError:
            return False
        return True

    def _waits(self, other: OwnJobFolder, before: tuple[int, int]) -> bool:
        """Whether that job waits, and comes first. One that cannot be read, or whose folder has just been removed, does
        not.
        """
        try:
            phase = read_status(other).phase
            if phase.is_over:
                self._over.add(other.name)
            return phase is Phase.WAITING and queue_position(other) < before and is_alive(other)
        except InputError:
            return False

    def _start(self, left_sec: float) -> int:
        """Runs it once; its exit code, a signal's with 128 before it as shells have it. UnreadableError."""
        of_submit = get_environment(self._folder)
        self._say(
            phase=Phase.RUNNING,
            starts=self._status.known_starts + 1,
            nodes=(socket.gethostname(),),
            reason="",
            started_at=self._status.started_at or datetime.now(UTC),
        )
        self._kept(lambda: take_room(self._folder, self._status.known_starts))
        stretch = self._kept(lambda: RunningStretch(self._folder, nodes=1))
        job = with_data(self._job, self._queue)
        folder = self._folder.path
        place = Place(str(folder / RUN_FOLDER), str(folder / TRAIN_FILE), str(own_job_script()), sys.executable)
        if (document := train_document(job, place)) is not None:
            self._kept(lambda: self._folder.write(TRAIN_FILE, document.encode()))
        self._kept(lambda: self._folder.write(_NOTICES, b""))
        of_submit = of_submit if job.preset is None else module_environment(of_submit)
        variables = {**of_submit, **_on_path(of_submit), **node_variables(job, place, str(folder / _NOTICES))}
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
                _tell(f"gangway: cannot begin: {error}")
                return EXIT_BAD_INPUT
        code = self._attended(process, stretch, time.monotonic() + left_sec)
        _update(stretch)
        return 128 - code if code < 0 else code

    def _attended(self, process: subprocess.Popen[bytes], stretch: RunningStretch, deadline: float) -> int:
        """Until it has ended, by itself or by us; its exit code."""
        say_at = time.monotonic() + _SAY_SEC
        while process.poll() is None and time.monotonic() < deadline and not self._is_stopping:
            time.sleep(_POLL_SEC)
            reap_orphans(but=process.pid)
            if time.monotonic() > say_at:
                _update(stretch)
                say_at += _SAY_SEC
        if process.poll() is not None:
            return process.returncode
        try:
            with self._folder.append_to(_NOTICES) as file:  # before the signal, so that who hears it finds it there
                file.write(json.dumps({"kind": "stop", "seen_at": time.time(), "deadline": ""}).encode() + b"\n")
        except OSError as error:  # the signal says it all the same, and must not wait for room
            _tell(f"gangway: {_NOTICES}: {error.strerror}")
        return told_to_end(process, self._job)

    def _say(self, **changes: object) -> None:
        self._status = replace(self._status, **changes)  # type: ignore[arg-type]  # of JobStatus, each
        self._kept(lambda: write_status(self._folder, self._status))

    def _kept(self, write: Callable[[], _Written]) -> _Written:
        """Writes, and on a full disk waits for room, which is told once: nobody else is to take the job for one that
        has not come so far. _StoppedError.
        """
        pause = _ROOM_SEC
        while True:
            try:
                written = write()
            except UnreadableError:
                raise
            except (OSError, InputError) as error:
                if self._leaves or not self._folder.is_in_place:
                    raise _StoppedError(f"gangway: {error}") from None
                if not self._is_told:
                    self._is_told = _tell(f"gangway: waits for room: {error}")
                say_room(self._folder, lacks=True)
                time.sleep(pause)
                pause = min(2 * pause, _MOST_ROOM_SEC)
            else:
                if pause > _ROOM_SEC:
                    say_room(self._folder, lacks=False)
                self._is_told = False
                return written


def _is_running(folder: OwnJobFolder) -> bool:
    """Whether its state says so. One that cannot be read, or whose folder has just been removed, is not known to."""
    with suppress(InputError):
        return read_status(folder).phase is Phase.RUNNING
    return False


def _grace_sec(folder: OwnJobFolder) -> float:
    """None, of a job that cannot be read."""
    with suppress(InputError):
        return read_job(folder).grace_sec
    return 0.0


def _update(stretch: RunningStretch) -> None:
    with suppress(OSError):  # then its time is known to the last time that this was said
        stretch.update()


def _tell(line: str) -> bool:
    """Into the job's log; False where that takes nothing either."""
    try:
        return os.write(sys.stderr.fileno(), os.fsencode(f"{line}\n")) > 0
    except OSError:
        return False


def _on_path(variables: Mapping[str, str]) -> dict[str, str]:
    """This environment's own programs last: torchrun is found where there is no other."""
    own = str(Path(sys.executable).parent)
    return {"PATH": f"{variables.get('PATH', os.defpath)}:{own}"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
