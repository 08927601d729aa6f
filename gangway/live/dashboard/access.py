"""Who may see the dashboard: requests to this machine's own name, from its own pages, with the token. An ASGI layer, so
that no route can be without it.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BODY_BYTES = 4096
_METHODS = ("GET", "HEAD", "POST")
_HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",  # with no-referrer, a form would send the origin "null"
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_ENTER = (
    '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Gangway dashboard</title>'
    '<meta http-equiv="refresh" content="0; url=/"></head><body><p><a href="/">Open the dashboard</a></p></body></html>'
)
"""After a visit from another place, such as a terminal in a browser: its redirect would come without the cookie."""


@dataclass(frozen=True)
class Access:
    """The secrets of one dashboard: `token` in the printed URL, `session` in the cookie."""

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @property
    def cookie(self) -> str:
        """Its name: a browser sends cookies to every port of a host."""
        return f"gangway-dashboard-{self.port}"

    @property
    def hosts(self) -> frozenset[str]:
        """What a request may call this machine: any other name leads here by DNS rebinding."""
        suffix = "" if self.port == 80 else f":{self.port}"  # which browsers leave out
        return frozenset(f"{name}{suffix}" for name in ("127.0.0.1", "localhost", "[::1]"))

    def form_token(self, path: str) -> str:
        """Proves that a form was on our page for that action."""
        return hmac.new(self.session.encode(), path.encode(), hashlib.sha256).hexdigest()

    def is_form_token(self, path: str, given: str) -> bool:
        """Whether it is the action's."""
        return _is_same(self.form_token(path), given)

    def answer(self, request: Request) -> Response | None:
        """The answer to a request that is refused or that enters with the token; None to let it through."""
        if request.method not in _METHODS:
            return PlainTextResponse("only GET and POST\n", 405)
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or hosts[0] not in self.hosts:
            return PlainTextResponse(f"wrong Host: open http://127.0.0.1:{self.port}/\n", 421)
        if given := parse_qs(request.url.query).get("token"):
            return self._enter(request, given[0])
        if not self._is_own(request):
            return PlainTextResponse("refused: the request comes from another site's page\n", 403)
        if not _is_same(self.session, request.cookies.get(self.cookie, "")):
            return PlainTextResponse("refused: open the URL that the dashboard has printed\n", 403)
        return _refuse_body(request) if request.method == "POST" else None

    def _is_own(self, request: Request) -> bool:
        origin = request.headers.get("origin")
        if origin != f"http://{request.headers['host']}" and (origin is not None or request.method == "POST"):
            return False
        return request.headers.get("sec-fetch-site", "none") in ("same-origin", "none")

    def _enter(self, request: Request, given: str) -> Response:
        if request.method != "GET" or request.url.path != "/" or not _is_same(self.token, given):
            return PlainTextResponse("refused: wrong token; open the URL that the dashboard has printed\n", 403)
        is_foreign = request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
        answer: Response = HTMLResponse(_ENTER) if is_foreign else RedirectResponse("/", 303)
        answer.set_cookie(self.cookie, self.session, path="/", httponly=True, samesite="strict")
        return answer


def _is_same(expected: str, given: str) -> bool:
    return hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace"))


def _refuse_body(request: Request) -> Response | None:
    length = request.headers.get("content-length", "")
    if not length.isascii() or not length.isdigit() or "transfer-encoding" in request.headers:
        return PlainTextResponse("the length of the form is missing\n", 411)
    if int(length[:9]) > MOST_BODY_BYTES:
        return PlainTextResponse(f"the form is larger than {MOST_BODY_BYTES} bytes\n", 413)
    return None


class Guard:
    """Checks every request, and sets the headers of every answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                ours = {name.encode(): value.encode() for name, value in _HEADERS.items()}
                given = [(name, value) for name, value in message["headers"] if name not in ours]
                if not any(name == b"cache-control" for name, _ in given):
                    given.append((b"cache-control", b"no-store"))
                message = {**message, "headers": [*given, *ours.items()]}
            await send(message)

        answer = self._access.answer(Request(scope))
        await (self._app if answer is None else answer)(scope, receive, send_with_headers)
