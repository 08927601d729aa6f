"""The protocol of two Gangways over a pipe, one JSON line per question and answer: calls of a remote engine
(`gangway.jobs.remote.engine` asks, `gangway.jobs.engines.serve` answers).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter

from gangway.components.core.findings import Finding, InputError
from gangway.jobs.base import EngineAwayError, JobStatus, Room

PROTOCOL = 3
"""Increased with every change: both ends must agree."""


class Call(StrEnum):
    """Methods of `gangway.jobs.base.Engine`, by name."""

    FINDINGS = "findings"
    SUBMIT = "submit"
    STATUS = "status"
    JOBS = "jobs"
    LOG = "log"
    CANCEL = "cancel"
    ROOM = "room"
    ENSURE_BEGUN = "ensure_begun"


ANSWERS: dict[Call, TypeAdapter[Any]] = {
    Call.FINDINGS: TypeAdapter(list[Finding]),
    Call.SUBMIT: TypeAdapter(str),
    Call.STATUS: TypeAdapter(JobStatus),
    Call.JOBS: TypeAdapter(list[JobStatus]),
    Call.LOG: TypeAdapter(tuple[str, int]),
    Call.CANCEL: TypeAdapter(None),
    Call.ROOM: TypeAdapter(Room),
    Call.ENSURE_BEGUN: TypeAdapter(None),
}


@dataclass(frozen=True)
class Hello:
    """The server's first line."""

    protocol: int
    version: str


@dataclass(frozen=True)
class Question:
    """One call. `on`: the engine, as for --on; `job`: a job file's JSON; `token`: identifies a submit when it is
    repeated; the rest depends on the call.
    """

    call: Call
    on: str
    job: str = ""
    job_id: str = ""
    offset: int = 0
    token: str = ""


@dataclass(frozen=True)
class Refusal:
    """The parts of an InputError. `is_away`: the engine does not answer now."""

    place: str
    problem: str
    value: str | None
    allowed: str
    fix: str
    is_away: bool

    @classmethod
    def of(cls, error: InputError) -> "Refusal":
        """The serializable parts."""
        value = None if error.value is None else str(error.value)
        return cls(
            error.place, error.problem, value, error.allowed, error.fix, is_away=isinstance(error, EngineAwayError)
        )

    def error(self) -> InputError:
        """As it was raised remotely."""
        kind = EngineAwayError if self.is_away else InputError
        return kind(self.place, self.problem, value=self.value, allowed=self.allowed, fix=self.fix)


@dataclass(frozen=True)
class Answer:
    """JSON of the call's type, or a refusal."""

    result: str = ""
    refusal: Refusal | None = None


HELLO, QUESTION, ANSWER = TypeAdapter(Hello), TypeAdapter(Question), TypeAdapter(Answer)
