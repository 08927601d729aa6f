"""What is used of a response of `requests`: calls over HTTP take any session that gives one, a test's too."""

from typing import Any, Protocol


class Reply(Protocol):
    """Of one request."""

    @property
    def status_code(self) -> int:
        """The HTTP status."""
        ...

    @property
    def text(self) -> str:
        """The body."""
        ...

    def json(self) -> Any:
        """The body as JSON; ValueError where it is none."""
        ...
