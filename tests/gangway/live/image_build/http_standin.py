"""An HTTP server that stands in for a cloud's build service: the test gives it one function per request."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit


class Call(NamedTuple):
    """One request; `path` begins with the host where the client writes it so."""

    method: str
    path: str
    query: dict[str, str]
    content: bytes
    headers: dict[str, str]

    @property
    def body(self) -> Any:
        return json.loads(self.content)

    @property
    def first_byte(self) -> int:
        return int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))


Answer = Callable[[Call], tuple[int, Any]]


@contextmanager
def serve(answer: Answer) -> Iterator[str]:
    """The server's address while the block runs. An answer is a status with bytes, or with what becomes JSON."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            parts = urlsplit(self.path)
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            status, found = answer(Call(self.command, parts.path, query, content, dict(self.headers)))
            text = found if isinstance(found, bytes) else json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = _answer  # noqa: N815 - the base class's names

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
            """Keep the test output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
