"""The parts of `requests` that are used here, so that tests can pass their own sessions."""

from typing import Any, Protocol


class Reply(Protocol):
    """A response."""

    @property
    def status_code(self) -> int:
        """The HTTP status."""

    @property
    def text(self) -> str:
        """The body."""

    def json(self) -> Any:
        """The body as JSON. ValueError: it is not JSON."""


class Session(Protocol):
    """A session, such as google-auth's AuthorizedSession."""

    def request(self, method: str, url: str, *, params: Any = None, json: Any = None, timeout: Any = None) -> Reply:
        """Send one request."""
