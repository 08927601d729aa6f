"""What every engine can do with a job file: a local queue, Slurm, Kubernetes. An engine exists already, and Gangway
writes none: it submits, asks and cancels, in the engine's own terms.

The life of a job is the same on all of them, and so are the exit codes of what runs on a node: 0 done, 2 bad input
(never again), 4 this node is unfit (another in its place), 75 interrupted (start it again), any other a failure, which
is tried again `max_restarts` times. A command's own codes are put into these terms by images/templates/job/own-job.sh.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, cast

from components.core.findings import Finding, InputError, Severity
from components.core.visible import OneLineTexts
from components.estimate.regions import Place, read_place, refusal
from gangway.jobs.job_folder import UnreadableError
from stacks.config.job_file import JobFile
from stacks.config.own_command import RENDEZVOUS_RISK, RUN_DIR

if TYPE_CHECKING:
    from gangway.jobs.copying import Copied, Told
    from gangway.jobs.job_folder import JobFolder, OwnJobFolder


LOG_PART_BYTES = 1_000_000
"""Of one answer of `Engine.log`."""
_HALF_LETTER_BYTES = 3
"""At most, of a letter in UTF-8 that is not whole."""


class EngineAwayError(InputError):
    """An engine that does not answer now."""


class PerhapsTakenError(EngineAwayError):
    """It has not answered a submit, and may have taken the job all the same, or take it yet."""


@dataclass(frozen=True)
class Used:
    """What a job has used of its hours and restarts.

    Attributes:
        sec: on nodes, however many.
        failures: of its starts.
        interruptions: starts that have ended so, of themselves.
    """

    sec: float = 0.0
    failures: int = 0
    interruptions: int = 0


@dataclass(frozen=True)
class Move(OneLineTexts):
    """One way from an engine to another.

    Attributes:
        source: engine and job that it came from; names the job's way for good.
        usd: what the way there cost by `why_usd`, in which price and source stand; None where nobody knows the price.
        used: by the job until then, on all engines; nothing of a move that an earlier release has made.
    """

    source: str
    target: str
    at: datetime
    sec: float
    bytes: int
    usd: float | None
    why_usd: str
    used: Used = Used()


@dataclass(frozen=True)
class Stretch:
    """A time on nodes. `end`: None while it goes on; `nodes`: how many; `so_far_sec`: its length until now, by a clock
    that cannot jump; None where nobody measures that.
    """

    start: datetime
    end: datetime | None
    nodes: int
    so_far_sec: float | None = None

    def until(self, now: datetime) -> datetime:
        """Its end, or how far it has come."""
        if self.end is None and self.so_far_sec is not None:
            return self.start + timedelta(seconds=self.so_far_sec)
        return self.end or now


@dataclass(frozen=True)
class Room(OneLineTexts):
    """Whether a job would begin at once, and why."""

    now: bool
    reason: str


class Phase(StrEnum):
    """Where a job is. Five are ends; the last two are all that is known here of a job."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    BAD_INPUT = "bad input"
    OVER_HOURS = "over its hours"
    CANCELLED = "cancelled"
    UNREADABLE = "cannot be read"
    FOREIGN = "another user's"

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of it, or nothing that would be seen here."""
        return self not in (Phase.WAITING, Phase.RUNNING)


@dataclass(frozen=True)
class JobStatus(OneLineTexts):
    """What an engine says of a job now. Its texts may be another user's, a cluster's or another machine's: what cannot
    be seen in them is spelled out.

    Attributes:
        id: the engine's own.
        nodes: names of those it is on, or was on last.
        starts: how often it was begun: 1 and more once it has run; None where that is not known here.
        exit_code: of its end, in the terms above; None before it, and where nobody knows.
        reason: in words, why it waits or how it has ended; may be empty.
    """

    id: str
    name: str
    user: str
    team: str
    phase: Phase
    nodes: tuple[str, ...]
    starts: int | None
    exit_code: int | None
    reason: str
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    moves: tuple[Move, ...] = ()
    """By which it came here, the first one first."""
    stretches: tuple[Stretch, ...] | None = ()
    """On this engine; None where nobody knows them any more. Of Kubernetes see `gangway.jobs.kubernetes.hours`."""

    @property
    def known_starts(self) -> int:
        """Of a job whose state is known."""
        return self.starts or 0

    @property
    def used_before(self) -> Used:
        """On engines before this one: here it goes on counting from there."""
        return self.moves[-1].used if self.moves else Used()


def unreadable(job_id: str, name: str, error: UnreadableError) -> JobStatus:
    """A job's row in `Engine.jobs` where it cannot be read: it hides no other."""
    why = f"{error.place}: {error.problem}"
    return JobStatus(job_id, name, "", "", Phase.UNREADABLE, (), None, None, why, stretches=None)


class Engine(Protocol):
    """One place to which jobs go."""

    kind: str
    """local, slurm, kubernetes."""
    where: str
    """Which one, for people: a folder, a controller's host, a context."""
    region: Place | None
    """Its region; None where nobody has said it."""

    def findings(self, job: JobFile) -> Iterable[Finding]:
        """What it would refuse, and what it would ignore."""

    def submit(self, job: JobFile) -> str:
        """Puts it at the end of the queue of its priority and returns its id. InputError: it takes no such job, and
        has not kept any of it.
        """

    def status(self, job_id: str) -> JobStatus:
        """InputError: it knows no such job. UnreadableError: it cannot be read."""

    def jobs(self) -> Sequence[JobStatus]:
        """Those it still knows, the oldest first; one that cannot be read is a row as of `unreadable`."""

    def log(self, job_id: str, offset: int = 0) -> tuple[str, int]:
        """What the job has written beyond that offset, and the offset for the next call. It may be a part, of
        `LOG_PART_BYTES` by which the offset goes on, but for those of a letter that is there by half; an answer by
        which it goes on otherwise has all that was there. InputError: as `status`.
        """

    def cancel(self, job_id: str) -> None:
        """Ends it: one that runs is told first, and has its grace. Of one that is over nothing changes. InputError: as
        `status`; or a move is about to begin it elsewhere.
        """

    def room(self, job: JobFile) -> Room:
        """Whether it would begin at once."""

    def ensure_begun(self, job_id: str) -> None:
        """Takes up one that nobody sees to: whose submit was cut off, or its process killed. Raises as `status`."""


class Leaving(Protocol):
    """A move that is at work, which writes down how far it came."""

    @property
    def is_stopped(self) -> bool:
        """Whether the job was told to stop, by this move or by one before it that was cut off."""

    @property
    def is_unwanted(self) -> bool:
        """Whether somebody has cancelled the job: after `gone` nobody can any more."""

    @property
    def is_noted(self) -> bool:
        """Whether there may be a copy of it at the target: this move or one before has said so."""

    @property
    def tried(self) -> tuple[str, ...]:
        """Places of earlier moves that were cut off, where a copy may be left."""

    @property
    def data_bytes(self) -> int:
        """Of its data set, sent to the target by this move or by one before it that was cut off."""

    def noted(self, data_bytes: int) -> None:
        """From now on there may be a copy of it at the target, and so much more of its data set was sent there."""

    def begun(self) -> None:
        """From now on the job is told to stop."""

    def not_there(self) -> None:
        """Nothing of it is at work at the target: it may go elsewhere after all. InputError: it had arrived there."""

    def stayed(self, *, is_left: bool) -> None:
        """It is over, and goes nowhere. `is_left`: a copy at the target could not be removed."""

    def gone(self) -> None:
        """It is copied, and goes nowhere else."""

    def arrived(self, job_id: str) -> None:
        """It has that id there."""

    def forgotten(self, place: str) -> None:
        """What an earlier move had copied there is no more."""


class Movable(Engine, Protocol):
    """An engine whose run folders can be read and filled from where Gangway runs: jobs can go on elsewhere."""

    run_folders_are_here: bool
    """Whether they are folders of this machine, or mounted on it."""

    def job(self, job_id: str) -> JobFile:
        """As it was submitted. InputError: as `status`."""

    def run_url(self, job_id: str) -> str:
        """Where its run folder is, for people. InputError: as `status`."""

    def run_folder(self, job_id: str) -> "JobFolder":
        """The same, opened. InputError: as `status`; or there is none."""

    def used(self, job_id: str) -> Used:
        """Here and on engines before. InputError: as `status`."""

    def stage(self, source: str) -> "OwnJobFolder":
        """In which the run folder of a job that comes from there is gathered; always the same. InputError: there can be
        none.
        """

    def unstage(self, source: str) -> None:
        """Takes that folder away, where there is one. OSError: it cannot be."""

    def stop(self, job_id: str) -> None:
        """As `cancel`, for a move, which goes on with it. InputError: as `status`."""

    def leaving(self, job_id: str, target: str) -> AbstractContextManager[Leaving]:
        """While a move of the job to that place is at work. InputError: another move is, or it has gone to another
        place.
        """

    def moved(self, source: str) -> str | None:
        """The id of the job that has come from there; None where none has."""

    def environment(self, job_id: str) -> Mapping[str, str] | None:
        """In which it was submitted; None where that was not kept. InputError: as `status`."""

    def submit_staged(self, job: JobFile, moves: tuple[Move, ...], environment: Mapping[str, str] | None) -> str:
        """As `submit`, with what was gathered for the last move's source as its run folder, in that environment; None:
        in this process's own.
        """

    def bring_data(self, job: JobFile, tell: "Told", say: Callable[[str], None] | None = None) -> "Copied | None":
        """Copies there what the job reads from elsewhere (`data.source`); None where that is nothing, or is there.
        `submit` does so, too. `say` hears that somebody else is copying it, who is waited for. InputError: it cannot
        be.
        """

    def has_data(self, job: JobFile) -> bool:
        """Whether that is there, whole."""


def as_movable(engine: Engine) -> Movable | None:
    """None: its folders cannot be reached from here."""
    return cast("Movable", engine) if hasattr(engine, "run_url") else None


def refusals(engine: Engine, job: JobFile) -> list[Finding]:
    """Why the job is not to go there; empty where it may."""
    if elsewhere := region_findings(job, engine.region):
        return elsewhere  # it is not even asked
    return [finding for finding in engine.findings(job) if finding.severity is Severity.ERROR]


def no_resources(job: JobFile) -> Iterator[Finding]:
    """Of an engine that gives whole nodes to a job."""
    if job.resources:
        yield Finding.warning("job.resources", "resources", "of no effect here: a job has its nodes as a whole")


def no_outputs(job: JobFile) -> Iterator[Finding]:
    """Of an engine without containers, which has nothing to mount folders in."""
    if job.outputs:
        yield Finding.error(
            "job.outputs",
            "outputs",
            f"this engine keeps no folders of containers: what is in {job.outputs[0]} would be lost",
            f"write to ${RUN_DIR} and leave outputs out; or give it an image, on an engine with containers",
        )


def open_meeting(job: JobFile, who: str) -> Iterator[Finding]:
    """Of a command whose processes meet. `who`: reaches the ports of its nodes."""
    if job.processes_per_node is not None and job.preset is None and job.processes_per_node * job.nodes.max > 1:
        fix = "submit it where nobody else reaches its nodes' ports"
        yield Finding.warning("job.rendezvous-without-key", "command", f"{RENDEZVOUS_RISK} {who}", fix)


def no_data_source(job: JobFile) -> Iterator[Finding]:
    """Of an engine whose folders cannot be reached from here."""
    if job.data is not None and job.data.source is not None:
        yield Finding.error(
            "job.data-source",
            "data.source",
            f"this engine's folders cannot be reached from here, so {job.data.source} is not copied there",
            "leave data.source out, and have the command, or data_dir of a preset, read it where its nodes have it",
        )


def region_findings(job: JobFile, region: Place | None) -> list[Finding]:
    """The errors of an engine that stands where the job may not be, or nobody knows where, and of data that are where
    they may not be; empty without limits.
    """
    return [*_engine_findings(job, region), *_data_findings(job, region)]


def _data_findings(job: JobFile, region: Place | None) -> list[Finding]:
    """Of data in the engine's own region the engine's finding speaks."""
    if job.data is None:
        return []
    place = read_place(job.data.region, "data.region")
    if region is not None and region.name == place.name:
        return []
    if (refused := refusal(job.regions.limits, place)) is None:
        return []
    fix = "copy the data to a region that is allowed first, or change regions"
    said = f"its data, which it reads from there: {refused.said} (regions: {refused.why})"
    return [Finding.error("regions.refused", "data.region", said, fix)]


def _engine_findings(job: JobFile, region: Place | None) -> list[Finding]:
    if (refused := refusal(job.regions.limits, region)) is None:
        return []
    fix = "submit it to another engine, or change regions"
    if region is None:
        fix = "say it behind the engine's name: #aws:eu-central-1, or #hosts:lab/DE for machines of your own"
    elif region.jurisdiction is None and job.regions.residency:
        fix = f"say its country: #{region.name}/DE"
    return [Finding.error("regions.refused", "regions", f"{refused.said} (regions: {refused.why})", fix)]


def follow(engine: Engine, job_id: str, pause: Callable[[], None]) -> Iterator[str]:
    """What the job writes, until it is over; taken up where its process dies meanwhile."""
    offset, is_over = 0, engine.status(job_id).phase.is_over
    while True:
        with suppress(EngineAwayError):
            is_over = _seen_to(engine, job_id).phase.is_over
        try:
            text, offset = engine.log(job_id, offset)
        except EngineAwayError:
            pause()
            continue
        if text:
            yield text
        elif is_over:
            return
        else:
            pause()


def written(engine: Engine, job_id: str) -> Iterator[str]:
    """What the job has written by now; that has an end also where it writes on meanwhile. Raises as `Engine.log`."""
    offset, is_part = 0, True
    while is_part:
        before = offset
        text, offset = engine.log(job_id, before)
        yield text
        is_part = LOG_PART_BYTES - _HALF_LETTER_BYTES <= offset - before <= LOG_PART_BYTES


def waited(engine: Engine, job_id: str, pause: Callable[[JobStatus], None]) -> JobStatus:
    """The status of a job that is over, after as many pauses as it takes; each is told what the job is at."""
    status = engine.status(job_id)
    while not status.phase.is_over:
        pause(status)
        with suppress(EngineAwayError):  # it comes back, or somebody loses patience
            status = _seen_to(engine, job_id)
    return status


def _seen_to(engine: Engine, job_id: str) -> JobStatus:
    """The status of a job that is taken up where it waits and nobody sees to it."""
    status = engine.status(job_id)
    if status.phase is Phase.WAITING:
        engine.ensure_begun(job_id)
    return status
