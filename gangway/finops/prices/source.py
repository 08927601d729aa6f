"""The interface of price sources (queries in, observations and gaps out), and their HTTP."""

import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from importlib import import_module
from typing import Any, Protocol, TypeAlias

from gangway.components.catalog.validators import SERVICE_FIELD, Observed
from gangway.components.core.findings import GangwayError
from gangway.components.core.http_session import Reply
from gangway.stacks.base.registry import load_adapter, providers_with_adapter

TIMEOUT_SEC = 60.0
BUSY = (429, 500, 502, 503, 504)
MAX_ATTEMPTS = 5
MAX_UNREACHED = 2
"""Attempts without any response: a dead network does not recover within seconds."""
FIRST_PAUSE_SEC = 1.0
LONGEST_PAUSE_SEC = 60.0


@dataclass(frozen=True)
class Query:
    """One item in one region: a machine type, a TPU generation, or a service of the catalogue."""

    item: str
    region: str
    is_service: bool = False


INSTANCE = "instance-"
"""Prefix of services that are machines without accelerators, before the machine type."""


@dataclass(frozen=True)
class Gap:
    """A non-fatal failure of a source."""

    region: str
    what: str
    reason: str


Answer: TypeAlias = Observed | Gap


def as_services(answers: Iterable[Answer]) -> Iterator[Answer]:
    """Machines' on-demand prices as those of their services, without their other prices; gaps unchanged."""
    for each in answers:
        if isinstance(each, Gap):
            yield each
        elif each.field == "on_demand":
            yield replace(each, item=f"{INSTANCE}{each.item}", field=SERVICE_FIELD)


def unreadable_gaps(services: Iterable[str], unread: Mapping[str, str]) -> Iterator[Gap]:
    """A gap, without a region, for each of `services` in `unread`, which has the reasons."""
    for name in services:
        if name in unread:
            yield Gap("", name, unread[name])


class SourceError(GangwayError):
    """A source cannot be read. `reason`: one sentence, with the fix if known."""


class UnreachableError(SourceError):
    """No response: querying another region is pointless."""


class PriceSource(Protocol):
    """A provider's own price lists."""

    name: str
    """The provider."""
    how: str
    """What it reads and with which credentials, briefly."""

    def fetch(self, queries: Sequence[Query]) -> Iterable[Answer]:
        """Yield observations for `queries`, nothing for unlisted items. SourceError: none can be read."""


class WebReply(Reply, Protocol):
    """A response with headers and a possibly long body."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Case-insensitive."""

    def iter_lines(self) -> Iterator[bytes]:
        """Yield the body line by line."""


class WebSession(Protocol):
    """The part of a `requests` session used here."""

    def get(self, url: str, *, params: Any = None, timeout: Any = None, stream: bool = False) -> WebReply:
        """Send one request."""


def plain_session() -> WebSession:
    """A session without credentials, with the environment's proxy."""
    session: WebSession = import_module("requests").Session()
    return session


class Web:
    """GET requests of one session."""

    def __init__(self, session: WebSession, sleep: Callable[[float], None] = time.sleep) -> None:
        self._session, self._sleep = session, sleep

    def json(self, url: str, params: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the JSON object at `url`. SourceError: unreachable, refused, or not an object."""
        reply = self._get(url, params, stream=False)
        try:
            answer = reply.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise SourceError(f"{url} did not return a JSON object: {reply.text[:80]!r}")
        return answer

    def lines(self, url: str) -> Iterator[str]:
        """Yield a large text line by line. SourceError: unreachable, refused, or interrupted."""
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
                body = " ".join(reply.text[:200].split()) or "nothing"
                raise SourceError(f"{url} answered {reply.status_code}: {body}")
            # Half of the pause is random, so that clients do not retry at once.
            waited_sec = pause_sec * random.uniform(0.5, 1.0)
            self._sleep(min(max(waited_sec, _retry_after_sec(reply)), LONGEST_PAUSE_SEC))
            pause_sec *= 2
        raise AssertionError("the last attempt returns or raises")


def _retry_after_sec(reply: WebReply | None) -> float:
    """Seconds of `Retry-After`; 0 for its date form."""
    try:
        asked_sec = float(reply.headers.get("Retry-After", "0")) if reply is not None else 0.0
    except ValueError:
        return 0.0
    return asked_sec if math.isfinite(asked_sec) else 0.0


def open_source(provider: str, now: datetime) -> PriceSource:
    """Open the source of `provider`. SourceError: it has none, or it needs credentials and there are none."""
    if provider not in providers_with_adapter("prices"):
        raise SourceError("no price list is read for this provider; the catalogue's prices stay in use")
    source: PriceSource = load_adapter(provider, "prices").open_source(now)
    return source
