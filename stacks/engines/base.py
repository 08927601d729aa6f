"""What every engine can do with a job file: a local queue, Slurm, Kubernetes. An engine exists already, and Gangway
writes none: it submits, asks and cancels, in the engine's own terms.

The life of a job is the same on all of them, and so are the exit codes of what runs on a node: 0 done, 2 bad input
(never again), 4 this node is unfit (another in its place), 75 interrupted (start it again), any other a failure, which
is tried again `max_restarts` times. A command's own codes are put into these terms by images/templates/job/own-job.sh.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from components.core.findings import Finding
from stacks.config.job_file import JobFile


class Phase(StrEnum):
    """Where a job is. The last five are ends."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    BAD_INPUT = "bad input"
    OVER_HOURS = "over its hours"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of it."""
        return self not in (Phase.WAITING, Phase.RUNNING)


@dataclass(frozen=True)
class JobStatus:
    """What an engine says of a job now.

    Attributes:
        id: the engine's own.
        nodes: names of those it is on, or was on last.
        starts: how often it was begun: 1 and more once it has run.
        exit_code: of its end, in the terms above; None before it, and where nobody knows.
        reason: in words, why it waits or how it has ended; may be empty.
    """

    id: str
    name: str
    user: str
    team: str
    phase: Phase
    nodes: tuple[str, ...]
    starts: int
    exit_code: int | None
    reason: str
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None


class Engine(Protocol):
    """One place to which jobs go."""

    kind: str
    """local, slurm, kubernetes."""
    where: str
    """Which one, for people: a folder, a controller's host, a context."""

    def findings(self, job: JobFile) -> Iterable[Finding]:
        """What it would refuse, and what it would ignore."""

    def submit(self, job: JobFile) -> str:
        """Puts it at the end of the queue of its priority and returns its id. InputError: it takes no such job, and
        has not kept any of it.
        """

    def status(self, job_id: str) -> JobStatus:
        """InputError: it knows no such job."""

    def jobs(self) -> Sequence[JobStatus]:
        """Those it still knows, the oldest first."""

    def log(self, job_id: str, offset: int = 0) -> tuple[str, int]:
        """What the job has written beyond that offset, and the offset for the next call. InputError: as `status`."""

    def cancel(self, job_id: str) -> None:
        """Ends it: one that runs is told first, and has its grace. Of one that is over nothing changes. InputError: as
        `status`.
        """


def follow(engine: Engine, job_id: str, pause: Callable[[], None]) -> Iterator[str]:
    """What the job writes, until it is over."""
    offset = 0
    while True:
        is_over = engine.status(job_id).phase.is_over
        text, offset = engine.log(job_id, offset)
        if text:
            yield text
        elif is_over:
            return
        else:
            pause()


def waited(engine: Engine, job_id: str, pause: Callable[[JobStatus], None]) -> JobStatus:
    """The status of a job that is over, after as many pauses as it takes; each is told what the job is at."""
    while not (status := engine.status(job_id)).phase.is_over:
        pause(status)
    return status
