"""REST calls for checks: one request each, short timeouts, refusals as NoAnswerError."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gangway.components.core.http_session import Session
from gangway.live.preflight.check import NoAnswerError

TIMEOUT_SEC = (4.0, 12.0)
"""To connect, and to read."""
_DENIED = (401, 403)


@dataclass(frozen=True)
class Rest:
    """A session with the caller's credentials. `root`: address of a host's API; `{host}` is replaced."""

    session: Session
    root: str = "https://{host}"

    def get(self, host: str, path: str, params: Mapping[str, Any] | None = None) -> Any:
        """The answer to a GET. NoAnswerError: refused, with the status as its code, or not reached."""
        return self._send("GET", host, path, params, None)

    def post(self, host: str, path: str, body: Mapping[str, Any], params: Mapping[str, Any] | None = None) -> Any:
        """The answer to a POST that only reads. NoAnswerError as with `get`."""
        return self._send("POST", host, path, params, body)

    def rows(self, host: str, path: str, key: str, params: Mapping[str, Any]) -> Iterator[Any]:
        """The rows of all pages, as Google numbers them."""
        while True:
            page = self.get(host, path, params)
            yield from page.get(key, ())
            if not page.get("nextPageToken"):
                return
            params = {**params, "pageToken": page["nextPageToken"]}

    def _send(self, method: str, host: str, path: str, params: Any, body: Any) -> Any:
        url = f"{self.root.format(host=host)}/{path}"
        try:
            reply = self.session.request(method, url, params=params, json=body, timeout=TIMEOUT_SEC)
        except OSError as failure:  # every exception of requests is one
            raise NoAnswerError(f"{host}: {type(failure).__name__}", "look at the network") from None
        try:
            answer = reply.json()
        except ValueError:
            answer = None
        if reply.status_code == 200 and answer is not None:
            return answer
        what = "no permission: " if reply.status_code in _DENIED else f"status {reply.status_code}: "
        fix = "ask for the permission" if reply.status_code in _DENIED else ""
        raise NoAnswerError(what + _message(answer, reply.text), fix, str(reply.status_code))


def _message(answer: Any, text: str) -> str:
    match answer:
        case {"error": {"message": str(message)}}:
            return message
    return " ".join(text[:200].split()) or "no message"
