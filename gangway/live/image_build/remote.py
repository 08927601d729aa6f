"""Follows a build in a cloud's build service: its log and progress, its time limit, its end, the digest it pushed."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from gangway.components.core.findings import InputError
from gangway.components.core.http_session import Reply
from gangway.components.core.safe_text import one_line

POLL_SEC = 5.0
TIMEOUT_SEC = 60.0
"""Of one request; uploads get more."""
UPLOAD_TIMEOUT_SEC = 300.0
GRACE_SEC = 120.0
"""Beyond the service's own limit, until the build is cancelled here."""


@dataclass(frozen=True)
class BuildState:
    """What the service says of a build. `digest`: of the pushed image; `reason`: of its end, in the service's words."""

    phase: str
    end: Literal["", "succeeded", "failed"] = ""
    digest: str | None = None
    reason: str = ""


class RemoteBuild(Protocol):
    """One build. All methods raise InputError if the cloud refuses."""

    @property
    def service(self) -> str:
        """The service's name."""
        ...

    def start(self, timeout_sec: int) -> str:
        """Uploads the context and starts; returns the id for people."""
        ...

    def state(self) -> BuildState:
        """The state now."""
        ...

    def log_lines(self, *, at_end: bool) -> Sequence[str]:
        """The complete lines since the last call; `at_end`: also a partial last one."""
        ...

    def cancel(self) -> None:
        """Ends the build."""
        ...

    def registry_digest(self, digest: str) -> str | None:
        """The digest in the registry of the image that was pushed; None if it has none. `digest`: the build's."""
        ...


class BytesReply(Reply, Protocol):
    """A response whose body is no text."""

    @property
    def content(self) -> bytes:
        """The body."""


class BytesSession(Protocol):
    """The part of a `requests` session used here, which also uploads and reads bytes."""

    def request(
        self,
        method: str,
        url: str,
        *,
        params: Any = None,
        json: Any = None,
        data: Any = None,
        headers: Any = None,
        timeout: Any = None,
    ) -> BytesReply:
        """Send one request."""


def send_bytes(session: BytesSession, what: str, method: str, url: str, fix: str, **parts: Any) -> BytesReply:
    """A request whose body or answer is no JSON. InputError: no answer, or refused."""
    try:
        reply = session.request(method, url, timeout=UPLOAD_TIMEOUT_SEC, **parts)
    except OSError as error:  # every exception of requests is one
        raise InputError(what, f"no answer: {type(error).__name__}", fix=fix) from None
    if reply.status_code >= 400:
        text = " ".join(reply.text[:200].split())
        raise InputError(what, f"{method} was refused", value=f"{reply.status_code}: {text}", fix=fix)
    return reply


def read_from(session: BytesSession, url: str, offset: int, params: Any = None) -> bytes:
    """The bytes of a growing object from `offset`. Empty without an answer too: a log is no reason to end a build."""
    try:
        reply = session.request("GET", url, params=params, headers={"Range": f"bytes={offset}-"}, timeout=TIMEOUT_SEC)
    except OSError:
        return b""
    return b"" if reply.status_code >= 400 else reply.content


@dataclass
class GrowingLog:
    """A log that is one growing text. `read`: its bytes from an offset, empty if there are none."""

    read: Callable[[int], bytes]
    offset: int = 0
    _half: bytes = field(default=b"", repr=False)

    def lines(self, *, at_end: bool) -> list[str]:
        """As `RemoteBuild.log_lines`."""
        new = self.read(self.offset)
        self.offset += len(new)
        *whole, self._half = (self._half + new).split(b"\n")
        if at_end and self._half:
            whole, self._half = [*whole, self._half], b""
        return [one_line(line.decode("utf-8", "replace")) for line in whole]


def run_build(
    build: RemoteBuild, timeout_sec: int, echo: Callable[[str], None], pause: Callable[[float], None] = time.sleep
) -> str:
    """Runs a build to its end and returns the digest that the registry has. Cancels it on Ctrl-C and after the time
    limit. InputError: it failed, took too long, or the registry has another digest.
    """
    name, started = build.start(timeout_sec), time.monotonic()
    echo(f"{build.service} build {name} started")
    try:
        state = _follow(build, name, started + timeout_sec + GRACE_SEC, echo, pause)
    except BaseException:
        _cancel(build, name, echo)
        raise
    minutes = (time.monotonic() - started) / 60
    if state.end == "failed":
        raise InputError(
            f"{build.service} build {name}",
            f"ended as {state.phase}" + (f": {state.reason}" if state.reason else ""),
            fix="read the log above; build it with --local to look closer",
        )
    echo(f"{build.service} build {name} succeeded after {minutes:.1f} min")
    return _checked_digest(build, name, state.digest)


def _cancel(build: RemoteBuild, name: str, echo: Callable[[str], None]) -> None:
    echo(f"cancelling build {name}")
    try:
        build.cancel()
    except InputError as refusal:  # the reason for cancelling is the one to report
        echo(f"it may still run and cost money: {refusal}")


def _follow(
    build: RemoteBuild, name: str, deadline: float, echo: Callable[[str], None], pause: Callable[[float], None]
) -> BuildState:
    phase = ""
    while True:
        state = build.state()
        for line in build.log_lines(at_end=bool(state.end)):
            echo(line)
        if state.end:
            return state
        if state.phase != phase:
            phase = state.phase
            echo(f"[{phase.lower()}]")
        if time.monotonic() > deadline:
            raise InputError(
                f"{build.service} build {name}",
                "did not end within its time limit",
                value=phase,
                fix="give it more time: --timeout-minutes",
            )
        pause(POLL_SEC)


def _checked_digest(build: RemoteBuild, name: str, digest: str | None) -> str:
    place, fix = f"{build.service} build {name}", "build it again; do not use this image"
    if digest is None:
        raise InputError(place, "succeeded without the digest of a pushed image", fix=fix)
    if (found := build.registry_digest(digest)) != digest:
        raise InputError(place, "the registry has another digest than the build", value=found, allowed=digest, fix=fix)
    return digest
