"""HTTP as a machine's own Python uses it: an answer that is an error has its status, and no proxy stands in between.

Shared by what machines of several clouds run. Not a client of any API: those are in modules of their own.
"""

import urllib.error
import urllib.request
from typing import Any

# Logs take little more in one value; a reason is cut long before.
MAX_VALUE_CHARS = 4000


class RefusedError(OSError):
 """An API's answer that is an error. `status`: of HTTP, or the code of a long operation that failed."""

 def __init__(self, status: int, what: str) -> None:
  super().__init__(f"{status}: {what}")
  self.status = status


def open_url(request: urllib.request.Request, timeout_sec: float) -> Any:
 """The answer, to be read and closed. Raises RefusedError, or OSError where nobody answers."""
 opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
 try:
  return opener.open(request, timeout=timeout_sec)
 except urllib.error.HTTPError as error:
  with error:
   text = error.read().decode(errors="replace")[:MAX_VALUE_CHARS]
  raise RefusedError(error.code, f"{request.get_method()} {request.full_url}: {text}") from None
