"""What engines that keep their jobs in a folder have in common: a subfolder for each job, by an id of their own.

FOLDER/<id>/job.json          as it was submitted
FOLDER/<id>/state.json        its JobStatus, as it was last known
FOLDER/<id>/{log,run}         what it wrote, and its GANGWAY_RUN_DIR
FOLDER/<id>/cancel            somebody wants it to end
FOLDER/<id>/environment       in which it was submitted, see `gangway.jobs.environment`
FOLDER/.new-*                 being filled by a submit, which holds its file `submitting`

Several users may share FOLDER. Jobs of others are rows of a list and nothing else: `gangway.jobs.job_folder`.
"""

import codecs
import errno
import hashlib
import os
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from components.core.findings import Finding, InputError, Severity, nearest_hint
from components.core.first_error import first_wrong
from components.core.json_lines import lock
from components.core.whole_files import FULL, without_empty_folders
from components.estimate.regions import Place
from gangway.jobs.base import (
    LOG_PART_BYTES,
    JobStatus,
    Leaving,
    Move,
    PerhapsTakenError,
    Phase,
    Used,
    region_findings,
    unreadable,
)
from gangway.jobs.data_sets import bring_data, has_data
from gangway.jobs.environment import get_environment, has_environment, keep_environment
from gangway.jobs.job_folder import (
    ForeignError,
    JobFolder,
    NotOwnError,
    OwnJobFolder,
    UnreadableError,
    make_shared,
    sharing_findings,
)
from gangway.jobs.listing import (
    STATE_FILE,
    ClosedError,
    check_open,
    is_id,
    is_job,
    job_ids,
    next_number,
    open_job,
    owner_of,
)
from gangway.jobs.migration import give_up, leaving, where_gone
from gangway.jobs.run_intervals import used_sec
from gangway.jobs.working_folder import working_folder
from stacks.config.job_file import JobFile

if TYPE_CHECKING:
    from gangway.jobs.copying import Copied, Told

JOB_FILE, LOG_FILE, CANCEL_FILE, RUN_FOLDER = "job.json", "log", "cancel", "run"
_STATUS = TypeAdapter(JobStatus)
_NEW, _SUBMITTING = ".new-", "submitting"
_STALE_SEC = 60.0
"""After which a new folder that no submit holds was left by one that was killed, and not made in this instant."""


@dataclass(frozen=True)
class Kept:
    """What a job's folder has of it besides its status.

    Attributes:
        failures: of its starts.
    """

    folder: JobFolder
    job: JobFile
    failures: int


class FolderEngine(ABC):
    """Most of `Movable`, over one folder. `region`: the region of the machines that run them, and of the folder."""

    kind: str
    run_folders_are_here = True

    def __init__(self, folder: Path, region: Place | None = None) -> None:
        self._folder, self.where, self.region = folder, str(folder), region

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
        with without_empty_folders(self._folder):
            return self._submit(job)

    def _submit(self, job: JobFile) -> str:
        self.bring_data(job, lambda done, total: None)
        if job.command and (begins_in := working_folder(job)) is not None:
            job = job.model_copy(update={"workdir": begins_in})
        self._remove_stale()
        new = self._made_folder(f"{_NEW}{secrets.token_hex(8)}")
        back = new.path
        try:
            with new.append_to(_SUBMITTING) as held:
                lock(held)
                return self._put_and_begin(job, new, (), os.environ)
        except OSError as error:
            raise self._no_room(error, "it takes no job") from None
        finally:
            if new.path == back:
                with suppress(OSError):
                    new.remove_tree()

    def _remove_stale(self) -> None:
        """What killed submits of this user have left, with their environments."""
        for path in self._folder.glob(f"{_NEW}*"):
            with suppress(OSError, NotOwnError):
                folder = OwnJobFolder(path)
                # A clock that is set just now has that submit fail; all later ones hold the lock.
                if time.time() - folder.modified_at > _STALE_SEC:
                    with folder.append_to(_SUBMITTING) as held:
                        lock(held)
                        folder.remove_tree()

    def bring_data(self, job: JobFile, tell: "Told", say: Callable[[str], None] | None = None) -> "Copied | None":
        """See `Movable`."""
        return bring_data(job, self._folder, tell, say)

    def has_data(self, job: JobFile) -> bool:
        """See `Movable`."""
        return has_data(job, self._folder)

    def submit_staged(self, job: JobFile, moves: tuple[Move, ...], environment: Mapping[str, str] | None) -> str:
        """See `Movable`."""
        self._check(job)
        staged = self._made_folder(_staged(moves[-1].source))
        return self._put_and_begin(job, staged, moves, os.environ if environment is None else environment)

    def _put_and_begin(
        self, job: JobFile, folder: OwnJobFolder, moves: tuple[Move, ...], environment: Mapping[str, str]
    ) -> str:
        """Begins the job of a new folder and returns its id. After an error or a signal the folder is back where it
        was, so that what was copied for it is not copied twice.
        """
        back = folder.path
        try:
            self._put(job, folder, moves, environment)
            self._begun(folder.name)
        except PerhapsTakenError:
            raise  # it may be at work there
        except (InputError, OSError) as error:
            self._take_back(folder, back)
            if isinstance(error, OSError):
                raise self._no_room(error, "it takes no job") from None
            raise
        except BaseException:  # a signal
            if folder.path == back or not self._may_have_begun(folder):
                self._take_back(folder, back)
            elif not read_status(folder).moves:
                # Who submits hears of no id, while a move finds it again.
                with suppress(InputError):  # its file says so first, and is heard
                    self.cancel(folder.name)
            raise
        return folder.name

    def _take_back(self, folder: OwnJobFolder, back: Path) -> None:
        if folder.path == back:
            return
        folder.remove(STATE_FILE)
        with suppress(FileNotFoundError):  # somebody has removed or replaced it meanwhile
            folder.move_to(back)

    def _may_have_begun(self, folder: OwnJobFolder) -> bool:
        """Whether it is more than a folder, after a begin that was cut off."""
        if self._has_begun(folder):
            return True
        found = read_status(folder)
        return found.phase is not Phase.WAITING or found.known_starts > 0

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
        check_open(self._folder)
        return self._listed(lambda folder: self.status(folder.name) if folder.is_own else self._seen(folder))

    @abstractmethod
    def _seen(self, folder: JobFolder) -> JobStatus:
        """Of anybody's job, without a change to it. UnreadableError."""

    def _listed(self, ask: Callable[[JobFolder], JobStatus]) -> list[JobStatus]:
        """One that cannot be read hides no other, and one whose folder is removed meanwhile is in no list."""
        found = list[JobStatus]()
        for job_id in job_ids(self._folder):
            try:
                found.append(ask(open_job(self._folder / job_id)))
            except FileNotFoundError:
                continue
            except ClosedError:
                raise  # of this one it would be known no more than of all others
            except InputError as error:
                if not is_job(self._folder / job_id):
                    continue
                if not isinstance(error, UnreadableError):
                    raise
                row = unreadable(job_id, job_id.rpartition("-")[0], error)
                if isinstance(error, ForeignError):
                    whose = " and ".join(dict.fromkeys((error.owner, "root")))
                    why = f"only {whose} can see its state"
                    row = replace(row, phase=Phase.FOREIGN, user=error.owner, reason=why)
                else:
                    row = replace(row, user=owner_of(self._folder / job_id))
                found.append(row)
        return found

    def log(self, job_id: str, offset: int = 0) -> tuple[str, int]:
        """See `Engine`."""
        folder = self._known(job_id)
        try:
            with folder.open_file(LOG_FILE) as file:
                file.seek(offset)
                content = file.read(LOG_PART_BYTES)
        except FileNotFoundError:
            return "", offset
        except OSError as error:
            raise _unreadable(folder, LOG_FILE, "no log of a job", error) from None
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
    def _failures(self, folder: JobFolder) -> int:
        """Of the job's starts so far, on this engine."""

    @abstractmethod
    def _interruptions(self, folder: JobFolder) -> int:
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
        return get_environment(folder) if has_environment(folder) else None

    def run_url(self, job_id: str) -> str:
        """See `Movable`."""
        return (self._known(job_id).path / RUN_FOLDER).as_uri()

    def run_folder(self, job_id: str) -> JobFolder:
        """See `Movable`."""
        folder = self._known(job_id)
        try:
            return folder.folder(RUN_FOLDER)
        except OSError as error:
            raise _unreadable(folder, RUN_FOLDER, "no run folder", error) from None

    def stage(self, source: str) -> OwnJobFolder:
        """See `Movable`."""
        return self._made_folder(_staged(source)).own_subfolder(RUN_FOLDER)

    def unstage(self, source: str) -> None:
        """See `Movable`."""
        with suppress(FileNotFoundError):
            OwnJobFolder(self._folder / _staged(source)).remove_tree()

    def moved(self, source: str) -> str | None:
        """See `Movable`."""
        for job_id in job_ids(self._folder):
            with suppress(OSError, UnreadableError):  # another user's has not come from there, whatever it says
                if (moves := read_status(OwnJobFolder(self._folder / job_id)).moves) and moves[-1].source == source:
                    return job_id
        return None

    def ensure_begun(self, job_id: str) -> None:
        """See `Engine`."""
        if not self.status(job_id).phase.is_over and not self._has_begun(self._known(job_id)):
            _refuse(sharing_findings(self._folder))
            self._begun(job_id)

    @abstractmethod
    def _has_begun(self, folder: OwnJobFolder) -> bool:
        """Whether somebody sees to a job that is not over."""

    def leaving(self, job_id: str, target: str) -> AbstractContextManager[Leaving]:
        """See `Movable`."""
        return leaving(self._known(job_id), target)

    def _check(self, job: JobFile) -> None:
        """InputError: what this engine cannot do, or where it stands."""
        _refuse((*region_findings(job, self.region), *self.findings(job)))

    def _made_folder(self, name: str) -> OwnJobFolder:
        """A folder for a job to come, which no other name of a job is. InputError: there can be none, or somebody else
        has put theirs there.
        """
        try:
            make_shared(self._folder)
            with without_empty_folders(self._folder / name):
                folder = OwnJobFolder.make(self._folder / name)
                folder.subfolder(RUN_FOLDER)
        except OSError as error:
            raise self._no_room(error, "no folder for jobs") from None
        return folder

    def _no_room(self, error: OSError, said: str) -> InputError:
        """Of a folder in which nothing can be written."""
        if isinstance(error, PermissionError):
            try:
                check_open(self._folder)
            except ClosedError as closed:
                return closed
        other = f"name another: --on {self.kind}:FOLDER"
        return InputError(
            self.where, f"{said}: {error.strerror}", allowed="a folder that can be written, with room for a job",
            fix=f"make room there, or {other}" if error.errno in FULL else other,
        )  # fmt: skip

    def _put(
        self, job: JobFile, new: OwnJobFolder, moves: tuple[Move, ...], environment: Mapping[str, str]
    ) -> OwnJobFolder:
        """Fills the new folder, and gives it the first free number of all."""
        new.save(JOB_FILE, job.model_dump_json(exclude_unset=True).encode())
        number = 0
        while True:
            number = next_number(self._folder, number)
            job_id = f"{job.name}-{number}"
            status = JobStatus(
                job_id, job.name, new.owner, job.team or "", Phase.WAITING, (), 0, None, "", datetime.now(UTC),
                moves=moves,
            )  # fmt: skip
            write_status(new, status)
            try:
                keep_environment(new, environment)  # last of all: a submit that is killed leaves none
                new.move_to(self._folder / job_id)
            except OSError as error:
                if not os.path.lexists(self._folder / job_id):
                    raise self._no_room(error, "it takes no job") from None
                continue  # somebody else had it first
            return new

    def _known(self, job_id: str) -> OwnJobFolder:
        """InputError: there is no such job. UnreadableError: it is another user's, or the way to it is closed."""
        path = self._folder / job_id
        check_open(self._folder)
        if not is_id(job_id) or not is_job(path):
            ids = job_ids(self._folder)
            raise InputError(
                "job", f"{self.where} knows no such job", value=job_id, allowed=", ".join(ids[-20:]) or "none is there",
                fix=nearest_hint(job_id, ids) if ids else "submit one: gangway job submit FILE",
            )  # fmt: skip
        try:
            return open_job(path).own()
        except FileNotFoundError:
            raise InputError("job", f"{self.where} knows no such job", value=job_id, fix="it has just gone") from None


def _refuse(findings: Iterable[Finding]) -> None:
    """InputError: one of them is an error."""
    for finding in findings:
        if finding.severity is Severity.ERROR:
            raise InputError(finding.path, finding.message, fix=finding.fix)


def _staged(source: str) -> str:
    """Each user has their own."""
    return f".staged-{os.geteuid()}-{hashlib.sha256(source.encode()).hexdigest()[:32]}"


def read_job(folder: JobFolder) -> JobFile:
    """As it was submitted. UnreadableError: by another release, say."""
    try:
        return JobFile.model_validate_json(folder.read(JOB_FILE))
    except (OSError, ValidationError) as error:
        raise _unreadable(folder, JOB_FILE, "no job file of this release", error) from None


def read_status(folder: JobFolder) -> JobStatus:
    """As it was last written; of one that a move has taken, where to. Whose job it is, and its id, the folder says, and
    no file in it. UnreadableError: somebody else has written there.
    """
    try:
        found = _STATUS.validate_json(folder.read(STATE_FILE))
    except (OSError, ValidationError) as error:
        raise _unreadable(folder, STATE_FILE, "no state of a job", error) from None
    if found.starts is None:
        raise UnreadableError(
            str(folder.path / STATE_FILE), "no state of a job: starts: it has none", fix=f"move {folder.path} elsewhere"
        )
    if found.id != folder.name:
        said = f"no state of {folder.name}, but of {found.id[:80]}: a folder that was renamed"
        raise UnreadableError(
            str(folder.path / STATE_FILE), said, fix="give the folder its name again, or move it elsewhere"
        )
    found = replace(found, name=folder.name.rpartition("-")[0], user=folder.owner)
    if found.phase is Phase.CANCELLED and (gone := where_gone(folder)):
        return replace(found, reason=gone)
    return found


def _unreadable(folder: JobFolder, name: str, said: str, error: OSError | ValidationError) -> UnreadableError:
    path, aside = folder.path / name, f"move {folder.path} elsewhere"
    if isinstance(error, ValidationError):
        said, fix = f"{said}: {first_wrong(error)}", f"ask with the release that wrote it, or {aside}"
    else:
        said, fix = f"{said}: {error.strerror}", f"{_correction(path, error)}, or {aside}"
    return UnreadableError(str(path), said, fix=fix)


def _correction(path: Path, error: OSError) -> str:
    """What to do about a file of a job's that cannot be read."""
    if isinstance(error, PermissionError):
        return f"chmod u+r {path}"
    if isinstance(error, FileNotFoundError):
        return f"put {path} back"
    if error.errno == errno.EFBIG:
        return f"look what has written {path}, and shorten it"
    return f"remove {path}, once you have looked what has put it there"


def write_status(folder: OwnJobFolder, status: JobStatus) -> None:
    """In one step; several may write at once. InputError: there is no room."""
    folder.save(STATE_FILE, _STATUS.dump_json(status))
