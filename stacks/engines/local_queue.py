"""The engine `local`: jobs on this machine, one at a time, in a folder. Each has a process that waits for its turn,
runs it and outlives the terminal (`stacks.engines.local_runner`); there is no daemon.

    FOLDER/turn                   held by whose turn it is: a lock of the kernel, which dies with its holder
    FOLDER/<id>/job.json          as it was submitted
    FOLDER/<id>/state.json        its JobStatus
    FOLDER/<id>/spent.json        its failures, and its seconds
    FOLDER/<id>/{log,run}         what it wrote, and its GANGWAY_RUN_DIR
    FOLDER/<id>/cancel            somebody wants it to end
    FOLDER/<id>/alive             held by its process, and by what that runs
"""

import codecs
import getpass
import hashlib
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import IO

from pydantic import TypeAdapter, ValidationError

from components.core.findings import Finding, InputError, Severity, nearest_hint
from components.core.json_lines import is_locked, lock
from stacks.config.job_file import JobFile, Priority
from stacks.engines.base import JobStatus, Move, Phase, Room
from stacks.report.rendering import write_whole

JOB_FILE, STATE_FILE, SPENT_FILE = "job.json", "state.json", "spent.json"
LOG_FILE, CANCEL_FILE, ALIVE_FILE, TURN_FILE = "log", "cancel", "alive", "turn"
RUN_FOLDER = "run"
_STATUS = TypeAdapter(JobStatus)
_ID = re.compile(r"([a-z][a-z0-9-]*)-([0-9]+)")
RANK: Mapping[Priority, int] = MappingProxyType({Priority.HIGH: 0, Priority.NORMAL: 1, Priority.LOW: 2})
_BY_HALF = re.compile(r"#[0-9]+$")
"""What a copy that was killed leaves of a file."""
_POLL_SEC, _ASKED_SEC = 0.05, 2.0
_MOST_BYTES = 1_000_000
"""Of a log that one call reads."""


class LocalQueue:
    """Jobs below one folder. `user`: whose they are, in their status."""

    kind = "local"
    run_folders_are_here = True

    def __init__(self, folder: Path, user: str = "") -> None:
        self._folder, self.where = folder, str(folder)
        self._user = user or getpass.getuser()

    def findings(self, job: JobFile) -> Iterable[Finding]:
        """See `Engine`."""
        if job.image is not None:
            yield Finding.error(
                "job.image",
                "image",
                "this engine runs no containers: the command would run in another environment than the image's",
                "leave image out to run in this environment, or submit it to another engine",
            )
        if job.nodes.min > 1:
            yield Finding.error(
                "job.nodes", "nodes.min", f"one machine is no {job.nodes.min} nodes", "nodes: {min: 1, max: 1}"
            )
        elif job.nodes.max > 1:
            yield Finding.info("job.nodes", "nodes.max", "one node is all there is here")

    def submit(self, job: JobFile) -> str:
        """See `Engine`. Jobs whose process is gone, because the machine was restarted, go on with the next submit."""
        self._check(job)
        new = self._made_folder(f".new-{secrets.token_hex(8)}")
        try:
            return self._begun(self._put(job, new, ()))
        finally:
            shutil.rmtree(new, ignore_errors=True)

    def room(self, job: JobFile) -> Room:
        """See `Engine`."""
        rank = RANK[job.priority]
        before = [
            each.id
            for each in self.jobs()
            if each.phase is Phase.RUNNING
            or (each.phase is Phase.WAITING and RANK[read_job(self._folder / each.id).priority] <= rank)
        ]
        return Room(not before, f"{', '.join(before)} before it" if before else "nothing runs and nothing waits")

    def job(self, job_id: str) -> JobFile:
        """See `Movable`."""
        return read_job(self._known(job_id))

    def run_url(self, job_id: str) -> str:
        """See `Movable`."""
        return (self._known(job_id) / RUN_FOLDER).as_uri()

    def stage(self, source: str) -> str:
        """See `Movable`."""
        return (self._made_folder(_staged(source)) / RUN_FOLDER).as_uri()

    def moved(self, source: str) -> str | None:
        """See `Movable`."""
        return next((each.id for each in self.jobs() if each.moves and each.moves[-1].source == source), None)

    def submit_staged(self, job: JobFile, moves: tuple[Move, ...]) -> str:
        """See `Movable`."""
        self._check(job)
        staged = self._folder / _staged(moves[-1].source)
        for path in staged.rglob("*"):
            if _BY_HALF.search(path.name):
                path.unlink()
        return self._begun(self._put(job, staged, moves))

    def _check(self, job: JobFile) -> None:
        """InputError: what this machine cannot do."""
        for finding in self.findings(job):
            if finding.severity is Severity.ERROR:
                raise InputError(finding.path, finding.message, fix=finding.fix)

    def _made_folder(self, name: str) -> Path:
        """A folder for a job to come, which no other name of a job is. InputError: there can be none."""
        try:
            (self._folder / name / RUN_FOLDER).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                self.where, f"no folder for jobs: {error.strerror}", fix="name another: --on local:FOLDER"
            ) from None
        return self._folder / name

    def _begun(self, job_id: str) -> str:
        for each in self.jobs():
            if each.id == job_id or (not each.phase.is_over and not is_alive(self._folder / each.id)):
                _begin_runner(self._folder / each.id)
        return job_id

    def status(self, job_id: str) -> JobStatus:
        """See `Engine`."""
        found = read_status(self._known(job_id))
        if found.phase.is_over or is_alive(self._folder / job_id):
            return found
        again = read_status(self._known(job_id))  # it may have ended between the two looks
        if again.phase.is_over:
            return again
        return replace(again, phase=Phase.WAITING, reason="its process is gone; the next submit takes it up again")

    def jobs(self) -> Sequence[JobStatus]:
        """See `Engine`."""
        return [self.status(job_id) for job_id in job_ids(self._folder)]

    def log(self, job_id: str, offset: int = 0) -> tuple[str, int]:
        """See `Engine`."""
        path = self._known(job_id) / LOG_FILE
        if not path.exists():
            return "", offset
        with path.open("rb") as file:
            file.seek(offset)
            content = file.read(_MOST_BYTES)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(content)
        return text, offset + len(content) - len(decoder.getstate()[0])  # a letter may be there by half

    def cancel(self, job_id: str) -> None:
        """See `Engine`."""
        folder = self._known(job_id)
        (folder / CANCEL_FILE).touch()
        if not self.status(job_id).phase.is_over and not is_alive(folder):
            _begin_runner(folder)  # which does no more than say so

    def _put(self, job: JobFile, new: Path, moves: tuple[Move, ...]) -> str:
        """Fills the new folder, and gives it the first free number of all."""
        write_whole(new / JOB_FILE, job.model_dump_json(exclude_unset=True).encode())
        while True:
            taken = [number_of(each) for each in job_ids(self._folder)]
            job_id = f"{job.name}-{max(taken, default=0) + 1}"
            status = JobStatus(
                job_id, job.name, self._user, job.team or "", Phase.WAITING, (), 0, None, "", datetime.now(UTC),
                moves=moves,
            )  # fmt: skip
            write_status(new, status)
            try:
                new.rename(self._folder / job_id)
            except OSError:
                if not (self._folder / job_id).exists():
                    raise
                continue  # somebody else had it first
            return job_id

    def _known(self, job_id: str) -> Path:
        ids = job_ids(self._folder)
        if job_id not in ids:
            raise InputError(
                "job", f"{self.where} knows no such job", value=job_id, allowed=", ".join(ids[-20:]) or "none is there",
                fix=nearest_hint(job_id, ids) if ids else "submit one: gangway job submit FILE",
            )  # fmt: skip
        return self._folder / job_id


def _staged(source: str) -> str:
    return f".staged-{hashlib.sha256(source.encode()).hexdigest()[:32]}"


def job_ids(folder: Path) -> list[str]:
    """Of all jobs in the folder, the oldest first."""
    found = [path.name for path in folder.glob("*") if _ID.fullmatch(path.name) and (path / STATE_FILE).is_file()]
    return sorted(found, key=number_of)


def number_of(job_id: str) -> int:
    """In the order of submission."""
    return int(job_id.rpartition("-")[2])


def order(job_id: str, job: JobFile) -> tuple[int, int]:
    """Of two that wait, whose is less begins first."""
    return RANK[job.priority], number_of(job_id)


def read_job(folder: Path) -> JobFile:
    """As it was submitted."""
    return JobFile.model_validate_json((folder / JOB_FILE).read_bytes())


def read_status(folder: Path) -> JobStatus:
    """As it was last written. InputError: somebody else has written there."""
    path = folder / STATE_FILE
    try:
        return _STATUS.validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise InputError(
            str(path), f"no state of a job: {error}", fix=f"remove {folder}, or name another folder"
        ) from None


def write_status(folder: Path, status: JobStatus) -> None:
    """In one step."""
    write_whole(folder / STATE_FILE, _STATUS.dump_json(status))


def is_alive(folder: Path) -> bool:
    """Whether the job's process, or what that has begun, still lives."""
    with (folder / ALIVE_FILE).open("ab") as file:
        return is_locked(file)


def _took(alive: IO[bytes]) -> bool:
    """Whether the lock is ours now. Who asks whether it is held keeps it for a moment."""
    until = time.monotonic() + _ASKED_SEC
    while True:
        try:
            lock(alive)
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(_POLL_SEC)
        else:
            return True


def _begin_runner(folder: Path) -> None:
    """A process of its own, which no Ctrl-C here reaches; what goes wrong in it stands in the job's log. It has the
    lock from its first moment, so that a job of a lower priority does not begin meanwhile.
    """
    with (folder / LOG_FILE).open("ab") as output, (folder / ALIVE_FILE).open("ab") as alive:
        if not _took(alive):
            return  # somebody else has begun one
        runner = [sys.executable, "-m", "stacks.engines.local_runner", str(folder), str(alive.fileno())]
        # By way of a shell that ends at once: whoever submits may live for long, and is nobody's parent.
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", *runner],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=(alive.fileno(),),
            check=True,
        )
