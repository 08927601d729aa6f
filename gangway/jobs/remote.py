"""An engine reached over SSH: Gangway on the other machine makes the calls, through one pipe, with one JSON line
per question and answer (`gangway.jobs.serve`). Logins are up to the SSH client: its configuration, keys and agent.
"""

import os
import secrets
import select
import shlex
import subprocess
import time
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from tempfile import TemporaryFile
from typing import IO, Any, Literal

from pydantic import TypeAdapter, ValidationError

from gangway.components.core.findings import Finding, GangwayError, InputError
from gangway.components.core.safe_text import one_line_texts
from gangway.components.estimate.regions import Place
from gangway.jobs.base import EngineAwayError, JobStatus, Room, data_source_findings
from gangway.stacks.config.job_file import JobFile

_CONNECT_SEC, _ANSWER_SEC = 30.0, 180.0
_NO_PROGRAM, _NO_CONNECTION = 127, 255
"""Exit codes: the shell's if a program is missing; ssh's own."""
_MOST_ANSWER_BYTES = 256_000_000
_MOST_GREETINGS = 200
"""Lines that a login shell may print before Gangway does."""
PROTOCOL = 4
"""Increased with every change: both ends must agree."""


Call = Literal["findings", "submit", "status", "jobs", "log", "cancel", "room", "ensure_begun"]
"""Methods of `gangway.jobs.base.Engine`, by name."""
ANSWERS: dict[Call, TypeAdapter[Any]] = {
    "findings": TypeAdapter(list[Finding]),
    "submit": TypeAdapter(str),
    "status": TypeAdapter(JobStatus),
    "jobs": TypeAdapter(list[JobStatus]),
    "log": TypeAdapter(tuple[str, int]),
    "cancel": TypeAdapter(None),
    "room": TypeAdapter(Room),
    "ensure_begun": TypeAdapter(None),
}


@dataclass(frozen=True)
class Hello:
    """The server's first line."""

    protocol: int
    version: str


@dataclass(frozen=True)
class Question:
    """One call; `token` identifies a submit when it is repeated."""

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


class RemoteEngine:
    """`via`: host or user@host, as for ssh; `on`: the engine there, as for --on; `program`: Gangway there."""

    def __init__(self, via: str, on: str, program: str = "gangway", region: Place | None = None) -> None:
        self.kind, _, where = on.partition(":")
        self.where, self.region = f"{via}: {where}", region
        self._via, self._program = via, program
        country = f"/{region.country}" if region is not None and region.country else ""
        self._on = on if region is None else f"{on}#{region.name}{country}"
        self._pipe: _Pipe | None = None

    def findings(self, job: JobFile) -> Iterable[Finding]:
        """See `Engine`."""
        found: list[Finding] = self._ask("findings", job)
        return [*data_source_findings(job), *found]

    def submit(self, job: JobFile) -> str:
        """A command without a workdir starts in the remote home folder; a repeated submit has the same token."""
        text = job.model_dump_json(exclude_unset=True)
        question = Question("submit", self._on, text, token=secrets.token_hex(16))
        try:
            answer = self._send(question)
        except _UnansweredError:
            try:
                answer = self._send(question)
            except (_UnansweredError, InputError) as again:
                why = again.why if isinstance(again, _UnansweredError) else again
                raise EngineAwayError(
                    why.place, f"{why.problem}; the job may have been submitted there", allowed=why.allowed,
                    fix="check `gangway job list` before you submit it again",
                ) from None  # fmt: skip
        return str(self._result("submit", answer))

    def status(self, job_id: str) -> JobStatus:
        """See `Engine`."""
        found: JobStatus = self._ask("status", job_id=job_id)
        return found

    def jobs(self) -> Sequence[JobStatus]:
        """See `Engine`."""
        found: list[JobStatus] = self._ask("jobs")
        return found

    def log(self, job_id: str, offset: int = 0) -> tuple[str, int]:
        """See `Engine`."""
        found: tuple[str, int] = self._ask("log", job_id=job_id, offset=offset)
        return found

    def cancel(self, job_id: str) -> None:
        """See `Engine`."""
        self._ask("cancel", job_id=job_id)

    def room(self, job: JobFile) -> Room:
        """See `Engine`."""
        found: Room = self._ask("room", job)
        return found

    def ensure_begun(self, job_id: str) -> None:
        """See `Engine`."""
        self._ask("ensure_begun", job_id=job_id)

    def _ask(self, call: Call, job: JobFile | None = None, job_id: str = "", offset: int = 0) -> Any:
        text = "" if job is None else job.model_dump_json(exclude_unset=True)
        try:
            return self._result(call, self._send(Question(call, self._on, text, job_id, offset)))
        except _UnansweredError as error:
            raise error.why from None

    def _result(self, call: Call, answer: Answer) -> Any:
        if answer.refusal is not None:
            raise answer.refusal.error()
        try:
            found = ANSWERS[call].validate_json(answer.result)
        except ValidationError:
            raise self._bad_answer() from None
        if call == "findings":  # statuses and rooms are visible by themselves, and a log is the job's own metrics
            return [Finding(each.severity, *one_line_texts(astuple(each)[1:])) for each in found]
        return one_line_texts(found) if call == "submit" else found

    def _send(self, question: Question) -> Answer:
        if self._pipe is None:
            self._pipe = _Pipe(self._via, self._program)
        try:
            answer = self._pipe.ask(QUESTION.dump_json(question))
        except BaseException:
            self._pipe.close()
            self._pipe = None
            raise
        try:
            return ANSWER.validate_json(answer)
        except ValidationError:
            raise _UnansweredError(self._bad_answer()) from None

    def _bad_answer(self) -> InputError:
        return InputError(f"via {self._via}", "the answer is not from Gangway", fix="ask its administrator")


class _UnansweredError(GangwayError):
    """The request was sent but the answer is lost: it may have been carried out."""

    def __init__(self, why: InputError) -> None:
        super().__init__(str(why))
        self.why = why


class _Pipe:
    def __init__(self, via: str, program: str) -> None:
        self._via, self._program, self._rest = via, program, b""
        # An unread pipe could fill up. It is closed with the connection.
        self._errors = TemporaryFile()  # noqa: SIM115
        words = ["ssh", "-T", "-o", f"ConnectTimeout={_CONNECT_SEC:.0f}", "--", via]
        try:
            self._process = subprocess.Popen(
                [*words, f"exec {shlex.quote(program)} job serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
            )
        except FileNotFoundError:
            raise InputError("via", "ssh is not on PATH", fix="install OpenSSH's client") from None
        # The other end exits when our end of the pipe closes.
        self.close = weakref.finalize(self, _close, self._process, self._errors)
        self._read_greeting()

    def ask(self, question: bytes) -> bytes:
        assert self._process.stdin is not None, "a pipe"
        try:
            self._process.stdin.write(question + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise _UnansweredError(self._exit_error()) from None
        try:
            return self._line(_ANSWER_SEC)
        except InputError as error:
            raise _UnansweredError(error) from None

    def _read_greeting(self) -> None:
        for _ in range(_MOST_GREETINGS):
            try:
                hello = HELLO.validate_json(self._line(_ANSWER_SEC))
            except ValidationError:
                continue  # a login shell's output
            if hello.protocol != PROTOCOL:
                raise InputError(
                    f"via {self._via}", "Gangway there uses another protocol",
                    value=hello.version, fix="install the same release at both ends",
                )  # fmt: skip
            return
        raise InputError(f"via {self._via}", "the answer is not from Gangway", fix="check what a login prints there")

    def _line(self, limit_sec: float) -> bytes:
        assert self._process.stdout is not None, "a pipe"
        number, until = self._process.stdout.fileno(), time.monotonic() + limit_sec
        while b"\n" not in self._rest:
            if not select.select([number], [], [], max(0.0, until - time.monotonic()))[0]:
                raise EngineAwayError(f"via {self._via}", f"no answer within {limit_sec:g} s", fix="try again")
            part = os.read(number, 1 << 16)
            if not part:
                raise self._exit_error()
            self._rest += part
            if len(self._rest) > _MOST_ANSWER_BYTES:
                raise InputError(f"via {self._via}", "the answer does not end", fix="ask its administrator")
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _exit_error(self) -> InputError:
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        message = lines[-1] if lines else f"exit code {code}"
        place, words = f"via {self._via}", shlex.join(["ssh", self._via, self._program, "--version"])
        if code == _NO_PROGRAM:
            return InputError(
                place, f"no {self._program} there: {message}", allowed="its path, as the engine's `program`",
                fix=f"install Gangway there from the same checkout, so that {words} works",
            )  # fmt: skip
        kind = EngineAwayError if code == _NO_CONNECTION else InputError
        return kind(place, message, fix=f"make {words} work")


def _close(process: "subprocess.Popen[bytes]", errors: IO[bytes]) -> None:
    for file in (process.stdin, process.stdout, errors):
        assert file is not None, "pipes, and stderr"
        with suppress(OSError):  # unsent data is lost
            file.close()
    try:
        process.wait(1)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
