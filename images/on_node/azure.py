"""What a machine on Azure asks of Azure's APIs, with the token of the managed identity that it runs as.

The metadata service (who am I, what is about to happen to me), Resource Manager (scale sets), the Logs Ingestion API.
Blobs are in `images.on_node.azure_blobs`, what scripts call in `images.on_node.azure_commands`. REST and no `az`: the
images do not bring it.
"""

import json
import os
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Any, BinaryIO
from urllib.parse import quote, urlencode

from images.on_node.web import RefusedError, open_url

__all__ = ["ARM", "COMPUTE_VERSION", "LOGS", "RESTARTS", "STORAGE", "Azure", "own_events", "row", "waits"]

METADATA_URL = "http://169.254.169.254"
TIMEOUT_SEC = 30.0
# The first question for events turns the service on, which takes up to two minutes: who cannot wait asks again.
EVENTS_TIMEOUT_SEC = 5.0
COMPUTE_VERSION = "2024-07-01"
# What a token is for.
ARM, LOGS, STORAGE = "https://management.azure.com/", "https://monitor.azure.com/", "https://storage.azure.com/"
EVENTS_QUERY: Mapping[str, str] = MappingProxyType({"api-version": "2020-07-01"})
# Events after which the machine is no more; and those after which it comes up again, maybe elsewhere.
ENDINGS, RESTARTS = ("Preempt", "Terminate"), ("Reboot", "Redeploy")


class Azure:
    """Azure's APIs as this machine may use them.

    Args:
        client_id: of the identity; a machine may have more than one.
        metadata_url: of the metadata service.
        api_url: stands before every API's host in tests; empty for the real ones.
    """

    def __init__(self, client_id: str, metadata_url: str = METADATA_URL, api_url: str = "") -> None:
        self._client_id, self._metadata_url, self._api_url = client_id, metadata_url, api_url
        self._tokens: dict[str, tuple[str, float]] = {}
        self._compute: dict[str, Any] = {}

    @classmethod
    def from_environment(cls) -> "Azure":
        """As the machine's scripts are told."""
        place = os.environ.get("GANGWAY_METADATA_URL", METADATA_URL)
        return cls(os.environ.get("GANGWAY_CLIENT_ID", ""), place, os.environ.get("GANGWAY_API_URL", ""))

    def metadata(self, path: str, query: Mapping[str, str], body: Any = None, timeout_sec: float = TIMEOUT_SEC) -> Any:
        """An item of the metadata service as JSON data; None where the answer is empty. A body is POSTed."""
        data = None if body is None else json.dumps(body).encode()
        url = f"{self._metadata_url}/metadata/{path}?{urlencode(query)}"
        with open_url(urllib.request.Request(url, data, {"Metadata": "true"}), timeout_sec) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def compute(self) -> dict[str, Any]:
        """What the metadata service says of this machine; `vmScaleSetName` is empty outside a scale set."""
        if not self._compute:
            self._compute = self.metadata("instance/compute", {"api-version": "2021-02-01"})
        return self._compute

    def name(self) -> str:
        """The machine's name: in a scale set SET_ID, as scheduled events call it."""
        return str(self.compute()["name"])

    def token(self, resource: str) -> str:
        """An access token for one of Azure's services; kept while it is good for another minute."""
        token, until = self._tokens.get(resource, ("", 0.0))
        if time.time() > until - 60:
            query = {"api-version": "2018-02-01", "resource": resource, "client_id": self._client_id}
            answer = self.metadata("identity/oauth2/token", query)
            token, until = answer["access_token"], time.time() + int(answer["expires_in"])
            self._tokens[resource] = token, until
        return token

    def open(
        self,
        method: str,
        url: str,
        resource: str,
        data: bytes | BinaryIO | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """An API's answer as it comes; `data` may be an open file. Raises RefusedError."""
        sent = {"Authorization": f"Bearer {self.token(resource)}", "Content-Type": "application/json"}
        sent.update(headers or {})
        if data is not None and not isinstance(data, bytes):
            sent["Content-Length"] = str(os.fstat(data.fileno()).st_size)
        return open_url(urllib.request.Request(self._address(url), data, sent, method=method), TIMEOUT_SEC)

    def call(self, method: str, url: str, body: Any = None, resource: str = ARM) -> dict[str, Any]:
        """One call of an API, with JSON in both directions. Raises RefusedError."""
        data = None if body is None else json.dumps(body).encode()
        with self.open(method, url, resource, data) as answer:
            text = answer.read()
        result: dict[str, Any] = json.loads(text) if text else {}
        return result

    def pages(self, url: str) -> Iterator[dict[str, Any]]:
        """The items of all pages of a list of Resource Manager's."""
        while url:
            page = self.call("GET", url)
            yield from page.get("value", [])
            url = page.get("nextLink", "")

    def _address(self, url: str) -> str:
        return url.replace("https://", f"{self._api_url}/", 1) if self._api_url else url

    def delete_itself(self) -> None:
        """Takes this machine out of its scale set, which becomes smaller by one."""
        self.call("DELETE", f"{ARM.rstrip('/')}{self.compute()['resourceId']}?api-version={COMPUTE_VERSION}")

    def events(self, timeout_sec: float = EVENTS_TIMEOUT_SEC) -> list[dict[str, Any]]:
        """Scheduled events of this machine. Raises OSError, also where the service is only being turned on."""
        document = self.metadata("scheduledevents", EVENTS_QUERY, timeout_sec=timeout_sec)
        return own_events(document, self.name())

    def endings(self) -> list[dict[str, Any]]:
        """Those after which it is no more."""
        return [event for event in self.events() if event["EventType"] in ENDINGS]

    def let_begin(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Tells Azure that it need not wait for the end of their notice."""
        requests = [{"EventId": event["EventId"]} for event in events]
        self.metadata("scheduledevents", EVENTS_QUERY, {"StartRequests": requests})

    def write_rows(self, ingestion_url: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Sends rows into the stack's table of lines."""
        self.call("POST", ingestion_url, list(rows), LOGS)

    def registry_token(self, registry: str) -> str:
        """What `docker login` takes as this machine's password, for some hours. `registry` is the host."""
        form = {"grant_type": "access_token", "service": registry, "access_token": self.token(ARM)}
        request = urllib.request.Request(
            self._address(f"https://{registry}/oauth2/exchange"), urlencode(form, quote_via=quote).encode()
        )
        with open_url(request, TIMEOUT_SEC) as answer:
            refresh_token = json.load(answer).get("refresh_token")
        if not refresh_token:
            raise RefusedError(502, f"{registry} gives no token")
        return str(refresh_token)


def own_events(document: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """The events of a document that name this machine: in some scale sets every machine hears of all."""
    return [event for event in document["Events"] if name in event["Resources"]]


def waits(event: Mapping[str, Any]) -> bool:
    """Whether an event begins at this machine's word: not begun yet, and about no other, which may not be ready."""
    return event["EventStatus"] == "Scheduled" and len(event["Resources"]) == 1


def row(node: str, role: str, unit: str, line: Mapping[str, Any], at: float | None = None) -> dict[str, Any]:
    """A row of `components.azure.alarms.COLUMNS`.

    Args:
        node: the machine's name.
        role: `worker` or `head`, as scripts have it.
        unit: of systemd, without its ending.
        line: what was printed.
        at: when, seconds since 1970; None for now.
    """
    moment = datetime.fromtimestamp(time.time() if at is None else at, timezone.utc)  # noqa: UP017 - Python 3.10
    return {
        "TimeGenerated": moment.isoformat(),
        "Node": node,
        "Role": "head" if role == "head" else "node",
        "Unit": unit,
        "Event": str(line.get("event", "")),
        "Line": dict(line),
    }
