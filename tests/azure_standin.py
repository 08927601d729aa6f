"""A stand-in for a machine's view of Azure: its metadata service, and the APIs it may call, over HTTP on 127.0.0.1.

It holds state: scheduled events, scale sets with machines, blobs, rows of logs. Metadata wants its header, an API a
token that the metadata service has given for that very API. Not a check of bodies: tests look at `calls`.
"""

import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
CLIENT = "11111111-2222-3333-4444-555555555555"
SET = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/demo-rg/providers/Microsoft.Compute/virtualMachineScaleSets"
INSTANCE = "demo-0-spot_3"
ARM = "management.azure.com"
SCALE_SET = re.compile(rf"/{ARM}{SET}/([^/]+)(?:/virtualMachines(?:/([^/]+))?)?")
TAGS = "/providers/Microsoft.Resources/tags/default"
RESOURCES = {
    ARM: "https://management.azure.com/",
    "blob.core.windows.net": "https://storage.azure.com/",
    "ingest.monitor.azure.com": "https://monitor.azure.com/",
    "vault.azure.net": "https://vault.azure.net",
}


class Call(NamedTuple):
    """A call of an API."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]


class Refusal(Exception):  # noqa: N818 - an answer, not a failure of the stand-in
    """An answer that is an error."""

    def __init__(self, status: int, message: str = "") -> None:
        super().__init__(message)
        self.status = status


class Azure:
    """The stand-in.

    Attributes:
        compute: what the metadata service says of the machine.
        events: scheduled ones, of any machine.
        started: ids of the events that were acknowledged, in their order.
        on_start: is called when one is.
        event_waits: seconds that the next questions for events take.
        metadata_status: of every answer to them.
        sets: scale sets by name: `capacity`, `machines` (instance id -> (power state, provisioning state)), `model`.
        tags: of each scale set.
        blobs: `account/container/name` -> content.
        rows: of logs.
        secrets: of key vaults, `vault/name` -> value.
        denied: hosts, or verbs of scale sets (PATCH, DELETE), that answer 403.
        without_capacity: scale sets that cannot grow.
        refusals: by scale set, how a growth of it is refused: status and body.
        why_failed: by machine's instance id, code and text of why it could not be made.
        bad_rows: a whole call with one of these lines is 400.
        new_passwords: whether a registry gives another one each time, as Azure's do.
        live: by name, the sizes of scale sets that are nobody's of these, and of AKS's pools.
        versions: of every image in the Marketplace.
        tagged: what a subscription holds, `{id, type, tags}`.
        existing: by path, what Resource Manager answers about resources of others; it knows nothing else then.
        runs: of image templates, by id: how the last one ended, and when it began.
        images: versions in galleries, id -> what is said of it.
        next_run: how runs of image templates end.
        calls: of APIs, in their order.
    """

    def __init__(self) -> None:
        self.compute: dict[str, Any] = {
            "name": INSTANCE,
            "resourceId": f"{SET}/demo-0-spot/virtualMachines/3",
            "vmScaleSetName": "demo-0-spot",
            "subscriptionId": SUBSCRIPTION,
        }
        self.events: list[dict[str, Any]] = []
        self.started: list[str] = []
        self.on_start: Callable[[], None] = lambda: None
        self.event_waits: list[float] = []
        self.metadata_status = 200
        self.sets: dict[str, dict[str, Any]] = {}
        self.tags = {"gangway-nodes": "4", "gangway-nodes-min": "2", "gangway-ended": "job/ended-1"}
        self.add_set("demo-0-spot", 2, {"3": "running", "4": "running"})
        self.blobs: dict[str, bytes] = {}
        self.rows: list[dict[str, Any]] = []
        self.secrets: dict[str, str] = {}
        self.denied: set[str] = set()
        self.without_capacity: set[str] = set()
        self.refusals: dict[str, tuple[int, str]] = {}
        self.why_failed: dict[str, tuple[str, str]] = {}
        self.bad_rows: set[str] = set()
        self.cut: set[str] = set()
        self.new_passwords = False
        self.live: dict[str, int] = {}
        self.versions = ["22.04.9", "22.04.10", "22.04.2"]
        self.tagged: Callable[[], list[dict[str, Any]]] = list
        self.existing: dict[str, Any] = {}
        self.runs: dict[str, dict[str, Any]] = {}
        self.images: dict[str, dict[str, Any]] = {}
        self.next_run = "Succeeded"
        self.calls: list[Call] = []
        self.tokens: dict[str, str] = {}
        self.asleep = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def add_set(self, name: str, capacity: int, machines: dict[str, str]) -> None:
        """A scale set; the machines' power states, or Failed for one that was never made."""
        self.sets[name] = {"capacity": capacity, "machines": dict(machines), "model": {"priority": "Spot"}}

    def schedule(self, kind: str, *resources: str, status: str = "Scheduled", duration_sec: int = -1) -> str:
        """An event; of this machine where none is named. Returns its id."""
        identity = f"event-{len(self.events)}"
        self.events.append(
            {
                "EventId": identity,
                "EventType": kind,
                "ResourceType": "VirtualMachine",
                "Resources": list(resources) or [self.compute["name"]],
                "EventStatus": status,
                "NotBefore": "Mon, 19 Sep 2026 18:29:47 GMT" if status == "Scheduled" else "",
                "DurationInSeconds": duration_sec,
            }
        )
        return identity

    def asked(self, host: str) -> list[Call]:
        """The calls of one API."""
        return [call for call in self.calls if call.path.split("/")[1].endswith(host)]

    def metadata(self, method: str, path: str, query: dict[str, str], body: bytes) -> str:
        """An answer of the metadata service. Raises Refusal."""
        if path == "/metadata/scheduledevents":
            return self._events(method, query, body)
        if path == "/metadata/identity/oauth2/token":
            if query.get("client_id") != CLIENT or query["resource"] not in RESOURCES.values():
                raise Refusal(400, "Identity not found")
            token = f"token-{len(self.tokens)}"
            self.tokens[token] = query["resource"]
            # Seconds as text: so does Azure.
            return json.dumps({"access_token": token, "expires_in": "3600", "resource": query["resource"]})
        if path == "/metadata/instance/compute/name" and query.get("format") == "text":
            return str(self.compute["name"])
        if path == "/metadata/instance/compute":
            return json.dumps(self.compute)
        raise Refusal(404, path)

    def _events(self, method: str, query: dict[str, str], body: bytes) -> str:
        if query.get("api-version") != "2020-07-01":
            raise Refusal(400, "api-version")
        if self.event_waits:
            self.asleep.wait(self.event_waits.pop(0))
        if method == "POST":
            for request in json.loads(body)["StartRequests"]:
                self.started.append(request["EventId"])
            self.on_start()
            return ""
        if self.metadata_status != 200:
            raise Refusal(self.metadata_status)
        return json.dumps({"DocumentIncarnation": len(self.events), "Events": self.events})

    def api(self, call: Call) -> tuple[int, bytes]:
        """Status and content of the answer to a call. Raises Refusal."""
        host = call.path.split("/")[1]
        known = next((key for key in RESOURCES if host.endswith(key)), host)
        if known in self.denied:
            raise Refusal(403, "AuthorizationFailed")
        if host.endswith("azurecr.io"):
            number = f"-{len(self.calls)}" if self.new_passwords else ""
            return 200, json.dumps({"refresh_token": f"refresh-{host}{number}"}).encode()
        place, _, name = call.path.rpartition("/virtualMachineScaleSets/")
        if call.method == "GET" and place and not SCALE_SET.fullmatch(call.path):
            if name not in self.live:
                raise Refusal(404, call.path)
            return 200, json.dumps({"sku": {"capacity": self.live[name]}}).encode()
        pool = call.path.partition("/agentPools/")[2]
        if call.method == "GET" and pool:
            if pool not in self.live:
                raise Refusal(404, call.path)
            return 200, json.dumps({"properties": {"count": self.live[pool]}}).encode()
        if call.path.endswith("/resources"):
            _, key, _, value, _ = call.query["$filter"].split("'")
            found = [one for one in self.tagged() if isinstance(one["tags"], dict) and one["tags"].get(key) == value]
            return 200, json.dumps({"value": found}).encode()
        if "/artifacttypes/vmimage/" in call.path:
            return 200, json.dumps([{"name": version} for version in self.versions]).encode()
        if "/Microsoft.VirtualMachineImages/" in call.path or "/galleries/" in call.path:
            return self._image_builder(call)
        if self.existing and known == ARM:
            return self._about_existing(call)
        token = call.headers.get("authorization", "").removeprefix("Bearer ")
        if self.tokens.get(token) != RESOURCES[known]:
            raise Refusal(401, "InvalidAuthenticationToken")
        if known == ARM:
            return self._arm(call)
        if known == "vault.azure.net":
            return self._vault(call, host.split(".")[0])
        return self._blob(call, host.split(".")[0]) if known.startswith("blob") else self._ingest(call)

    def _image_builder(self, call: Call) -> tuple[int, bytes]:
        """Image Builder, whose runs end at once, and the versions in a gallery."""
        path = call.path.removeprefix(f"/{ARM}")
        template, _, part = path.partition("/runOutputs/")
        if call.method == "POST":
            template, moment = path.removesuffix("/run"), f"2026-12-01T00:00:{len(self.calls):04d}Z"
            self.runs[template] = {"runState": self.next_run, "startTime": moment, "message": "as the test wants"}
            if self.next_run == "Succeeded":
                group = template.partition("/providers/")[0]
                place = f"{group}/providers/Microsoft.Compute/galleries/g/images/nodes/versions/0.0.{len(self.calls)}"
                self.runs[template]["image"] = place
                profile = {"publishedDate": moment}
                self.images[place] = {"provisioningState": "Succeeded", "publishingProfile": profile}
            return 202, b""
        if call.method == "DELETE":
            del self.images[path]
            return 202, b""
        if path.endswith("/versions"):
            listed = [{"id": id_, "properties": image} for id_, image in self.images.items()]
            return 200, json.dumps({"value": listed}).encode()
        if part:
            return 200, json.dumps({"properties": {"artifactId": self.runs[template]["image"]}}).encode()
        return 200, json.dumps({"properties": {"lastRunStatus": self.runs.get(path)}}).encode()

    def _about_existing(self, call: Call) -> tuple[int, bytes]:
        path = call.path.removeprefix(f"/{ARM}")
        if "api-version" not in call.query:
            raise Refusal(400, "MissingApiVersionParameter")
        if call.method != "GET" or path not in self.existing:
            raise Refusal(404 if call.method == "GET" else 405, f"{call.method} {path}")
        return 200, json.dumps(self.existing[path]).encode()

    def _vault(self, call: Call, vault: str) -> tuple[int, bytes]:
        name = call.path.partition("/secrets/")[2]
        if call.query.get("api-version") != "7.4":
            raise Refusal(400, "BadParameter: api-version")
        if f"{vault}/{name}" not in self.secrets:
            raise Refusal(404, "SecretNotFound")
        id_ = f"https://{vault}.vault.azure.net/secrets/{name}/0123"
        return 200, json.dumps({"id": id_, "value": self.secrets[f"{vault}/{name}"], "attributes": {}}).encode()

    def _arm(self, call: Call) -> tuple[int, bytes]:
        match = SCALE_SET.fullmatch(call.path.removesuffix(TAGS))
        if "api-version" not in call.query:
            raise Refusal(400, "MissingApiVersionParameter")
        if match is None or match[1] not in self.sets:
            raise Refusal(404, call.path)
        if call.method in self.denied:
            raise Refusal(403, f"AuthorizationFailed: {call.method} {match[1]}")
        one = self.sets[match[1]]
        if call.path.endswith(TAGS):
            if call.method != "PATCH" or call.body["operation"] != "Merge":
                raise Refusal(400, "InvalidTagsOperation")
            self.tags = {**self.tags, **call.body["properties"]["tags"]}
            return 200, json.dumps({"properties": {"tags": self.tags}}).encode()
        if call.method == "DELETE":
            if match[2] not in one["machines"]:
                return 204, b""
            del one["machines"][match[2]]
            one["capacity"] -= 1
            return 202, b""
        if call.method == "PATCH":
            if call.body["sku"]["capacity"] > one["capacity"]:
                self._grow(match[1])
            one["capacity"] = call.body["sku"]["capacity"]
            return 200, b"{}"
        if call.path.endswith("/virtualMachines"):
            return 200, json.dumps(self._page(call, one["machines"])).encode()
        sku = {"name": "Standard_ND96isr_H100_v5", "capacity": one["capacity"]}
        model = {"virtualMachineProfile": one["model"]}
        return 200, json.dumps({"sku": sku, "tags": self.tags, "properties": model}).encode()

    def _grow(self, name: str) -> None:
        """Refuses where there is a reason, in the words of Resource Manager."""
        none = {"code": "SkuNotAvailable", "message": "The requested tier is currently not available in location"}
        if name in self.without_capacity:
            raise Refusal(409, json.dumps({"error": none}))
        if name in self.refusals:
            raise Refusal(*self.refusals[name])

    def _page(self, call: Call, machines: dict[str, str]) -> dict[str, Any]:
        # One a page, so that nobody forgets the others.
        every, start = sorted(machines.items()), int(call.query.get("$skiptoken", "0"))
        expanded = "instanceView" in call.query.get("$expand", "")
        page = [_machine(key, state, expanded, self.why_failed.get(key)) for key, state in every]
        more = {}
        if start + 1 < len(every):
            query = f"api-version={call.query['api-version']}&$expand=instanceView&$skiptoken={start + 1}"
            more = {"nextLink": f"https:/{call.path}?{query}"}
        return {"value": page[start : start + 1], **more}

    def _blob(self, call: Call, account: str) -> tuple[int, bytes]:
        if "x-ms-version" not in call.headers:
            raise Refusal(400, "MissingRequiredHeader")
        container, _, name = call.path.split("/", 2)[2].partition("/")
        key = f"{account}/{container}/{unquote(name)}"
        if call.method == "PUT":
            if call.headers.get("x-ms-blob-type") != "BlockBlob":
                raise Refusal(400, "x-ms-blob-type")
            self.blobs[key] = call.body
            return 201, b""
        if call.query.get("comp") == "list":
            return 200, self._listing(f"{account}/{container}/", call.query)
        if key not in self.blobs:
            raise Refusal(404, "BlobNotFound")
        return 200, self.blobs[key]

    def _listing(self, place: str, query: dict[str, str]) -> bytes:
        names = sorted(key.removeprefix(place) for key in self.blobs if key.startswith(place))
        found = [name for name in names if name.startswith(query.get("prefix", ""))]
        start = int(query.get("marker", "0"))
        entries = "".join(
            f"<Blob><Name>{escape(name)}</Name><Properties><Content-Length>{len(self.blobs[place + name])}"
            "</Content-Length></Properties></Blob>"
            for name in found[start : start + 1]
        )
        marker = start + 1 if start + 1 < len(found) else ""
        text = f"<EnumerationResults><Blobs>{entries}</Blobs><NextMarker>{marker}</NextMarker></EnumerationResults>"
        return b'\xef\xbb\xbf<?xml version="1.0" encoding="utf-8"?>' + text.encode()

    def _ingest(self, call: Call) -> tuple[int, bytes]:
        if any(bad in json.dumps(row) for row in call.body for bad in self.bad_rows):
            raise Refusal(400, "InvalidRow")
        self.rows += call.body
        return 204, b""

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                parts = urlsplit(self.path)
                query = {key: values[0] for key, values in parse_qs(parts.query).items()}
                content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                try:
                    self._reply(*self._found(parts.path, query, content))
                except Refusal as refusal:
                    self._reply(refusal.status, str(refusal).encode())
                except ConnectionError:
                    self.close_connection = True  # who asked did not wait for it

            def _found(self, path: str, query: dict[str, str], content: bytes) -> tuple[int, bytes]:
                if path.startswith("/metadata/"):
                    if self.headers["Metadata"] != "true":
                        raise Refusal(400, "Required metadata header not specified")
                    return 200, stand_in.metadata(self.command, path, query, content).encode()
                is_json = self.headers["Content-Type"] == "application/json"
                body = json.loads(content) if content and is_json else content
                headers = {key.lower(): value for key, value in self.headers.items()}
                call = Call(self.command, path, query, body, headers)
                stand_in.calls.append(call)
                return stand_in.api(call)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _answer  # noqa: N815 - the base class's names

            def _reply(self, status: int, content: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    host, _, name = urlsplit(self.path).path[1:].partition("/")
                    cut = f"{host.split('.')[0]}/{unquote(name)}" in stand_in.cut
                    self.wfile.write(content[: len(content) // 2] if cut else content)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                """Keep the test output clean."""

        return Handler


def _machine(identity: str, state: str, expanded: bool, why: tuple[str, str] | None = None) -> dict[str, Any]:
    """A machine as the API tells it; its power state only where it is asked for."""
    failed = state == "Failed"
    properties: dict[str, Any] = {"provisioningState": "Failed" if failed else "Succeeded"}
    if expanded:
        codes = ["ProvisioningState/failed"] if failed else ["ProvisioningState/succeeded", f"PowerState/{state}"]
        statuses = [{"code": code} for code in codes]
        if failed and why is not None:
            statuses = [{"code": f"ProvisioningState/failed/{why[0]}", "message": why[1]}]
        properties["instanceView"] = {"statuses": statuses}
    return {"instanceId": identity, "properties": properties}


def started() -> tuple[Azure, threading.Thread]:
    """A stand-in that serves."""
    azure = Azure()
    serve: Callable[..., None] = azure.server.serve_forever
    thread = threading.Thread(target=serve, kwargs={"poll_interval": 0.01})
    thread.start()
    return azure, thread
