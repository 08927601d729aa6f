"""The process of one job of the local queue, `python -m stacks.engines.local.runner FOLDER ALIVE`, the second the open
file of the lock that it has. It waits for its turn, runs the job as often as its exit codes ask for, and writes its
state.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import IO, Self

from components.core.findings import InputError
from components.core.json_lines import lock
from stacks.config.job_file import JobFile
from stacks.engines.attempts import after
from stacks.engines.base import Phase
from stacks.engines.job_folders import CANCEL_FILE, LOG_FILE, RUN_FOLDER, job_ids, read_job, read_status, write_status
from stacks.engines.local.engine import MARK, SPENT_FILE, TURN_FILE, failures_in, is_alive, order
from stacks.engines.node_command import Place, node_argv, node_variables, own_job_script
from stacks.engines.stretches import begin_stretch, end_stretch, still_on_nodes, stretches_of, used_sec
from stacks.report.rendering import write_whole
from trainer.core.errors import EXIT_BAD_INPUT

_POLL_SEC = 0.1
_FULL_SEC = 5.0
_SAY_SEC = 5.0
_PAUSE_SEC = 1.0
"""Between two starts."""


def main(argv: list[str]) -> int:
    """Returns 0; what became of the job stands in its state."""
    folder = Path(argv[0])
    with os.fdopen(int(argv[1]), "ab"), (folder.parent / TURN_FILE).open("ab") as turn:
        runner = _Runner(folder, turn)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, runner.leave)
        runner.run()
    return 0


@dataclass(frozen=True)
class _Spent:
    """Of a job so far, over all its processes."""

    failures: int = 0

    @classmethod
    def read(cls, folder: Path) -> Self:
        return cls(failures_in(folder))

    def write(self, folder: Path) -> None:
        write_whole(folder / SPENT_FILE, json.dumps(asdict(self)).encode())


class _Runner:
    """One job in its folder, whose lock is held meanwhile. `turn`: the queue's, open and not held yet."""

    def __init__(self, folder: Path, turn: IO[bytes]) -> None:
        self._folder, self._turn = folder, turn
        self._job, self._status = read_job(folder), read_status(folder)
        self._leaves = False
        self._over = set[str]()

    def leave(self, number: int, frame: FrameType | None) -> None:
        """The machine goes down: the job is told, and goes on with the next submit."""
        self._leaves = True

    def run(self) -> None:
        """Until it is over, or this process is to leave."""
        if self._status.phase is Phase.RUNNING:  # its process before this one was killed
            self._say(phase=Phase.WAITING, reason="taken up again")
        while not self._has_turn():
            if self._is_cancelled:
                end_all(self._folder, self._job.grace_sec)
                self._say(phase=Phase.CANCELLED, reason="cancelled while it waited", ended_at=datetime.now(UTC))
                return
            if self._leaves:
                return
            time.sleep(_POLL_SEC)
        # What a process before this one has left: two of them must not write into one folder.
        end_all(self._folder, self._job.grace_sec)
        end_stretch(self._folder, now=False)
        spent = _Spent.read(self._folder)
        while True:
            code = self._start(self._job.max_hours * 3600 - self._used_sec())
            end_all(self._folder, 0.0)
            end_stretch(self._folder, now=True)
            if self._leaves and code:
                self._say(phase=Phase.WAITING, reason="its process was told to leave", exit_code=code)
                return
            phase, reason = self._ended(code)
            if phase is None:
                step = after(code, spent.failures, self._job.max_restarts, other_nodes=False)
                phase, reason = step.phase, step.reason
                spent = replace(spent, failures=step.failures)
                spent.write(self._folder)
            if phase is not None:
                self._say(phase=phase, reason=reason, exit_code=code, ended_at=datetime.now(UTC))
                return
            self._say(reason=reason)
            time.sleep(_PAUSE_SEC)
            if self._leaves:
                return

    def _used_sec(self) -> float:
        return used_sec(stretches_of(self._folder, runs=False), datetime.now(UTC))

    def _ended(self, code: int) -> tuple[Phase | None, str]:
        """Where it was us who ended it."""
        if self._is_cancelled and code:
            return Phase.CANCELLED, "cancelled while it ran"
        if self._used_sec() >= self._job.max_hours * 3600 and code:
            return Phase.OVER_HOURS, f"ended after {self._job.max_hours:g} hours"
        return None, ""

    @property
    def _is_cancelled(self) -> bool:
        return (self._folder / CANCEL_FILE).exists()

    def _has_turn(self) -> bool:
        """Whether nobody runs, and none that waits comes before this one."""
        own = order(self._folder.name, self._job)
        for job_id in job_ids(self._folder.parent):
            if job_id != self._folder.name and job_id not in self._over and self._waits(job_id, before=own):
                return False
        if self._is_cancelled or self._leaves:
            return False
        try:
            lock(self._turn)
        except BlockingIOError:
            return False
        return True

    def _waits(self, job_id: str, before: tuple[int, int]) -> bool:
        """Whether that job waits, and comes first. One whose folder has just been removed does not."""
        other = self._folder.parent / job_id
        try:
            phase = read_status(other).phase
            if phase.is_over:
                self._over.add(job_id)
            return phase is Phase.WAITING and order(job_id, read_job(other)) < before and is_alive(other)
        except (InputError, FileNotFoundError):
            return False

    def _start(self, left_sec: float) -> int:
        """Runs it once; its exit code, a signal's with 128 before it as shells have it."""
        self._say(
            phase=Phase.RUNNING,
            starts=self._status.starts + 1,
            nodes=(socket.gethostname(),),
            reason="",
            started_at=self._status.started_at or datetime.now(UTC),
        )
        begin_stretch(self._folder, nodes=1)
        place = Place(str(self._folder / RUN_FOLDER), str(own_job_script()), sys.executable)
        notices = self._folder / "notices.jsonl"
        notices.write_text("")
        with (self._folder / LOG_FILE).open("ab") as output:
            try:
                process = subprocess.Popen(
                    node_argv(self._job, place),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=self._job.workdir or self._folder / RUN_FOLDER,
                    env={
                        **os.environ,
                        **_on_path(),
                        **node_variables(self._job, place, str(notices)),
                        MARK: str(self._folder),
                    },
                    start_new_session=True,
                )
            except OSError as error:
                output.write(f"gangway: cannot begin: {error}\n".encode())
                return EXIT_BAD_INPUT
        deadline = time.monotonic() + left_sec
        say_at = time.monotonic() + _SAY_SEC
        while process.poll() is None and time.monotonic() < deadline and not self._is_cancelled and not self._leaves:
            time.sleep(_POLL_SEC)
            if time.monotonic() > say_at:
                still_on_nodes(self._folder)
                say_at += _SAY_SEC
        if process.poll() is None:
            with notices.open("a") as file:  # before the signal, so that who hears it finds it there
                file.write(json.dumps({"kind": "stop", "seen_at": time.time(), "deadline": ""}) + "\n")
        code = _told(process, self._job) if process.poll() is None else process.returncode
        return 128 - code if code < 0 else code

    def _say(self, **changes: object) -> None:
        self._status = replace(self._status, **changes)  # type: ignore[arg-type]  # of JobStatus, each
        while True:
            try:
                return write_status(self._folder, self._status)
            except InputError as error:  # a full disk, say: nobody else is to take it for one that is not over
                print(error, file=sys.stderr, flush=True)
                time.sleep(_FULL_SEC)


def end_all(folder: Path, grace_sec: float) -> None:
    """Ends every process of the job that lives: of its workers, which have sessions of their own, and of what it has
    left in the background. They are told first where they have a grace.
    """
    until = time.monotonic() + grace_sec
    told = set[int]()
    while processes := set(_processes_of(folder)):
        number = signal.SIGTERM if time.monotonic() < until else signal.SIGKILL
        for pid in processes if number == signal.SIGKILL else processes - told:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        told |= processes
        time.sleep(_POLL_SEC)


def _processes_of(folder: Path) -> Iterator[int]:
    """By a variable that they all have inherited; those that have ended, and wait for their parent, have none."""
    mark = f"{MARK}={folder}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)


def _told(process: subprocess.Popen[bytes], job: JobFile) -> int:
    """Asks it to end, and ends all of its session once its grace is over."""
    process.terminate()
    try:
        return process.wait(job.grace_sec)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


def _on_path() -> dict[str, str]:
    """This environment's own programs last: torchrun is found where there is no other."""
    own = str(Path(sys.executable).parent)
    return {"PATH": f"{os.environ.get('PATH', os.defpath)}:{own}"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
