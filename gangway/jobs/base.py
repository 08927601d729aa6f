"""What every engine does with a job file: a local queue, Slurm, Kubernetes. Gangway runs no scheduler: it submits to,
asks and cancels on existing engines.

A job's life cycle and the exit codes of its nodes are the same everywhere: 0 done, 2 bad input (never restarted), 4
unfit node (restarted on another), 75 interrupted (restarted), any other a failure, restarted up to `max_restarts`
times. images/templates/job/own-job.sh maps a command's own codes to these.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol

from gangway.components.core.findings import Finding, InputError, Severity
from gangway.components.core.safe_text import OneLineTexts
from gangway.components.estimate.regions import Place, read_place, refusal
from gangway.jobs.job_folder import UnreadableError
from gangway.stacks.config.job_file import JobFile
from gangway.stacks.config.own_command import RENDEZVOUS_RISK, RUN_DIR
from gangway.trainer.core.errors import (
    EXIT_BAD_INPUT,
    EXIT_CODES,
    EXIT_ENDED_FOR_ALL,
    EXIT_HOURS_OVER,
    EXIT_INTERRUPTED,
    EXIT_UNFIT,
    EXIT_UNHEALTHY,
)

LOG_PART_BYTES = 1_000_000
"""Per answer of `Engine.log`."""
_HALF_LETTER_BYTES = 3
"""The most bytes of an incomplete UTF-8 character."""
_LEAST_INTERRUPTIONS, _INTERRUPTIONS_PER_HOUR = 20, 4


class EngineAwayError(InputError):
    """The engine does not answer now."""


class SubmitUnansweredError(EngineAwayError):
    """A submit got no answer; the engine may have taken the job or may still take it."""


@dataclass(frozen=True)
class Usage:
    """What a job has used: seconds on nodes, however many; starts that failed, or were interrupted, not by the user."""

    sec: float = 0.0
    failures: int = 0
    interruptions: int = 0


@dataclass(frozen=True)
class Move(OneLineTexts):
    """A move from one engine to another.

    Attributes:
        source: engine and job it came from; identifies the job on all later engines.
        used: by the job until then, on all engines; empty in moves of earlier releases.
    """

    source: str
    target: str
    at: datetime
    sec: float
    bytes: int
    usd: float | None
    why_usd: str
    used: Usage = Usage()


@dataclass(frozen=True)
class RunInterval:
    """A period on `nodes` nodes; `end` is None while it lasts, `so_far_sec` None without a monotonic clock."""

    start: datetime
    end: datetime | None
    nodes: int
    so_far_sec: float | None = None

    def until(self, now: datetime) -> datetime:
        """Its end, or `now` while it lasts."""
        if self.end is None and self.so_far_sec is not None:
            return self.start + timedelta(seconds=self.so_far_sec)
        return self.end or now


@dataclass(frozen=True)
class Room(OneLineTexts):
    """Whether a job would start immediately, and why."""

    now: bool
    reason: str


class Phase(StrEnum):
    """Where a job is. The last two are not phases of the job but limits of what this user can see."""

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
        """Whether it will not change any more, as far as this user can see."""
        return self not in (Phase.WAITING, Phase.RUNNING)


@dataclass(frozen=True)
class JobStatus(OneLineTexts):
    """A job's status on an engine. Texts may come from other users or machines, so control characters in them are
    escaped.

    Attributes:
        starts: number of starts, at least 1 once it has run; None if unknown here.
        exit_code: in the terms above; None before the end or if unknown.
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
    """That brought it here, oldest first."""
    stretches: tuple[RunInterval, ...] | None = ()
    """On this engine; None if no longer known. For Kubernetes see `gangway.jobs.kubernetes.status`."""
    most_nodes: int | None = None
    """As its job file asks, like max_hours; None if unknown."""
    max_hours: float | None = None

    @property
    def known_starts(self) -> int:
        """Starts, 0 if unknown."""
        return self.starts or 0

    @property
    def earlier_usage(self) -> Usage:
        """Usage on earlier engines, which counts here too."""
        return self.moves[-1].used if self.moves else Usage()


def unreadable(job_id: str, name: str, error: UnreadableError) -> JobStatus:
    """The row in `Engine.jobs` for a job that cannot be read."""
    why = f"{error.place}: {error.problem}"
    return JobStatus(job_id, name, "", "", Phase.UNREADABLE, (), None, None, why, stretches=None)


class Engine(Protocol):
    """A place that runs jobs."""

    kind: str
    """local, slurm, kubernetes."""
    where: str
    """Which one, for display: a folder, a controller's host, a context."""
    region: Place | None
    """None if not declared."""

    def findings(self, job: JobFile) -> Iterable[Finding]:
        """What it would refuse or ignore."""

    def submit(self, job: JobFile) -> str:
        """Queues the job behind others of its priority; its id. InputError: refused, and nothing of it is kept."""

    def status(self, job_id: str) -> JobStatus:
        """InputError: unknown job. UnreadableError: the job cannot be read."""

    def jobs(self) -> Sequence[JobStatus]:
        """All jobs it still knows, oldest first; one that cannot be read is an `unreadable` row."""

    def log(self, job_id: str, offset: int = 0) -> tuple[str, int]:
        """Log text after the offset, and the next offset. A part advances the offset by `LOG_PART_BYTES`, less the
        bytes of a character cut in half; any other advance means that the text is complete. Raises as `status`.
        """

    def cancel(self, job_id: str) -> None:
        """Ends the job: signals it first if it runs, then waits for its grace period. No effect on one that is over.
        InputError: as `status`, or a move is about to start it on another engine.
        """

    def room(self, job: JobFile) -> Room:
        """Whether it would start immediately."""

    def ensure_begun(self, job_id: str) -> None:
        """Restarts a job without a process: its submit was cut off or its process killed. Raises as `status`."""


def refusals(engine: Engine, job: JobFile) -> list[Finding]:
    """Why the engine does not take the job; empty if it does."""
    if elsewhere := region_findings(job, engine.region):
        return elsewhere  # without asking the engine
    return [finding for finding in engine.findings(job) if finding.severity is Severity.ERROR]


def resource_findings(job: JobFile) -> Iterator[Finding]:
    """For engines that give a job whole nodes."""
    if job.resources:
        yield Finding.warning("job.resources", "resources", "ignored here: a job gets whole nodes")


def lost_output_findings(job: JobFile) -> Iterator[Finding]:
    """For engines without containers, which cannot mount folders."""
    if job.outputs:
        yield Finding.error(
            "job.outputs",
            "outputs",
            f"this engine has no containers: the content of {job.outputs[0]} would be lost",
            f"write to ${RUN_DIR} and leave outputs out; or use an image on an engine with containers",
        )


def rendezvous_findings(job: JobFile, who: str) -> Iterator[Finding]:
    """For commands whose processes connect to each other. `who` can reach their ports."""
    if job.processes_per_node is not None and job.preset is None and job.processes_per_node * job.nodes.max > 1:
        fix = "submit it where no one else can reach its nodes' ports"
        yield Finding.warning("job.rendezvous-without-key", "command", f"{RENDEZVOUS_RISK} {who}", fix)


def data_source_findings(job: JobFile) -> Iterator[Finding]:
    """For engines whose folders cannot be reached from here."""
    if job.data is not None and job.data.source is not None:
        yield Finding.error(
            "job.data-source",
            "data.source",
            f"this machine cannot reach the engine's folders, so {job.data.source} is not copied there",
            "leave data.source out, and read the data from a path on the nodes (for a preset: data_dir)",
        )


def region_findings(job: JobFile, region: Place | None) -> list[Finding]:
    """Errors if the engine or the data is in a region that the job may not use, or in an unknown one."""
    return [*_engine_findings(job, region), *_data_findings(job, region)]


def _data_findings(job: JobFile, region: Place | None) -> list[Finding]:
    if job.data is None:
        return []
    place = read_place(job.data.region, "data.region")
    if region is not None and region.name == place.name:
        return []  # covered by the engine's finding
    if (refused := refusal(job.regions.limits, place)) is None:
        return []
    fix = "copy the data to an allowed region first, or change regions"
    message = f"its data is there: {refused.said} (regions: {refused.why})"
    return [Finding.error("regions.refused", "data.region", message, fix)]


def _engine_findings(job: JobFile, region: Place | None) -> list[Finding]:
    if (refused := refusal(job.regions.limits, region)) is None:
        return []
    fix = "submit it to another engine, or change regions"
    if region is None:
        fix = "append it to the engine's name: #aws:eu-central-1, or #hosts:lab/DE for your own machines"
    elif region.jurisdiction is None and job.regions.residency:
        fix = f"add its country: #{region.name}/DE"
    return [Finding.error("regions.refused", "regions", f"{refused.said} (regions: {refused.why})", fix)]


def follow(engine: Engine, job_id: str, pause: Callable[[], None]) -> Iterator[str]:
    """Yields the log until the job is over, and restarts the job if its process dies."""
    offset, is_over = 0, engine.status(job_id).phase.is_over
    while True:
        with suppress(EngineAwayError):
            is_over = _ensure_running(engine, job_id).phase.is_over
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


def read_log(engine: Engine, job_id: str) -> Iterator[str]:
    """Yields the log so far; ends even if the job keeps writing. Raises as `Engine.log`."""
    offset, is_part = 0, True
    while is_part:
        before = offset
        text, offset = engine.log(job_id, before)
        yield text
        is_part = LOG_PART_BYTES - _HALF_LETTER_BYTES <= offset - before <= LOG_PART_BYTES


def wait_until_over(engine: Engine, job_id: str, pause: Callable[[JobStatus], None]) -> JobStatus:
    """The final status. Calls `pause` with the current one until the job is over."""
    status = engine.status(job_id)
    while not status.phase.is_over:
        pause(status)
        with suppress(EngineAwayError):  # it may come back
            status = _ensure_running(engine, job_id)
    return status


def _ensure_running(engine: Engine, job_id: str) -> JobStatus:
    status = engine.status(job_id)
    if status.phase is Phase.WAITING:
        engine.ensure_begun(job_id)
    return status


_OVER: Mapping[int, tuple[Phase, str]] = MappingProxyType(
    {
        0: (Phase.DONE, ""),
        EXIT_BAD_INPUT: (Phase.BAD_INPUT, "it would fail again; see its log"),
        EXIT_UNHEALTHY: (Phase.FAILED, EXIT_CODES[EXIT_UNHEALTHY]),
        EXIT_ENDED_FOR_ALL: (Phase.FAILED, EXIT_CODES[EXIT_ENDED_FOR_ALL]),
        EXIT_HOURS_OVER: (Phase.OVER_HOURS, EXIT_CODES[EXIT_HOURS_OVER]),
    }
)


@dataclass(frozen=True)
class Next:
    """What follows a start. `phase` is None to start again."""

    phase: Phase | None
    failures: int
    reason: str


def after(code: int, failures: int, max_restarts: int, *, other_nodes: bool) -> Next:
    """The next step after an exit code. `other_nodes`: whether there is a node besides the unfit
    one.

    >>> after(75, 2, 3, other_nodes=False).phase, after(1, 3, 3, other_nodes=False).phase
    (None, <Phase.FAILED: 'failed'>)
    """
    if code in _OVER:
        phase, reason = _OVER[code]
        return Next(phase, failures, reason)
    if code == EXIT_UNFIT and not other_nodes:
        return Next(Phase.FAILED, failures, "this node is unfit for the job, and there is no other")
    if code in (EXIT_INTERRUPTED, EXIT_UNFIT):
        return Next(None, failures, EXIT_CODES[code])
    failures += 1
    cause = f"failed with exit code {code}" if code >= 0 else f"ended by signal {-code}"
    if failures > max_restarts:
        return Next(Phase.FAILED, failures, f"{cause}, failure {failures} of {max_restarts + 1}")
    return Next(None, failures, f"{cause}: restart {failures} of {max_restarts}")


def restart_limit(job: JobFile) -> int:
    """The limit on restarts of any kind, since interruptions are not failures and could repeat forever."""
    return job.max_restarts + max(_LEAST_INTERRUPTIONS, math.ceil(_INTERRUPTIONS_PER_HOUR * job.max_hours))


def restart_limit_reason(job: JobFile) -> str:
    """Why a job ends that has reached this limit."""
    return f"restarted {restart_limit(job)} times, the limit: something keeps interrupting it"
