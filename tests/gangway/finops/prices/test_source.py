"""HTTP of the price sources: patience with who is busy, none with who is not there, and errors in words."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from gangway.finops.prices.source import (
    LONGEST_PAUSE_SEC,
    MAX_ATTEMPTS,
    SourceError,
    UnreachableError,
    Web,
    plain_session,
)

URL = "https://prices.example.com/list"


def test_who_is_busy_is_asked_again_after_the_time_it_named(play: Callable[..., Any]) -> None:
    session = play(429, 503, {"Items": []})
    assert session.web().json(URL, {"page": "1"}) == {"Items": []}
    assert session.asked == [(URL, {"page": "1"})] * 3
    assert len(session.pauses) == 2
    assert all(pause >= 3 for pause in session.pauses)


def test_who_stays_busy_is_given_up(play: Callable[..., Any]) -> None:
    session = play(429)
    with pytest.raises(SourceError, match="list answered 429: busy"):
        session.web().json(URL)
    assert len(session.asked) == MAX_ATTEMPTS


def test_nobody_waits_for_hours(play: Callable[..., Any]) -> None:
    session = play(503, {"a": 1})
    session._replies[0].headers = {"Retry-After": "86400"}
    session.web().json(URL)
    assert session.pauses == [LONGEST_PAUSE_SEC]


@pytest.mark.parametrize("asked", ["Fri, 21 Nov 2026 22:00:00 GMT", "nan", "inf"])
def test_a_time_that_is_no_number_of_seconds_is_not_waited_for(play: Callable[..., Any], asked: str) -> None:
    session = play(503, {"a": 1})
    session._replies[0].headers = {"Retry-After": asked}
    session.web().json(URL)
    assert session.pauses[0] <= 1


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_a_refusal_is_not_asked_again(play: Callable[..., Any], status: int) -> None:
    session = play(status)
    with pytest.raises(SourceError, match=f"answered {status}: busy"):
        session.web().json(URL)
    assert (len(session.asked), session.pauses) == (1, [])


def test_who_is_not_there_is_tried_twice(play: Callable[..., Any]) -> None:
    session = play(OSError("no route to host"))
    with pytest.raises(UnreachableError, match="cannot be reached: OSError"):
        session.web().json(URL)
    assert len(session.asked) == 2
    assert play(OSError("once"), {"a": 1}).web().json(URL) == {"a": 1}


@pytest.mark.parametrize("garbage", ["<html>Sign in to the network</html>", "[1, 2]", ""])
def test_what_is_no_json_object_is_shown(play: Callable[..., Any], garbage: str) -> None:
    with pytest.raises(SourceError, match="did not return a JSON object: ") as caught:
        play(garbage).web().json(URL)
    assert garbage[:40] in str(caught.value)


def test_a_text_that_breaks_off_is_an_error(play: Callable[..., Any]) -> None:
    lines = play("one\ntwo\n<broken off>").web().lines(URL)
    assert [next(lines), next(lines)] == ["one", "two"]
    with pytest.raises(SourceError, match="broke off: connection reset"):
        next(lines)


@pytest.fixture
def server() -> Iterator[str]:
    """A real server that is busy once and then answers what it was asked."""
    busy = [True]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status = 429 if busy.pop() else 200
            busy.append(False)
            body = json.dumps({"path": self.path}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Retry-After", "1")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
            """Keep the test output clean."""

    stand_in = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=stand_in.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{stand_in.server_port}"
    stand_in.shutdown()
    thread.join()
    stand_in.server_close()


def test_a_session_of_requests_does_what_ours_does(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    waited: list[float] = []
    with plain_session() as session:  # type: ignore[attr-defined]  # a session of requests closes its sockets so
        web = Web(session, waited.append)
        assert web.json(f"{server}/list", {"$filter": "armRegionName eq 'eastus'"}) == {
            "path": "/list?%24filter=armRegionName+eq+%27eastus%27"
        }
        assert list(web.lines(f"{server}/file")) == ['{"path": "/file"}']
    assert waited == [1.0]
