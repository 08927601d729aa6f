"""A client of the TPU v2 API: one method per call, retries while it is busy, errors with a fix. Credentials (ADC) are
loaded at the first call, sent only to googleapis.com and never stored. Another address is a test server and gets none.
"""

import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Protocol
from urllib.parse import urlsplit

from gangway.components.core.findings import GangwayError

GOOGLE_API_URL = "https://tpu.googleapis.com"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
REQUEST_TIMEOUT_SEC = 60.0
# Replaces a status if there was no answer.
UNREACHABLE = -1
BUSY = {UNREACHABLE, 429, 500, 502, 503, 504}
MAX_ATTEMPTS = 6
FIRST_PAUSE_SEC = 1.0
LONGEST_PAUSE_SEC = 32.0
# google.rpc.Code of errors inside operations.
RESOURCE_EXHAUSTED = 8


class TpuError(GangwayError):
    """The API refused, or timed out; the message has a fix. `status`: HTTP, -1 without an answer, 0 otherwise."""

    def __init__(self, message: str, status: int = 0) -> None:
        self.status = status
        super().__init__(message)


class QuotaError(TpuError):
    """The project's quota is exceeded, or the API's rate limit did not end in time."""


class Session(Protocol):
    """The part of `requests.Session` that is used here, such as google-auth's AuthorizedSession."""

    def request(self, method: str, url: str, *, params: Any = None, json: Any = None, timeout: Any = None) -> Any:
        """Send one request; returns a `requests.Response`."""
        ...


def open_session(api_url: str) -> Session:
    """Credentials for Google's address only. TpuError: no google-auth, or no Application Default Credentials."""
    address = urlsplit(api_url)
    if address.scheme != "https" or not (address.hostname or "").endswith(".googleapis.com"):
        plain: Any = import_module("requests").Session()
        plain.trust_env = False  # no proxy between this machine and a stand-in on it
        session: Session = plain
        return session
    try:
        auth, transport = import_module("google.auth"), import_module("google.auth.transport.requests")
    except ImportError as error:
        raise TpuError("google-auth is not installed, without which nobody can log in: install google-auth") from error
    try:
        credentials, _ = auth.default(scopes=[SCOPE])
    except auth.exceptions.DefaultCredentialsError as error:
        raise TpuError(
            "no Application Default Credentials: run `gcloud auth application-default login`, "
            "or set GOOGLE_APPLICATION_CREDENTIALS"
        ) from error
    authorized: Session = transport.AuthorizedSession(credentials)
    return authorized


def _refusal(response: Any) -> dict[str, Any]:
    """The error object of a refused request: `code`, `message`, `status`; built from the text if there is none."""
    try:
        error = response.json()["error"]
    except (ValueError, KeyError, TypeError):
        error = {"message": response.text[:200] or "no message", "status": ""}
    return {"message": "no message", "status": "", **error}


def status_error(what: str, error: Mapping[str, Any]) -> TpuError:
    """The exception for the google.rpc.Status of a failed operation or queued resource."""
    message = f"{what}: {error.get('message', 'no message')}"
    if error.get("code") == RESOURCE_EXHAUSTED:
        return _quota_error(message)
    return TpuError(message)


_QUOTA_FIX = (
    "ask for quota of this accelerator and tier in this zone (IAM & Admin, Quotas, tpu.googleapis.com), free what of "
    "yours holds it (a preempted TPU does until it is deleted), or choose another zone"
)


def _quota_error(message: str, status: int = 0, fix: str = _QUOTA_FIX) -> QuotaError:
    return QuotaError(f"{message}\n  fix: {fix}", status)


class TpuApi:
    """Calls of the TPU v2 API. `base_url` is without `/v2`; `sleep` waits seconds between two attempts."""

    _version = "v2"
    _quota_fix = _QUOTA_FIX

    def __init__(
        self,
        base_url: str = GOOGLE_API_URL,
        session: Session | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._base_url, self._session, self._sleep = base_url.rstrip("/"), session, sleep

    def create_queued_resource(self, parent: str, queued_resource_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Request a queued resource -> Operation. The request id is new per call and kept in retries: one derived from
        the body would make the API ignore the replacement of a preempted one.
        """
        query = {"queuedResourceId": queued_resource_id, "requestId": str(uuid.uuid4())}
        return self._call("POST", f"{parent}/queuedResources", query, body)

    def get_queued_resource(self, name: str) -> dict[str, Any] | None:
        """The queued resource, or None if there is none."""
        try:
            return self._call("GET", name)
        except TpuError as error:
            if error.status == 404:
                return None
            raise

    def delete_queued_resource(self, name: str) -> dict[str, Any]:
        """Request the deletion of a queued resource and its nodes -> Operation."""
        return self._call("DELETE", name, {"force": "true", "requestId": str(uuid.uuid4())})

    def list_nodes(self, parent: str) -> Iterator[dict[str, Any]]:
        """Every node of a zone, page by page."""
        query: dict[str, str] = {}
        while True:
            page = self._call("GET", f"{parent}/nodes", query)
            yield from page.get("nodes", [])
            if not page.get("nextPageToken"):
                return
            query = {"pageToken": page["nextPageToken"]}

    def patch_node_labels(self, name: str, labels: Mapping[str, str]) -> dict[str, Any]:
        """Set a node's labels -> Operation."""
        return self._call("PATCH", name, {"updateMask": "labels"}, {"labels": dict(labels)})

    def delete_node(self, name: str) -> dict[str, Any]:
        """Request the deletion of a node -> Operation."""
        return self._call("DELETE", name)

    def get_operation(self, name: str) -> dict[str, Any]:
        """The status of an operation."""
        return self._call("GET", name)

    def _call(
        self, method: str, path: str, query: Mapping[str, str] | None = None, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """One call, retried while the API is busy or unreachable. TpuError has the API's message."""
        pause = FIRST_PAUSE_SEC
        for _ in range(MAX_ATTEMPTS - 1):
            try:
                return self._attempt(method, path, query, body)
            except TpuError as error:
                if error.status not in BUSY:
                    raise
            # Random jitter, so that many stacks do not retry at the same moment.
            self._sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE_SEC)
        return self._attempt(method, path, query, body)

    def _attempt(
        self, method: str, path: str, query: Mapping[str, str] | None, body: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        if self._session is None:
            self._session = open_session(self._base_url)
        url, what = f"{self._base_url}/{self._version}/{path}", f"{method} {path}"
        try:
            response = self._session.request(method, url, params=query, json=body, timeout=REQUEST_TIMEOUT_SEC)
        except OSError as error:  # every exception of requests is one
            raise TpuError(f"{what}: {self._base_url} cannot be reached ({error})", UNREACHABLE) from error
        if response.status_code == 200:
            return dict(response.json())
        refusal = _refusal(response)
        message = f"{what}: {response.status_code} {refusal['status']}: {refusal['message']}"
        if response.status_code == 429 or refusal["status"] == "RESOURCE_EXHAUSTED":
            raise _quota_error(message, response.status_code, self._quota_fix)
        raise TpuError(message, response.status_code)
