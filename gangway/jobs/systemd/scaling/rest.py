"""A cloud's REST API with the caller's login: one call, one answer; refusals quote the cloud."""

from collections.abc import Mapping
from typing import Any, Protocol

from gangway.components.core.findings import InputError
from gangway.components.core.http_reply import Reply

TIMEOUT_SEC = 60.0
_GONE = "`pulumi up --refresh`; check that the account is the stack's"
_MOST_SHOWN = 300
"""Characters of a refusal to quote."""


class Session(Protocol):
    """What is used of a logged-in `requests` session."""

    def request(self, method: str, url: str, *, params: Any = None, json: Any = None, timeout: Any = None) -> Reply:
        """Sends one request."""
        ...


class Rest:
    """Calls below one address.

    Args:
        session: of the caller.
        root: the address.
        fix: for refused calls.
    """

    def __init__(self, session: Session, root: str, fix: str) -> None:
        self._session, self._root, self._fix = session, root, fix

    def call(
        self, what: str, method: str, path: str, params: Mapping[str, str] | None = None, body: Any = None
    ) -> dict[str, Any]:
        """The answer's JSON. `what`: names the object, and the action, in errors. InputError: a refusal, no answer, or
        no such object.
        """
        try:
            reply = self._session.request(
                method, f"{self._root}{path}", params=dict(params or {}), json=body, timeout=TIMEOUT_SEC
            )
        except OSError as error:  # every exception of requests is one
            raise InputError(what, f"no answer: {type(error).__name__}", fix=self._fix) from None
        if reply.status_code == 404:
            raise InputError(what, "does not exist", fix=_GONE)
        try:
            answer = reply.json()
        except ValueError:
            answer = None
        if reply.status_code not in (200, 201, 202) or not isinstance(answer, dict):
            text = " ".join(reply.text[:_MOST_SHOWN].split())
            raise InputError(what, f"{method} was refused", value=f"{reply.status_code}: {text}", fix=self._fix)
        return answer
