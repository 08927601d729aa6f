"""An HTTP stand-in for the two clouds that are asked by REST: it answers page by page and keeps what it was asked."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest


class Rest:
    """A cloud's API.

    Attributes:
        pages: answers, one a request; the last for ever.
        status: of every answer.
        asked: method, path, parameters, headers and body of each request.
    """

    def __init__(self) -> None:
        self.pages: list[Any] = [{}]
        self.status = 200
        self.asked: list[dict[str, Any]] = []
        rest = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                parts = urlsplit(self.path)
                length = int(self.headers.get("Content-Length") or 0)
                rest.asked.append(
                    {
                        "method": self.command,
                        "path": parts.path,
                        "params": {key: values[0] for key, values in parse_qs(parts.query).items()},
                        "headers": dict(self.headers),
                        "body": json.loads(self.rfile.read(length)) if length else None,
                    }
                )
                page = rest.pages[min(len(rest.asked), len(rest.pages)) - 1]
                body = (page if isinstance(page, str) else json.dumps(page)).encode()
                self.send_response(rest.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = _answer  # noqa: N815 - the base class's names

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                """Keep the test output clean."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def rest() -> Iterator[Rest]:
    stand_in = Rest()
    thread = threading.Thread(target=stand_in.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield stand_in
    stand_in.server.shutdown()
    thread.join()
    stand_in.server.server_close()
