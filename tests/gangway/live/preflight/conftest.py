"""An HTTP stand-in for clouds with REST: answers by path, refusals, and paths that hang until the test ends."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from gangway.live.preflight.check import Answer, run_checks
from gangway.live.preflight.rest import Rest


@dataclass
class Cloud:
    """A cloud's APIs. Paths begin with the host: `/compute.googleapis.com/compute/v1/...`.

    Attributes:
        answers: by path: a body, or a status with a message.
        hanging: paths without an answer.
        calls: each request.
    """

    answers: dict[str, Any] = field(default_factory=dict)
    hanging: set[str] = field(default_factory=set)
    calls: list[Any] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def answer(self, path: str) -> tuple[int, Any]:
        if path in self.hanging:
            self.released.wait()
        found = self.answers.get(path, 404)
        return (found, {"error": {"message": f"refused {path}"}}) if isinstance(found, int) else (200, found)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    state = Cloud()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            state.calls.append(SimpleNamespace(method=self.command, path=parts.path, query=query, body=body))
            status, answer = state.answer(parts.path)
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.send_header("X-Subject-Token", "token")
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = _answer  # noqa: N815 - the base class's names

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
            """Keep the test output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    state.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def rest(cloud: Cloud) -> Iterator[Rest]:
    session = requests.Session()
    session.trust_env = False
    yield Rest(session, f"{cloud.url}/{{host}}")
    session.close()


@pytest.fixture
def outcomes() -> Callable[..., dict[str, Answer]]:
    """Runs checks; their answers by the first words of their subjects."""

    def run(checks: Any, patience_sec: float = 40.0) -> dict[str, Answer]:
        return {answer.check.subject: answer for answer in run_checks(checks, patience_sec=patience_sec)}

    return run
