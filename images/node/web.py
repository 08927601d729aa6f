"""HTTP requests without a proxy; an error has its status. Shared by all clouds' API clients."""

import urllib.error
import urllib.request
from typing import Any

# Near the limit of the clouds' logs.
MAX_VALUE_CHARS = 4000


class RefusedError(OSError):
    """An API's error. `status`: of HTTP, or the code of a failed long-running operation."""

    def __init__(self, status: int, what: str) -> None:
        super().__init__(f"{status}: {what}")
        self.status = status


def open_url(request: urllib.request.Request, timeout_sec: float) -> Any:
    """The answer, to be read and closed. Raises RefusedError, or OSError without an answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        return opener.open(request, timeout=timeout_sec)
    except urllib.error.HTTPError as error:
        with error:
            text = error.read().decode(errors="replace")[:MAX_VALUE_CHARS]
        raise RefusedError(error.code, f"{request.get_method()} {request.full_url}: {text}") from None
