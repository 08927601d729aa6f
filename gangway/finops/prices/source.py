"""What a source of prices is: asked about items in a region, it tells what it observed and what it could not; and
HTTP as sources need it.
"""

import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Protocol, TypeAlias

from components.catalog.validators import SERVICE_FIELD, Observed
from components.core.http_reply import Reply

TIMEOUT_SEC = 60.0
BUSY = (429, 500, 502, 503, 504)
MAX_ATTEMPTS = 5
MAX_UNREACHED = 2
"""Attempts where nobody answers at all: a network that is down does not come up within seconds."""
FIRST_PAUSE_SEC = 1.0
LONGEST_PAUSE_SEC = 60.0


@dataclass(frozen=True)
class Query:
    """One item in one region: a machine type, a generation of TPUs, or a service of the catalogue."""

    item: str
    region: str
    is_service: bool = False


INSTANCE = "instance-"
"""Services that are machines without accelerators: the machine type follows."""


def as_service(observed: Observed) -> Observed | None:
    """The price on demand of a machine as that of the service which it is; None for its other prices."""
    if observed.field != "on_demand":
        return None
    return replace(observed, item=f"{INSTANCE}{observed.item}", field=SERVICE_FIELD)


@dataclass(frozen=True)
class Gap:
    """Something that a source could not tell, while it went on with the rest."""

    region: str
    what: str
    reason: str


Answer: TypeAlias = Observed | Gap


def unread_gaps(services: Iterable[str], unread: Mapping[str, str]) -> Iterator[Gap]:
    """A gap, of no region, for each of `services` that is not read. `unread`: those, with the reason."""
    for name in services:
        if name in unread:
            yield Gap("", name, unread[name])


class SourceError(Exception):
    """A source could not be read: no network, no credentials, refused, or no such answer as it documents. `reason`:
    one sentence, with what to do where that is known.
    """


class UnreachableError(SourceError):
    """Nobody answers: no network, or not this far. To ask about another region is of no use."""


class PriceSource(Protocol):
    """One provider's own lists."""

    @property
    def name(self) -> str:
        """The provider."""
        ...

    @property
    def how(self) -> str:
        """What it reads and with which credentials, in a few words."""
        ...

    def fetch(self, queries: Sequence[Query]) -> Iterable[Answer]:
        """What the lists say of `queries`; of what they do not have, nothing. SourceError: nothing can be told."""
        ...


class WebReply(Reply, Protocol):
    """With its headers, and a body that may be long."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, in any case."""
        ...

    def iter_lines(self) -> Iterator[bytes]:
        """The body line by line."""
        ...


class WebSession(Protocol):
    """What is used of a session of `requests`."""

    def get(self, url: str, *, params: Any = None, timeout: Any = None, stream: bool = False) -> WebReply:
        """Sends one request."""
        ...


def plain_session() -> WebSession:
    """A session without credentials; a proxy of the environment is used."""
    session: WebSession = import_module("requests").Session()
    return session


class Web:
    """GET requests of one session."""

    def __init__(self, session: WebSession, sleep: Callable[[float], None] = time.sleep) -> None:
        self._session, self._sleep = session, sleep

    def json(self, url: str, params: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The object that `url` answers. SourceError: unreachable, refused, or no JSON object."""
        reply = self._get(url, params, stream=False)
        try:
            answer = reply.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise SourceError(f"{url} answered no JSON object: {reply.text[:80]!r}")
        return answer

    def lines(self, url: str) -> Iterator[str]:
        """A large text, line by line and never whole in memory. SourceError: unreachable, refused, or broken off."""
        reply = self._get(url, None, stream=True)
        try:
            for line in reply.iter_lines():
                yield line.decode("utf-8", "replace")
        except OSError as error:
            raise SourceError(f"{url} broke off: {error}") from None

    def _get(self, url: str, params: Mapping[str, str] | None, *, stream: bool) -> WebReply:
        pause_sec, unreached = FIRST_PAUSE_SEC, 0
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                reply = self._session.get(url, params=params, timeout=TIMEOUT_SEC, stream=stream)
            except OSError as error:  # every exception of requests is one
                reply, unreached = None, unreached + 1
                if unreached == MAX_UNREACHED or attempt == MAX_ATTEMPTS:
                    raise UnreachableError(f"{url} cannot be reached: {type(error).__name__}") from None
            if reply is not None and reply.status_code == 200:
                return reply
            if reply is not None and (attempt == MAX_ATTEMPTS or reply.status_code not in BUSY):
                said = " ".join(reply.text[:200].split()) or "nothing"
                raise SourceError(f"{url} answered {reply.status_code}: {said}")
            # Half of the pause by chance, so that many who were sent away do not come back together.
            waited_sec = pause_sec * random.uniform(0.5, 1.0)
            self._sleep(min(max(waited_sec, _asked_to_wait(reply)), LONGEST_PAUSE_SEC))
            pause_sec *= 2
        raise AssertionError("the last attempt returns or raises")


def _asked_to_wait(reply: WebReply | None) -> float:
    """Seconds that `Retry-After` asks for; dates, which it may be as well, count as none."""
    try:
        asked_sec = float(reply.headers.get("Retry-After", "0")) if reply is not None else 0.0
    except ValueError:
        return 0.0
    return asked_sec if math.isfinite(asked_sec) else 0.0
