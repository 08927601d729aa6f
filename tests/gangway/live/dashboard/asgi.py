"""A client that sends any request to an ASGI application, also ones that no browser sends, and keeps no state."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from urllib.parse import unquote, urlencode

from starlette.types import ASGIApp, Message

ORIGIN = "http://127.0.0.1:8808"


class Answer(NamedTuple):
    """What came back."""

    code: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode()


class Client:
    """Sends requests with these headers unless a request has others; None leaves one out."""

    def __init__(self, app: ASGIApp, **headers: str) -> None:
        self._app = app
        self._headers = {"host": ORIGIN.removeprefix("http://"), **headers}

    def get(self, url: str, headers: Mapping[str, str | None] | None = None, method: str = "GET") -> Answer:
        return self._send(method, url, headers or {}, b"")

    def post(self, url: str, form: Mapping[str, str], headers: Mapping[str, str | None] | None = None) -> Answer:
        content = urlencode(form).encode()
        own = {"content-type": "application/x-www-form-urlencoded", "content-length": str(len(content))}
        return self._send("POST", url, {**own, "origin": ORIGIN, **(headers or {})}, content)

    def _send(self, method: str, url: str, headers: Mapping[str, str | None], content: bytes) -> Answer:
        path, _, query = url.partition("?")
        every = {**self._headers, **headers}
        pairs: Sequence[tuple[bytes, bytes]] = [
            (name.replace("_", "-").encode(), value.encode()) for name, value in every.items() if value is not None
        ]
        scope = {
            **{"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "root_path": ""},
            **{"method": method, "path": unquote(path), "raw_path": path.encode(), "query_string": query.encode()},
            **{"headers": pairs, "server": ("127.0.0.1", 8808), "client": ("127.0.0.1", 40000)},
        }
        # Not asyncio.run, which leaves the main thread without the event loop that Pulumi's SDK expects.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, self._run(scope, content)).result()

    async def _run(self, scope: Mapping[str, object], content: bytes) -> Answer:
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        await self._app(dict(scope), receive, send)
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], headers, b"".join(each.get("body", b"") for each in sent[1:]))
