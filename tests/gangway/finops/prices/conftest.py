"""Answers of price lists without a network: a session that plays them back, and what is asked of it."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from gangway.finops.prices.source import Web

ANSWERS = Path(__file__).with_name("answers")
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@dataclass
class PlayedReply:
    """A response of `requests` in small."""

    text: str = ""
    status_code: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    def json(self) -> Any:
        return json.loads(self.text)

    def iter_lines(self) -> Iterator[bytes]:
        for line in self.text.splitlines():
            if line == "<broken off>":
                raise OSError("connection reset")
            yield line.encode()


class PlayedSession:
    """Gives one reply after another, the last for ever; an OSError is raised.

    Attributes:
        asked: the URL and the parameters of each request.
        pauses: seconds waited between them.
    """

    def __init__(self, replies: "list[PlayedReply | OSError]") -> None:
        self._replies = replies
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.pauses: list[float] = []

    def get(self, url: str, *, params: Any = None, timeout: Any = None, stream: bool = False) -> PlayedReply:
        self.asked.append((url, dict(params or {})))
        reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        if isinstance(reply, OSError):
            raise reply
        return reply

    def web(self) -> Web:
        return Web(self, self.pauses.append)


def _reply(each: Any) -> PlayedReply | OSError:
    if isinstance(each, OSError):
        return each
    if isinstance(each, int):
        return PlayedReply("busy", each, {"Retry-After": "3"})
    return PlayedReply(each if isinstance(each, str) else json.dumps(each))


@pytest.fixture
def play() -> Callable[..., PlayedSession]:
    """Makes a session from JSON data, texts, statuses and errors."""
    return lambda *replies: PlayedSession([_reply(each) for each in replies])


@pytest.fixture
def answer() -> Callable[[str], Any]:
    """Reads a file of `answers`: JSON as data, anything else as text."""

    def read(name: str) -> Any:
        text = (ANSWERS / name).read_text("utf-8")
        return json.loads(text) if name.endswith(".json") else text

    return read


@pytest.fixture
def now() -> datetime:
    return NOW


@pytest.fixture
def today() -> date:
    return NOW.date()


@pytest.fixture
def overlays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of overlays, which is the one in use."""
    folder = tmp_path / "prices"
    monkeypatch.setenv("GANGWAY_PRICES", str(folder))
    return folder
