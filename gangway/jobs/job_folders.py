"""Engines that keep each job in a subfolder named by its id.

FOLDER/<id>/job.json          as submitted
FOLDER/<id>/state.json        its last known JobStatus
FOLDER/<id>/{log,run}         its output, and its GANGWAY_RUN_DIR
FOLDER/<id>/cancel            a request to end it
FOLDER/<id>/environment       of the submit, in which every start runs, also after a restart or a move: NAME=VALUE, each
                              ended by a zero byte; readable by its owner only
FOLDER/.new-*                 being filled by a submit, which locks its file `submitting`

Several users may share FOLDER. They can only list each other's jobs: `gangway.jobs.job_folder`.
"""

import codecs
import errno
import hashlib
import os
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from gangway.components.core.findings import Finding, InputError, nearest_hint
from gangway.components.core.whole_files import FULL, lock, without_empty_folders
from gangway.components.estimate.regions import Place
from gangway.jobs.base import (
    LOG_PART_BYTES,
    Engine,
    JobStatus,
    Move,
    Phase,
    SubmitUnansweredError,
    Usage,
    region_findings,
    unreadable,
)
from gangway.jobs.copying import bring_data, has_data
from gangway.jobs.job_folder import (
    STATE_FILE,
    ClosedError,
    ForeignError,
    JobFolder,
    NotOwnError,
    OwnJobFolder,
    UnreadableError,
    check_open,
    get_owner,
    is_id,
    is_job,
    job_ids,
    make_shared,
    next_number,
    open_job,
    raise_errors,
    sharing_findings,
)
from gangway.jobs.migration import MoveRecord, cancel_move, describe_move, open_move
from gangway.jobs.run_intervals import used_sec
from gangway.stacks.config.job_file import JobFile
from gangway.trainer.core.validation import first_mistake

if TYPE_CHECKING:
    from gangway.jobs.copying import Copied, OnProgress

JOB_FILE, LOG_FILE, CANCEL_FILE, RUN_FOLDER = "job.json", "log", "cancel", "run"
_STATUS = TypeAdapter(JobStatus)
_NEW, _SUBMITTING = ".new-", "submitting"
_STALE_SEC = 60.0
"""A new folder that no submit holds for this long was left by a killed one and not just made."""
_ENTER_FIX = "cd to a folder that you can enter, or name one in the job file: workdir: /data/mine"
MARK, RUNNER_MARK = "GANGWAY_LOCAL_JOB", "GANGWAY_LOCAL_RUNNER"
"""Both hold the job's folder: in all processes of a job, and in its runner."""
_ENVIRONMENT = "environment"
_MOST_ENVIRONMENT_BYTES = 16_000_000
"""Several times what Linux passes to a program."""


@dataclass(frozen=True)
class StoredJob:
    """A job's folder, with what its status lacks."""

    folder: JobFolder
    job: JobFile
    failures: int


class FolderEngine(Engine, ABC):
    """An engine whose run folders can be read and written from this machine, so jobs can move."""

    def __init__(self, folder: Path, region: Place | None = None) -> None:
        self._folder, self.where, self.region = folder, str(folder), region

    @abstractmethod
    def stop(self, job_id: str) -> None:
        """Like `cancel`, for a move that resumes the job elsewhere. Raises as `status`."""

    @abstractmethod
    def _begin(self, job_id: str) -> None:
        """Starts a job whose folder is complete. InputError: it cannot. SubmitUnansweredError: it may have started."""

    def submit(self, job: JobFile) -> str:
        """See `Engine`. A command without an image starts in the current folder, as in every batch system."""
        self._check(job)
        with without_empty_folders(self._folder):
            return self._submit(job)

    def _submit(self, job: JobFile) -> str:
        self.bring_data(job, lambda done, total: None)
        if job.command and (begins_in := working_folder(job)) is not None:
            job = job.model_copy(update={"workdir": begins_in})
        self._remove_stale()
        new = self._make_folder(f"{_NEW}{secrets.token_hex(8)}")
        back = new.path
        try:
            with new.append_to(_SUBMITTING) as held:
                lock(held)
                return self._store_and_start(job, new, (), os.environ)
        except OSError as error:
            raise self._write_error(error, "the job cannot be stored") from None
        finally:
            if new.path == back:
                with suppress(OSError):
                    new.remove_tree()

    def _remove_stale(self) -> None:
        for path in self._folder.glob(f"{_NEW}*"):
            with suppress(OSError, NotOwnError):
                folder = OwnJobFolder(path)
                # If the clock was just set, a running submit may fail; later ones hold the lock.
                if time.time() - folder.modified_at > _STALE_SEC:
                    with folder.append_to(_SUBMITTING) as held:
                        lock(held)
                        folder.remove_tree()

    def bring_data(
        self, job: JobFile, on_progress: "OnProgress", on_wait: Callable[[str], None] | None = None
    ) -> "Copied | None":
        """Copies the job's `data.source` there, as `submit` does. InputError: it cannot be copied."""
        return bring_data(job, self._folder, on_progress, on_wait)

    def has_data(self, job: JobFile) -> bool:
        """Whether the complete data set is there."""
        return has_data(job, self._folder)

    def submit_staged(self, job: JobFile, moves: tuple[Move, ...], environment: Mapping[str, str] | None) -> str:
        """Like `submit`, with the folder staged for the last move's source, in that environment or this process's."""
        self._check(job)
        staged = self._make_folder(_staging_name(moves[-1].source))
        return self._store_and_start(job, staged, moves, os.environ if environment is None else environment)

    def _store_and_start(
        self, job: JobFile, folder: OwnJobFolder, moves: tuple[Move, ...], environment: Mapping[str, str]
    ) -> str:
        """After an error or a signal the folder has its old name again: what was copied for it is not copied again."""
        back = folder.path
        try:
            self._store(job, folder, moves, environment)
            self._begin(folder.name)
        except SubmitUnansweredError:
            raise  # it may run there
        except (InputError, OSError) as error:
            self._take_back(folder, back)
            if isinstance(error, OSError):
                raise self._write_error(error, "the job cannot be stored") from None
            raise
        except BaseException:  # a signal
            if folder.path == back or not self._may_have_started(folder):
                self._take_back(folder, back)
            elif not read_status(folder).moves:
                # The submitter never learns the id, while a move would find the job again.
                with suppress(InputError):  # its cancel file is written first and suffices
                    self.cancel(folder.name)
            raise
        return folder.name

    def _take_back(self, folder: OwnJobFolder, back: Path) -> None:
        if folder.path == back:
            return
        folder.remove(STATE_FILE)
        with suppress(FileNotFoundError):  # it was removed or replaced meanwhile
            folder.move_to(back)

    def _may_have_started(self, folder: OwnJobFolder) -> bool:
        if self._has_started(folder):
            return True
        found = read_status(folder)
        return found.phase is not Phase.WAITING or found.known_starts > 0

    def cancel(self, job_id: str) -> None:
        """See `Engine`."""
        folder = self._open_job(job_id)
        try:
            cancel_move(folder)  # first: a move may finish while the job stops, or stopping may fail
        except (UnreadableError, OSError) as error:
            self.stop(job_id)  # still possible
            if isinstance(error, UnreadableError):
                raise
            raise self._write_error(error, f"{job_id} cannot be cancelled") from None
        self.stop(job_id)

    def jobs(self) -> Sequence[JobStatus]:
        """See `Engine`."""
        check_open(self._folder)
        return self._list(lambda folder: self.status(folder.name) if folder.is_own else self._read_any(folder))

    @abstractmethod
    def _read_any(self, folder: JobFolder) -> JobStatus:
        """The status of any user's job, without side effects. UnreadableError."""

    def _list(self, ask: Callable[[JobFolder], JobStatus]) -> list[JobStatus]:
        """An unreadable job hides no other; one that is removed meanwhile is left out."""
        found = list[JobStatus]()
        for job_id in job_ids(self._folder):
            try:
                found.append(ask(open_job(self._folder / job_id)))
            except FileNotFoundError:
                continue
            except ClosedError:
                raise  # applies to all jobs of the folder
            except InputError as error:
                if not is_job(self._folder / job_id):
                    continue
                if not isinstance(error, UnreadableError):
                    raise
                row = unreadable(job_id, job_id.rpartition("-")[0], error)
                if isinstance(error, ForeignError):
                    owners = " and ".join(dict.fromkeys((error.owner, "root")))
                    why = f"only {owners} can see its state"
                    row = replace(row, phase=Phase.FOREIGN, user=error.owner, reason=why)
                else:
                    row = replace(row, user=get_owner(self._folder / job_id))
                found.append(row)
        return found

    def log(self, job_id: str, offset: int = 0) -> tuple[str, int]:
        """See `Engine`."""
        folder = self._open_job(job_id)
        try:
            with folder.open_file(LOG_FILE) as file:
                file.seek(offset)
                content = file.read(LOG_PART_BYTES)
        except FileNotFoundError:
            return "", offset
        except OSError as error:
            raise _unreadable(folder, LOG_FILE, "the job's log cannot be read", error) from None
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text, half = decoder.decode(content), decoder.getstate()[0]
        # Wait for the rest of a partial character while the job may write it.
        if half and len(content) < LOG_PART_BYTES and read_status(folder).phase.is_over:
            return text + decoder.decode(b"", final=True), offset + len(content)
        return text, offset + len(content) - len(half)

    def job(self, job_id: str) -> JobFile:
        """The job file as submitted. Raises as `status`."""
        return read_job(self._open_job(job_id))

    def get_stored_job(self, job_id: str) -> StoredJob:
        """Raises as `status`."""
        folder = self._open_job(job_id)
        return StoredJob(folder, read_job(folder), self._failures(folder))

    @abstractmethod
    def _failures(self, folder: JobFolder) -> int:
        """The job's failures on this engine."""

    @abstractmethod
    def _interruptions(self, folder: JobFolder) -> int:
        """The job's interruptions on this engine."""

    def get_usage(self, job_id: str) -> Usage:
        """Usage here and on earlier engines. Raises as `status`."""
        status, folder = self.status(job_id), self._open_job(job_id)
        before = status.earlier_usage
        return Usage(
            before.sec + used_sec(status.stretches or (), datetime.now(UTC)),
            before.failures + self._failures(folder),
            before.interruptions + self._interruptions(folder),
        )

    def environment(self, job_id: str) -> Mapping[str, str] | None:
        """The environment of the submit; None if it was not kept. Raises as `status`."""
        folder = self._open_job(job_id)
        return get_environment(folder) if has_environment(folder) else None

    def run_url(self, job_id: str) -> str:
        """Its run folder, for display. Raises as `status`."""
        return (self._open_job(job_id).path / RUN_FOLDER).as_uri()

    def run_folder(self, job_id: str) -> JobFolder:
        """The opened run folder. InputError: as `status`, or there is none."""
        folder = self._open_job(job_id)
        try:
            return folder.folder(RUN_FOLDER)
        except OSError as error:
            raise _unreadable(folder, RUN_FOLDER, "the run folder cannot be opened", error) from None

    def stage(self, source: str) -> OwnJobFolder:
        """The folder that collects a job's run folder from `source`; always the same one. InputError."""
        return self._make_folder(_staging_name(source)).own_subfolder(RUN_FOLDER)

    def unstage(self, source: str) -> None:
        """Removes that folder if it exists. OSError: it cannot be removed."""
        with suppress(FileNotFoundError):
            OwnJobFolder(self._folder / _staging_name(source)).remove_tree()

    def find_moved(self, source: str) -> str | None:
        """The id of the job that came from `source`; None if there is none."""
        for job_id in job_ids(self._folder):
            with suppress(OSError, UnreadableError):  # another user's job cannot have come from there
                if (moves := read_status(OwnJobFolder(self._folder / job_id)).moves) and moves[-1].source == source:
                    return job_id
        return None

    def ensure_begun(self, job_id: str) -> None:
        """See `Engine`."""
        if not self.status(job_id).phase.is_over and not self._has_started(self._open_job(job_id)):
            raise_errors(sharing_findings(self._folder))
            self._begin(job_id)

    @abstractmethod
    def _has_started(self, folder: OwnJobFolder) -> bool:
        """Whether a process or Slurm is responsible for a job that is not over."""

    def open_move(self, job_id: str, target: str) -> AbstractContextManager[MoveRecord]:
        """Open while the job moves. InputError: another move is in progress, or the job has moved elsewhere."""
        return open_move(self._open_job(job_id), target)

    def _check(self, job: JobFile) -> None:
        raise_errors((*region_findings(job, self.region), *self.findings(job)))

    def _make_folder(self, name: str) -> OwnJobFolder:
        """A folder under a name that is no job id. InputError: it cannot be made, or another user's is there."""
        try:
            make_shared(self._folder)
            with without_empty_folders(self._folder / name):
                folder = OwnJobFolder.make(self._folder / name)
                folder.subfolder(RUN_FOLDER)
        except OSError as error:
            raise self._write_error(error, "the job's folder cannot be made") from None
        return folder

    def _write_error(self, error: OSError, problem: str) -> InputError:
        if isinstance(error, PermissionError):
            try:
                check_open(self._folder)
            except ClosedError as closed:
                return closed
        other = f"use another folder: --on {self.kind}:FOLDER"
        return InputError(
            self.where, f"{problem}: {error.strerror}", allowed="a writable folder with space for a job",
            fix=f"free some space there, or {other}" if error.errno in FULL else other,
        )  # fmt: skip

    def _store(
        self, job: JobFile, new: OwnJobFolder, moves: tuple[Move, ...], environment: Mapping[str, str]
    ) -> OwnJobFolder:
        new.save(JOB_FILE, job.model_dump_json(exclude_unset=True).encode())
        number = 0
        while True:
            number = next_number(self._folder, number)
            job_id = f"{job.name}-{number}"
            status = JobStatus(
                job_id, job.name, new.owner, job.team or "", Phase.WAITING, (), 0, None, "", datetime.now(UTC),
                moves=moves, most_nodes=job.nodes.max, max_hours=job.max_hours,
            )  # fmt: skip
            write_status(new, status)
            try:
                save_environment(new, environment)  # last: a killed submit leaves none
                new.move_to(self._folder / job_id)
            except OSError as error:
                if not os.path.lexists(self._folder / job_id):
                    raise self._write_error(error, "the job cannot be stored") from None
                continue  # another submit took the number
            return new

    def _open_job(self, job_id: str) -> OwnJobFolder:
        path = self._folder / job_id
        check_open(self._folder)
        if not is_id(job_id) or not is_job(path):
            ids = job_ids(self._folder)
            raise InputError(
                "job", f"{self.where} has no such job", value=job_id, allowed=", ".join(ids[-20:]) or "no jobs yet",
                fix=nearest_hint(job_id, ids) if ids else "submit one: gangway job submit FILE",
            )  # fmt: skip
        try:
            return open_job(path).own()
        except FileNotFoundError:
            raise InputError("job", f"{self.where} has no such job", value=job_id, fix="it was just removed") from None


def _staging_name(source: str) -> str:
    return f".staged-{os.geteuid()}-{hashlib.sha256(source.encode()).hexdigest()[:32]}"


def read_job(folder: JobFolder) -> JobFile:
    """As submitted. UnreadableError: written by another release, for example."""
    try:
        return JobFile.model_validate_json(folder.read(JOB_FILE))
    except (OSError, ValidationError) as error:
        raise _unreadable(folder, JOB_FILE, "not a job file of this release", error) from None


def read_status(folder: JobFolder) -> JobStatus:
    """As last written; for a moved job, its target. Owner and id are the folder's. UnreadableError: it was changed."""
    try:
        found = _STATUS.validate_json(folder.read(STATE_FILE))
    except (OSError, ValidationError) as error:
        raise _unreadable(folder, STATE_FILE, "not the state of a job", error) from None
    if found.starts is None:
        raise UnreadableError(
            str(folder.path / STATE_FILE),
            "not the state of a job: starts is missing",
            fix=f"move {folder.path} elsewhere",
        )
    if found.id != folder.name:
        problem = f"the state of {found.id[:80]}, not of {folder.name}: the folder was renamed"
        raise UnreadableError(
            str(folder.path / STATE_FILE), problem, fix="rename the folder back, or move it elsewhere"
        )
    found = replace(found, name=folder.name.rpartition("-")[0], user=folder.owner)
    if found.phase is Phase.CANCELLED and (gone := describe_move(folder)):
        return replace(found, reason=gone)
    return found


def _unreadable(folder: JobFolder, name: str, problem: str, error: OSError | ValidationError) -> UnreadableError:
    path, aside = folder.path / name, f"move {folder.path} elsewhere"
    if isinstance(error, ValidationError):
        problem, fix = f"{problem}: {first_mistake(error)}", f"use the release that wrote it, or {aside}"
    else:
        problem, fix = f"{problem}: {error.strerror}", f"{_file_fix(path, error)}, or {aside}"
    return UnreadableError(str(path), problem, fix=fix)


def _file_fix(path: Path, error: OSError) -> str:
    if isinstance(error, PermissionError):
        return f"chmod u+r {path}"
    if isinstance(error, FileNotFoundError):
        return f"put {path} back"
    if error.errno == errno.EFBIG:
        return f"find out what wrote {path}, and shorten it"
    return f"find out what made {path}, then remove it"


def write_status(folder: OwnJobFolder, status: JobStatus) -> None:
    """Atomic; several may write at once. InputError: no room."""
    folder.save(STATE_FILE, _STATUS.dump_json(status))


def working_folder(job: JobFile) -> str | None:
    """The current folder unless the job names one; None if the engine decides. InputError: it was removed."""
    if job.workdir is not None or not job.command or job.image is not None:
        return job.workdir
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        raise InputError(
            "job.workdir", "the current folder, where the command would start, was removed",
            allowed="an existing folder", fix="cd to one, or name it in the job file: workdir: /data/mine",
        ) from None  # fmt: skip


def working_folder_findings(job: JobFile, *, is_here: bool) -> Iterator[Finding]:
    """A folder that this user cannot enter, unless it is missing; elsewhere than `is_here` only a warning."""
    folder = working_folder(job)
    if folder is None or job.image is not None:  # a container's own
        return
    try:
        os.stat(f"{folder}/.")  # noqa: PTH116 # pathlib would drop the dot, which requires entering the folder
    except PermissionError:
        problem = ClosedError(Path(folder) / "*").problem
    except NotADirectoryError:
        problem = "it is a file"
    except OSError:
        return
    else:
        return
    finding = Finding.error if is_here else Finding.warning
    where = "" if is_here else " (checked on this machine)"
    yield finding("job.workdir", "workdir", f"the command starts in {folder}{where}: {problem}", _ENTER_FIX)


def save_environment(folder: OwnJobFolder, variables: Mapping[str, str]) -> None:
    """OSError: no room."""
    content = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in without_marks(variables).items())
    folder.write(_ENVIRONMENT, content, 0o600)


def has_environment(folder: JobFolder) -> bool:
    """Whether one is stored; earlier releases stored none for Slurm jobs."""
    return folder.has(_ENVIRONMENT)


def get_environment(folder: JobFolder) -> dict[str, str]:
    """UnreadableError: there is none, or it was changed."""
    place, fix = str(folder.path / _ENVIRONMENT), f"submit it again, and move {folder.path} aside"
    try:
        lines = folder.read(_ENVIRONMENT, _MOST_ENVIRONMENT_BYTES).split(b"\0")
    except OSError as error:
        raise UnreadableError(place, f"the job's environment cannot be read: {error.strerror}", fix=fix) from None
    if lines.pop() or not all(line.find(b"=") > 0 for line in lines):
        raise UnreadableError(place, "not a job's environment", fix=fix)
    return {name: value for name, _, value in (os.fsdecode(line).partition("=") for line in lines)}


def without_marks(variables: Mapping[str, str]) -> dict[str, str]:
    """The user's own variables: a job submitted by a job does not end with it."""
    return {name: value for name, value in variables.items() if name not in (MARK, RUNNER_MARK)}
