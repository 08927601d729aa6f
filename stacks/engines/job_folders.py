"""What engines that keep their jobs in a folder have in common: a subfolder for each job, by an id of their own.

FOLDER/<id>/job.json          as it was submitted
FOLDER/<id>/state.json        its JobStatus, as it was last known
FOLDER/<id>/{log,run}         what it wrote, and its GANGWAY_RUN_DIR
FOLDER/<id>/cancel            somebody wants it to end
FOLDER/<id>/environment       in which it was submitted, see `stacks.engines.environment`
"""

import codecs
import hashlib
import os
import re
import secrets
import shutil
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from components.core.findings import Finding, InputError, Severity, nearest_hint
from components.core.first_wrong import first_wrong
from components.estimate.regions import Place
from stacks.config.job_file import JobFile
from stacks.engines.base import (
    LOG_PART_BYTES,
    JobStatus,
    Leaving,
    Move,
    PerhapsTakenError,
    Phase,
    UnreadableError,
    Used,
    region_findings,
    unreadable,
)
from stacks.engines.data_sets import bring_data, has_data
from stacks.engines.environment import environment_of, has_environment, keep_environment
from stacks.engines.leaving import give_up, leaving, where_gone
from stacks.engines.stretches import used_sec
from stacks.engines.users import own_name, owner_of
from stacks.report.rendering import FULL, write_whole

if TYPE_CHECKING:
    from stacks.engines.hybrid.copying import Copied, Told

JOB_FILE, STATE_FILE, LOG_FILE, CANCEL_FILE, RUN_FOLDER = "job.json", "state.json", "log", "cancel", "run"
_STATUS = TypeAdapter(JobStatus)
_ID = re.compile(r"([a-z][a-z0-9-]*)-([0-9]+)")


@dataclass(frozen=True)
class Kept:
    """What a job's folder has of it besides its status.

    Attributes:
        failures: of its starts.
    """

    folder: Path
    job: JobFile
    failures: int


class FolderEngine(ABC):
    """Most of `Movable`, over one folder. `user`: whose jobs these are, in their status; `region`: the region of
    the machines that run them, and of the folder.
    """

    kind: str
    run_folders_are_here = True

    def __init__(self, folder: Path, user: str = "", region: Place | None = None) -> None:
        self._folder, self.where, self.region = folder, str(folder), region
        self._user = user or own_name()

    @abstractmethod
    def findings(self, job: JobFile) -> Iterable[Finding]:
        """See `Engine`."""

    @abstractmethod
    def status(self, job_id: str) -> JobStatus:
        """See `Engine`."""

    @abstractmethod
    def stop(self, job_id: str) -> None:
        """See `Movable`. InputError: it cannot be told."""

    @abstractmethod
    def _begun(self, job_id: str) -> None:
        """Begins a job whose folder is whole. InputError: it cannot be. PerhapsTakenError: nobody knows whether it has
        been.
        """

    def submit(self, job: JobFile) -> str:
        """See `Engine`. A command without an image begins where it was submitted, as every batch system has it."""
        self._check(job)
        self.bring_data(job, lambda done, total: None)
        if job.command and job.workdir is None and job.image is None:
            job = job.model_copy(update={"workdir": _working_folder()})
        name = f".new-{secrets.token_hex(8)}"
        try:
            new = self._made_folder(name)
            return self._begun_or_back(self._put(job, new, (), os.environ), new)
        finally:
            shutil.rmtree(self._folder / name, ignore_errors=True)

    def bring_data(self, job: JobFile, tell: "Told", say: Callable[[str], None] | None = None) -> "Copied | None":
        """See `Movable`."""
        return bring_data(job, self._folder, tell, say)

    def has_data(self, job: JobFile) -> bool:
        """See `Movable`."""
        return has_data(job, self._folder)

    def submit_staged(self, job: JobFile, moves: tuple[Move, ...], environment: Mapping[str, str] | None) -> str:
        """See `Movable`."""
        self._check(job)
        staged = self._folder / _staged(moves[-1].source)
        return self._begun_or_back(
            self._put(job, staged, moves, os.environ if environment is None else environment), staged
        )

    def _begun_or_back(self, job_id: str, back: Path) -> str:
        """Begins it, or its folder is again where it was: what was copied for it is not copied twice."""
        try:
            self._begun(job_id)
        except PerhapsTakenError:
            raise  # it may be at work there
        except (InputError, OSError) as error:
            self._take_back(job_id, back)
            if isinstance(error, OSError):
                raise self._no_room(error, "it takes no job") from None
            raise
        except BaseException:  # a signal
            if not self._may_have_begun(job_id):
                self._take_back(job_id, back)
            elif not read_status(self._folder / job_id).moves:
                # Who submits hears of no id, while a move finds it again.
                with suppress(InputError):  # its file says so first, and is heard
                    self.cancel(job_id)
            raise
        return job_id

    def _take_back(self, job_id: str, back: Path) -> None:
        folder = self._folder / job_id
        (folder / STATE_FILE).unlink()
        folder.rename(back)

    def _may_have_begun(self, job_id: str) -> bool:
        """Whether it is more than a folder, after a begin that was cut off."""
        if self._has_begun(job_id):
            return True
        found = read_status(self._folder / job_id)
        return found.phase is not Phase.WAITING or found.starts > 0

    def cancel(self, job_id: str) -> None:
        """See `Engine`."""
        folder = self._known(job_id)
        try:
            give_up(folder)  # first: a move may go on and end while it is told to stop, or that fails
        except (UnreadableError, OSError) as error:
            self.stop(job_id)  # that much can be done
            if isinstance(error, UnreadableError):
                raise
            raise self._no_room(error, f"{job_id} cannot be cancelled") from None
        self.stop(job_id)

    def jobs(self) -> Sequence[JobStatus]:
        """See `Engine`."""
        return self._listed(self.status)

    def _listed(self, ask: Callable[[str], JobStatus]) -> list[JobStatus]:
        """One that cannot be read hides no other, and one whose folder is removed meanwhile is in no list."""
        found = list[JobStatus]()
        for job_id in job_ids(self._folder):
            folder = self._folder / job_id
            try:
                found.append(ask(job_id))
            except InputError as error:
                if _look(folder) is _Look.NO_JOB:
                    continue
                if not isinstance(error, UnreadableError):
                    raise
                row = unreadable(job_id, job_id.rpartition("-")[0], error)
                found.append(replace(row, user=_owner(folder)))
        return found

    def log(self, job_id: str, offset: int = 0) -> tuple[str, int]:
        """See `Engine`."""
        folder = self._known(job_id)
        path = folder / LOG_FILE
        if not path.exists():
            return "", offset
        with path.open("rb") as file:
            file.seek(offset)
            content = file.read(LOG_PART_BYTES)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text, half = decoder.decode(content), decoder.getstate()[0]
        # A letter that is there by half is waited for, as long as somebody may write the rest.
        if half and len(content) < LOG_PART_BYTES and read_status(folder).phase.is_over:
            return text + decoder.decode(b"", final=True), offset + len(content)
        return text, offset + len(content) - len(half)

    def job(self, job_id: str) -> JobFile:
        """See `Movable`."""
        return read_job(self._known(job_id))

    def kept(self, job_id: str) -> Kept:
        """InputError: as `status`."""
        folder = self._known(job_id)
        return Kept(folder, read_job(folder), self._failures(folder))

    @abstractmethod
    def _failures(self, folder: Path) -> int:
        """Of the job's starts so far, on this engine."""

    @abstractmethod
    def _interruptions(self, folder: Path) -> int:
        """The same."""

    def used(self, job_id: str) -> Used:
        """See `Movable`."""
        status, folder = self.status(job_id), self._known(job_id)
        before = status.used_before
        return Used(
            before.sec + used_sec(status.stretches or (), datetime.now(UTC)),
            before.failures + self._failures(folder),
            before.interruptions + self._interruptions(folder),
        )

    def environment(self, job_id: str) -> Mapping[str, str] | None:
        """See `Movable`."""
        folder = self._known(job_id)
        return environment_of(folder) if has_environment(folder) else None

    def run_url(self, job_id: str) -> str:
        """See `Movable`."""
        return (self._known(job_id) / RUN_FOLDER).as_uri()

    def stage(self, source: str) -> str:
        """See `Movable`."""
        return (self._made_folder(_staged(source)) / RUN_FOLDER).as_uri()

    def unstage(self, source: str) -> None:
        """See `Movable`."""
        if (staged := self._folder / _staged(source)).exists():
            shutil.rmtree(staged)

    def moved(self, source: str) -> str | None:
        """See `Movable`."""
        for job_id in job_ids(self._folder):
            with suppress(UnreadableError):
                if (moves := read_status(self._folder / job_id).moves) and moves[-1].source == source:
                    return job_id
        return None

    def ensure_begun(self, job_id: str) -> None:
        """See `Engine`."""
        if not self.status(job_id).phase.is_over and not self._has_begun(job_id):
            self._begun(job_id)

    @abstractmethod
    def _has_begun(self, job_id: str) -> bool:
        """Whether somebody sees to a job that is not over."""

    def leaving(self, job_id: str, target: str) -> AbstractContextManager[Leaving]:
        """See `Movable`."""
        return leaving(self._known(job_id), target)

    def _check(self, job: JobFile) -> None:
        """InputError: what this engine cannot do, or where it stands."""
        for finding in (*region_findings(job, self.region), *self.findings(job)):
            if finding.severity is Severity.ERROR:
                raise InputError(finding.path, finding.message, fix=finding.fix)

    def _made_folder(self, name: str) -> Path:
        """A folder for a job to come, which no other name of a job is. InputError: there can be none."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / name).mkdir(mode=0o700, exist_ok=True)  # of env, which may hold what is nobody else's
            (self._folder / name / RUN_FOLDER).mkdir(exist_ok=True)
        except OSError as error:
            raise self._no_room(error, "no folder for jobs") from None
        return self._folder / name

    def _no_room(self, error: OSError, said: str) -> InputError:
        """Of a folder in which nothing can be written."""
        other = f"name another: --on {self.kind}:FOLDER"
        return InputError(
            self.where, f"{said}: {error.strerror}", allowed="a folder that can be written, with room for a job",
            fix=f"make room there, or {other}" if error.errno in FULL else other,
        )  # fmt: skip

    def _put(self, job: JobFile, new: Path, moves: tuple[Move, ...], environment: Mapping[str, str]) -> str:
        """Fills the new folder, and gives it the first free number of all."""
        write_whole(new / JOB_FILE, job.model_dump_json(exclude_unset=True).encode())
        try:
            keep_environment(new, environment)
        except OSError as error:
            raise self._no_room(error, "it takes no job") from None
        while True:
            # Whosever it is and whatever it holds: of what has the name of a job, no other can be made.
            taken = [number_of(each) for each in _names(self._folder)]
            job_id = f"{job.name}-{max(taken, default=0) + 1}"
            status = JobStatus(
                job_id, job.name, self._user, job.team or "", Phase.WAITING, (), 0, None, "", datetime.now(UTC),
                moves=moves,
            )  # fmt: skip
            write_status(new, status)
            try:
                new.rename(self._folder / job_id)
            except OSError as error:
                if not (self._folder / job_id).exists():
                    raise self._no_room(error, "it takes no job") from None
                continue  # somebody else had it first
            return job_id

    def _known(self, job_id: str) -> Path:
        folder = self._folder / job_id
        look = _look(folder) if _ID.fullmatch(job_id) else _Look.NO_JOB
        if look is _Look.NO_JOB:
            ids = job_ids(self._folder)
            raise InputError(
                "job", f"{self.where} knows no such job", value=job_id, allowed=", ".join(ids[-20:]) or "none is there",
                fix=nearest_hint(job_id, ids) if ids else "submit one: gangway job submit FILE",
            )  # fmt: skip
        if look is _Look.ANOTHERS:
            owner = _owner(folder) or "somebody else"
            fix = f"ask {owner}, or as {owner}"
            raise UnreadableError(str(folder), f"is {owner}'s, and nobody else can look into it", fix=fix)
        return folder


def _owner(folder: Path) -> str:
    """Empty where nobody may know."""
    with suppress(OSError):
        return owner_of(folder)
    return ""


def _working_folder() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        raise InputError(
            "job.workdir", "the folder in which this was submitted has been removed, and the command is to begin there",
            allowed="a folder that is there", fix="cd to one, or name it in the job file: workdir: /data/mine",
        ) from None  # fmt: skip


def _staged(source: str) -> str:
    return f".staged-{hashlib.sha256(source.encode()).hexdigest()[:32]}"


def job_ids(folder: Path) -> list[str]:
    """Of all jobs in the folder, the oldest first."""
    return sorted((name for name in _names(folder) if _look(folder / name) is not _Look.NO_JOB), key=number_of)


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("*") if _ID.fullmatch(path.name)]


class _Look(Enum):
    """What a folder with the name of a job is."""

    JOB = auto()
    ANOTHERS = auto()
    """A job's by its name: it is closed to all but its owner."""
    NO_JOB = auto()
    """Or one that has just been removed."""


def _look(folder: Path) -> _Look:
    try:
        return _Look.JOB if stat.S_ISREG((folder / STATE_FILE).stat().st_mode) else _Look.NO_JOB
    except PermissionError:
        return _Look.ANOTHERS
    except OSError:
        return _Look.NO_JOB


def is_anothers(folder: Path) -> bool:
    """Whether a job's folder cannot be looked into."""
    return _look(folder) is _Look.ANOTHERS


def number_of(job_id: str) -> int:
    """In the order of submission."""
    return int(job_id.rpartition("-")[2])


def read_job(folder: Path) -> JobFile:
    """As it was submitted. UnreadableError: by another release, say."""
    path = folder / JOB_FILE
    try:
        return JobFile.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise _unreadable(path, "no job file of this release", error) from None


def read_status(folder: Path) -> JobStatus:
    """As it was last written; of one that a move has taken, where to. UnreadableError: somebody else has written
    there.
    """
    path = folder / STATE_FILE
    try:
        found = _STATUS.validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise _unreadable(path, "no state of a job", error) from None
    if found.phase is Phase.CANCELLED and (gone := where_gone(folder)):
        return replace(found, reason=gone)
    return found


def _unreadable(path: Path, said: str, error: OSError | ValidationError) -> UnreadableError:
    why = error.strerror if isinstance(error, OSError) else first_wrong(error)
    fix = f"ask with the release that wrote it, or remove {path.parent}"
    return UnreadableError(str(path), f"{said}: {why}", fix=fix)


def write_status(folder: Path, status: JobStatus) -> None:
    """In one step; several may write at once."""
    partial = folder / f".{STATE_FILE}-{secrets.token_hex(8)}"
    try:
        partial.write_bytes(_STATUS.dump_json(status))
        partial.replace(folder / STATE_FILE)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise InputError(
            str(folder), f"cannot be written: {error.strerror}", allowed="a folder with room", fix="make room there"
        ) from None
