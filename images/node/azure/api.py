"""Commands of a machine on Azure that call Azure's APIs, with the token of its managed identity, GANGWAY_CLIENT_ID.

    python3 -m gangway.images.node.azure.api event INGESTION_URL ROLE job-ended exit_status 0 reason done
    python3 -m gangway.images.node.azure.api leaving | waiting | let-go: about events that end this machine
    python3 -m gangway.images.node.azure.api outlast: waits until no restart is scheduled
    python3 -m gangway.images.node.azure.api leave | scale-set | capacity
    python3 -m gangway.images.node.azure.api put FILE URL, or: put-folder FOLDER URL, or: exists URL, or: list URL
    python3 -m gangway.images.node.azure.api registry-token REGISTRY, or: secret URL

Exit code 0, or 1 with a line for the reason. For `leaving`, `waiting` and `exists`, 1 also means no.
"""

import json
import os
import re
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO
from urllib.parse import quote, urlencode, urlsplit

from gangway.images.node.web import MAX_VALUE_CHARS, RefusedError, open_url

METADATA_URL = "http://169.254.169.254"
TIMEOUT_SEC = 30.0
# The first request enables scheduled events, which takes up to two minutes; callers retry.
EVENTS_TIMEOUT_SEC = 5.0
COMPUTE_VERSION = "2024-07-01"
# Resources for tokens.
ARM, LOGS, STORAGE = "https://management.azure.com/", "https://monitor.azure.com/", "https://storage.azure.com/"
VAULT, VAULT_VERSION = "https://vault.azure.net", "7.4"
EVENTS_QUERY: Mapping[str, str] = MappingProxyType({"api-version": "2020-07-01"})
# Events that end the machine, and events that restart it, maybe on another host.
ENDINGS, RESTARTS = ("Preempt", "Terminate"), ("Reboot", "Redeploy")
BLOB_VERSION = {"x-ms-version": "2021-12-02"}
PUT_BLOB = {**BLOB_VERSION, "x-ms-blob-type": "BlockBlob", "Content-Type": "application/octet-stream"}
# In a list of blobs, as XML. Our names need no unescaping.
_BLOB_NAME, _NEXT_MARKER = re.compile(r"<Blob><Name>([^<]*)</Name>"), re.compile(r"<NextMarker>([^<]+)</NextMarker>")
# Longer than a restart takes.
RESTART_SEC = 1800.0


class AzureApi:
    """Azure's APIs as this machine may use them.

    Args:
        client_id: of the managed identity.
        metadata_url: of the metadata service.
        api_url: prefix of every API's host in tests; else empty.
    """

    def __init__(self, client_id: str, metadata_url: str = METADATA_URL, api_url: str = "") -> None:
        self._client_id, self._metadata_url, self._api_url = client_id, metadata_url, api_url
        self._tokens: dict[str, tuple[str, float]] = {}
        self._compute: dict[str, Any] = {}

    @classmethod
    def from_environment(cls) -> "AzureApi":
        """Settings from the environment."""
        place = os.environ.get("GANGWAY_METADATA_URL", METADATA_URL)
        return cls(os.environ.get("GANGWAY_CLIENT_ID", ""), place, os.environ.get("GANGWAY_API_URL", ""))

    def metadata(self, path: str, query: Mapping[str, str], body: Any = None, timeout_sec: float = TIMEOUT_SEC) -> Any:
        """An item of the metadata service as JSON data; None if empty. With a body, a POST request."""
        data = None if body is None else json.dumps(body).encode()
        url = f"{self._metadata_url}/metadata/{path}?{urlencode(query)}"
        with open_url(urllib.request.Request(url, data, {"Metadata": "true"}), timeout_sec) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def compute(self) -> dict[str, Any]:
        """The machine's metadata; `vmScaleSetName` is empty outside a scale set."""
        if not self._compute:
            self._compute = self.metadata("instance/compute", {"api-version": "2021-02-01"})
        return self._compute

    def name(self) -> str:
        """The machine's name; in a scale set SET_ID, as in scheduled events."""
        return str(self.compute()["name"])

    def token(self, resource: str) -> str:
        """An access token for an Azure service, cached until a minute before it expires."""
        token, until = self._tokens.get(resource, ("", 0.0))
        now = time.clock_gettime(time.CLOCK_BOOTTIME)  # includes sleep
        if now > until - 60:
            query = {"api-version": "2018-02-01", "resource": resource, "client_id": self._client_id}
            answer = self.metadata("identity/oauth2/token", query)
            token, until = answer["access_token"], now + int(answer["expires_in"])
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
        """An API's open response; `data` may be an open file. Raises RefusedError."""
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
        """The items of all pages of a Resource Manager list."""
        while url:
            page = self.call("GET", url)
            yield from page.get("value", [])
            url = page.get("nextLink", "")

    def _address(self, url: str) -> str:
        return url.replace("https://", f"{self._api_url}/", 1) if self._api_url else url

    def delete_itself(self) -> None:
        """Deletes this machine from its scale set, which shrinks by one."""
        self.call("DELETE", f"{ARM.rstrip('/')}{self.compute()['resourceId']}?api-version={COMPUTE_VERSION}")

    def events(self, timeout_sec: float = EVENTS_TIMEOUT_SEC) -> list[dict[str, Any]]:
        """Scheduled events of this machine. Raises OSError, also while the service is being enabled."""
        document = self.metadata("scheduledevents", EVENTS_QUERY, timeout_sec=timeout_sec)
        return own_events(document, self.name())

    def endings(self) -> list[dict[str, Any]]:
        """Events that end this machine."""
        return [event for event in self.events() if event["EventType"] in ENDINGS]

    def start_events(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Lets Azure start these events before their notice ends."""
        requests = [{"EventId": event["EventId"]} for event in events]
        self.metadata("scheduledevents", EVENTS_QUERY, {"StartRequests": requests})

    def write_rows(self, ingestion_url: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Sends rows to the stack's table in Log Analytics."""
        self.call("POST", ingestion_url, list(rows), LOGS)

    def secret(self, url: str) -> str:
        """The newest version of the secret `https://VAULT.vault.azure.net/secrets/NAME`."""
        return str(self.call("GET", f"{url}?api-version={VAULT_VERSION}", resource=VAULT)["value"])

    def registry_token(self, registry: str) -> str:
        """A password for `docker login`, valid for some hours. `registry`: the host."""
        form = {"grant_type": "access_token", "service": registry, "access_token": self.token(ARM)}
        request = urllib.request.Request(
            self._address(f"https://{registry}/oauth2/exchange"), urlencode(form, quote_via=quote).encode()
        )
        with open_url(request, TIMEOUT_SEC) as answer:
            refresh_token = json.load(answer).get("refresh_token")
        if not refresh_token:
            raise RefusedError(502, f"{registry} returned no token")
        return str(refresh_token)


def own_events(document: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """The events for this machine: in some scale sets, every machine receives all events."""
    return [event for event in document["Events"] if name in event["Resources"]]


def can_start(event: Mapping[str, Any]) -> bool:
    """Whether this machine may start the event: it is scheduled, and for no other machine, which may not be ready."""
    return event["EventStatus"] == "Scheduled" and len(event["Resources"]) == 1


def log_row(node: str, role: str, unit: str, line: Mapping[str, Any], at: float | None = None) -> dict[str, Any]:
    """A row of `gangway.components.azure.monitoring.COLUMNS`.

    Args:
        node: the machine's name.
        role: `worker` or `head`.
        unit: of systemd, without its suffix.
        line: the fields to log.
        at: seconds since 1970; None for now.
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


def put_blob(azure: AzureApi, file: Path, url: str) -> None:
    """Copies a file into a container."""
    # Streamed: a checkpoint may not fit into memory.
    with file.open("rb") as content:
        azure.open("PUT", _quoted(url), STORAGE, content, PUT_BLOB).close()


def put_blob_folder(azure: AzureApi, folder: Path, url: str) -> None:
    """Copies all files of a folder into a container, below `url`."""
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            put_blob(azure, file, f"{url.rstrip('/')}/{file.relative_to(folder).as_posix()}")


def blob_exists(azure: AzureApi, url: str) -> bool:
    """Whether the blob exists. Raises RefusedError."""
    try:
        azure.open("HEAD", _quoted(url), STORAGE, headers=BLOB_VERSION).close()
    except RefusedError as error:
        if error.status == 404:
            return False
        raise
    return True


def blob_names(azure: AzureApi, url: str) -> list[str]:
    """The names of all blobs with this prefix. Raises RefusedError."""
    parts = urlsplit(url)
    container, _, prefix = parts.path.lstrip("/").partition("/")
    names: list[str] = []
    marker: str | None = ""
    while marker is not None:
        query = urlencode({"restype": "container", "comp": "list", "prefix": prefix, "marker": marker}, quote_via=quote)
        place = f"{parts.scheme}://{parts.netloc}/{quote(container)}?{query}"
        with azure.open("GET", place, STORAGE, headers=BLOB_VERSION) as answer:
            page = answer.read().decode()
        names += _BLOB_NAME.findall(page)
        following = _NEXT_MARKER.search(page)
        marker = following[1] if following else None
    return names


def _quoted(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{quote(url.partition(parts.netloc)[2], safe='/')}"


def _event(azure: AzureApi, ingestion_url: str, role: str, event: str, *pairs: str) -> bool:
    """`pairs`: alternating names and values; exit_status is a number."""
    values = [os.fsencode(word).decode(errors="replace")[:MAX_VALUE_CHARS] for word in pairs]
    line: dict[str, Any] = {"event": event, "instance_id": azure.name()}
    for name, value in zip(values[::2], values[1::2], strict=True):
        line[name] = int(value) if name == "exit_status" else value
    azure.write_rows(ingestion_url, [log_row(azure.name(), role, "gangway-node", line)])
    return True


def _let_go(azure: AzureApi) -> bool:
    azure.start_events([event for event in azure.endings() if can_start(event)])
    return True


def _outlast(azure: AzureApi) -> bool:
    """Starts scheduled restarts, which end this process, and waits until none is left. A cancelled restart leaves the
    list, as does one that ended before this boot.
    """
    poll_sec, until = float(os.environ.get("GANGWAY_POLL_SEC", "5")), time.monotonic() + RESTART_SEC
    reported: set[str] = set()
    while time.monotonic() < until:
        restarts = [event for event in azure.events() if event["EventType"] in RESTARTS]
        mine = [event for event in restarts if can_start(event) and event["EventId"] not in reported]
        if mine:
            print("gangway: starting the scheduled restart of this machine now", file=sys.stderr, flush=True)
            azure.start_events(mine)
            reported |= {event["EventId"] for event in mine}
        if not reported & {event["EventId"] for event in restarts}:
            return True
        time.sleep(poll_sec)
    return False


def _leave(azure: AzureApi) -> bool:
    azure.delete_itself()
    return True


def _scale_set(azure: AzureApi) -> bool:
    print(azure.compute()["vmScaleSetName"])
    return True


def _capacity(azure: AzureApi) -> bool:
    priority = azure.compute().get("priority")
    # Spot was called "Low" before; other machines have "Regular" or nothing.
    print("" if priority is None else "spot" if priority in ("Spot", "Low") else "on-demand")
    return True


def _put(azure: AzureApi, file: str, url: str) -> bool:
    put_blob(azure, Path(file), url)
    return True


def _list(azure: AzureApi, url: str) -> bool:
    print(*blob_names(azure, url), sep="\n")
    return True


def _put_folder(azure: AzureApi, folder: str, url: str) -> bool:
    put_blob_folder(azure, Path(folder), url)
    return True


def _registry_token(azure: AzureApi, registry: str) -> bool:
    print(azure.registry_token(registry))
    return True


def _secret(azure: AzureApi, url: str) -> bool:
    print(azure.secret(url), end="")
    return True


COMMANDS: dict[str, Callable[..., bool]] = {
    "capacity": _capacity,
    "event": _event,
    "exists": blob_exists,
    "leave": _leave,
    "leaving": lambda azure: bool(azure.endings()),
    "let-go": _let_go,
    "list": _list,
    "outlast": _outlast,
    "put": _put,
    "put-folder": _put_folder,
    "registry-token": _registry_token,
    "scale-set": _scale_set,
    "secret": _secret,
    "waiting": lambda azure: any(can_start(event) for event in azure.endings()),
}


def main(argv: Sequence[str]) -> int:
    """Runs one command."""
    try:
        return 0 if COMMANDS[argv[0]](AzureApi.from_environment(), *argv[1:]) else 1
    except OSError as error:
        print(f"gangway: {argv[0]}: {error}", file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
