"""The part of `requests.Response` that is used here, so that tests can pass their own sessions."""

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
