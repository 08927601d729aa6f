"""A stand-in for a machine's view of Google: its metadata server, and the APIs it may call, over HTTP on 127.0.0.1.

It holds state: groups with instances and sizes, objects of buckets, entries of logs, imports. Metadata wants its
header, an API a token that the metadata server has given. Not a check of bodies: tests look at `calls`.
"""

import base64
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

INSTANCE = "demo-0-abcd"
GROUP = re.compile(
    r"/compute\.googleapis\.com/compute/v1/projects/[^/]+/zones/[^/]+/instanceGroupManagers/([^/]+)(/.*)?"
)
ZONE = re.compile(
    r"/compute\.googleapis\.com/compute/v1/projects/[^/]+/zones/[^/]+/(instances|operations)(?:/([^/]+))?(/.*)?"
)
BORN = "2029-12-31T{:02}:00:00.000-08:00"


class Call(NamedTuple):
    """A call of an API."""

    method: str
    path: str
    query: dict[str, str]
    body: Any


class Refusal(Exception):  # noqa: N818 - an answer, not a failure of the stand-in
    """An answer that is an error."""

    def __init__(self, status: int, message: str = "") -> None:
        super().__init__(message)
        self.status = status


class Gce:
    """The stand-in.

    Attributes:
        items: metadata by path; another value wakes those that wait for a change.
        groups: by name: `targetSize`, `instances` (name -> status), `requests` (dicts of the API). Of the instances a
            later name is the newer one.
        tags: network tags by instance.
        clock: when operations are asked for.
        operations: that were, dicts of the API, the newest first.
        objects: `bucket/key` -> content.
        entries: of logs.
        secrets: `projects/P/secrets/NAME` -> its newest version.
        denied: verbs of groups, permissions on buckets, or hosts, that answer 403.
        hides_missing: objects that are not there answer 403, as to whoever may not list them.
        cut: objects of which only half comes before the connection ends.
        refused_entries: ids of log entries with which a whole call is 400.
        looks_until_imported: how often an import is looked at before it is done.
        tpu: the queue of TPUs, a TpuCloud of tests/tpu_standin.py; None where there is none.
        calls: of APIs, in their order.
    """

    def __init__(self) -> None:
        self.items = {
            "instance/id": "123",
            "instance/name": INSTANCE,
            "instance/zone": "projects/1/zones/us-central1-a",
            "instance/preempted": "FALSE",
            "instance/maintenance-event": "NONE",
            "instance/attributes/created-by": "projects/1/zones/us-central1-a/instanceGroupManagers/demo-0-spot",
        }
        self.groups: dict[str, dict[str, Any]] = {
            "demo-0-spot": {
                "targetSize": 2,
                "instances": {INSTANCE: "RUNNING", "demo-0-efgh": "RUNNING"},
                "requests": [],
            }
        }
        self.tags: dict[str, list[str]] = {}
        self.clock = "2030-01-01T00:00:00.000+00:00"
        self.operations: list[dict[str, Any]] = []
        self.objects: dict[str, bytes] = {}
        self.entries: list[dict[str, Any]] = []
        self.secrets: dict[str, bytes] = {}
        self.denied: set[str] = set()
        self.cut: set[str] = set()
        self.refused_entries: set[str] = set()
        self.hides_missing = False
        self.looks_until_imported = 2
        self.import_error: dict[str, Any] | None = None
        self.calls: list[Call] = []
        self.tpu: Any = None
        self.metadata_status = 200
        self.tokens: set[str] = set()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def add_group(self, name: str, size: int, instances: dict[str, str]) -> None:
        """A managed instance group."""
        self.groups[name] = {"targetSize": size, "instances": instances, "requests": []}

    def payloads(self) -> list[dict[str, Any]]:
        """What the log's entries say."""
        return [entry["jsonPayload"] for entry in self.entries]

    def asked(self, host: str) -> list[Call]:
        """The calls of one API."""
        return [call for call in self.calls if call.path.startswith(f"/{host}.googleapis.com/")]

    def metadata(self, path: str, query: dict[str, str]) -> tuple[int, str, str]:
        """Status, text and ETag of an item."""
        if path == "instance/service-accounts/default/token":
            token = f"token-{len(self.tokens)}"
            self.tokens.add(token)
            return 200, json.dumps({"access_token": token, "expires_in": 3600}), ""
        if query.get("wait_for_change") == "true":
            deadline = time.monotonic() + float(query["timeout_sec"])
            while self._etag(path) == query["last_etag"] and time.monotonic() < deadline:
                time.sleep(0.01)
        text = self.items.get(path)
        return (404, "", "") if text is None else (self.metadata_status, text, self._etag(path))

    def _etag(self, path: str) -> str:
        return self.items.get(path, "").encode().hex()

    def api(self, call: Call) -> Any:
        """The answer to a call: JSON data, or bytes. Raises Refusal."""
        host = call.path.split("/")[1].partition(".")[0]
        if host in self.denied:
            raise Refusal(403, "denied")
        if match := GROUP.fullmatch(call.path):
            return self._group(match[1], (match[2] or "")[1:], call)
        if match := ZONE.fullmatch(call.path):
            return self._zone(match[1], match[2] or "", (match[3] or "")[1:], call)
        answers = {
            "storage": self._storage,
            "logging": self._logging,
            "lustre": self._lustre,
            "secretmanager": self._secret,
            "tpu": self._tpu,
        }
        return answers[host](call)

    def _group(self, name: str, verb: str, call: Call) -> Any:
        if verb in self.denied:
            raise Refusal(403, f"Required 'compute.instanceGroupManagers.update' permission for {name}")
        group = self.groups.get(name)
        if group is None:
            raise Refusal(404, name)
        names = [path.rpartition("/")[2] for path in (call.body or {}).get("instances", [])]
        if verb == "":
            base = "-".join(name.split("-")[:2])
            return {"name": name, "baseInstanceName": base, "targetSize": group["targetSize"]}
        if verb == "listManagedInstances":
            # One a page, so that nobody forgets the others.
            every = sorted(group["instances"].items())
            start = int(call.query.get("pageToken", "0"))
            page = [{"name": key, "instanceStatus": status} for key, status in every[start : start + 1]]
            return {"managedInstances": page, **({"nextPageToken": str(start + 1)} if start + 1 < len(every) else {})}
        if verb == "deleteInstances":
            group["targetSize"] -= len(names)
            for one in names:
                group["instances"].pop(one)
        elif verb == "recreateInstances":
            group["instances"].update(dict.fromkeys(names, "PROVISIONING"))
        elif verb == "resize":
            group["targetSize"] = int(call.query["size"])
            self._operate("compute.instanceGroupManagers.resize", f"instanceGroupManagers/{name}")
        elif verb == "resizeRequests" and call.method == "GET":
            return {"items": group["requests"]}
        elif verb == "resizeRequests":
            group["requests"].append({**call.body, "state": "ACCEPTED"})
        elif verb.endswith("/cancel"):
            (request,) = [one for one in group["requests"] if one["name"] == verb.split("/")[1]]
            request["state"] = "CANCELLED"
        else:
            raise Refusal(400, verb)
        return {"status": "RUNNING"}

    def _operate(self, kind: str, target: str) -> None:
        link = f"https://www.googleapis.com/compute/v1/projects/p/zones/z/{target}"
        one = {"operationType": kind, "targetLink": link, "insertTime": self.clock, "user": "ops@example.com"}
        self.operations.insert(0, one)

    def _zone(self, kind: str, name: str, verb: str, call: Call) -> Any:
        """An instance, its tags, or the list of what was asked for in a zone: one a page."""
        if (verb or kind) in self.denied:
            raise Refusal(403, f"Required permission for {name or kind}")
        if kind == "operations":
            start = int(call.query.get("pageToken", "0"))
            more = {"nextPageToken": str(start + 1)} if start + 1 < len(self.operations) else {}
            return {"items": self.operations[start : start + 1], **more}
        every = sorted(key for group in self.groups.values() for key in group["instances"])
        if name not in every:
            raise Refusal(404, name)
        tags = self.tags.get(name, ["gangway-node"])
        if verb == "":
            known = {"items": tags, "fingerprint": "+".join(tags)}
            return {"name": name, "creationTimestamp": BORN.format(every.index(name)), "tags": known}
        if verb != "setTags" or call.body["fingerprint"] != "+".join(tags):
            raise Refusal(412, "conditionNotMet")
        self.tags[name] = call.body["items"]
        if name == INSTANCE:
            self.items["instance/tags"] = json.dumps(self.tags[name])
        self._operate("setTags", f"instances/{name}")
        return {"status": "RUNNING"}

    def _storage(self, call: Call) -> Any:
        parts = call.path.split("/")
        if parts[2] == "upload":
            self.objects[f"{parts[6]}/{call.query['name']}"] = call.body
            return {"name": call.query["name"]}
        bucket, rest = parts[5], parts[7:]
        if rest:
            content = self.objects.get(f"{bucket}/{unquote(rest[0])}")
            if content is None:
                raise Refusal(403 if self.hides_missing else 404, call.path)
            if "storage.objects.get" in self.denied:
                raise Refusal(403, "storage.objects.get")
            return content
        if "storage.objects.list" in self.denied:
            raise Refusal(403, "storage.objects.list")
        prefix = f"{bucket}/{call.query.get('prefix', '')}"
        found = sorted(key for key in self.objects if key.startswith(prefix))
        return {"items": [{"name": key.partition("/")[2], "size": str(len(self.objects[key]))} for key in found]}

    def _logging(self, call: Call) -> Any:
        if self.refused_entries & {entry.get("insertId") for entry in call.body["entries"]}:
            raise Refusal(400, "an entry is wrong")
        self.entries += [{**call.body["resource"], **entry} for entry in call.body["entries"]]
        return {}

    def _secret(self, call: Call) -> Any:
        name = call.path.removeprefix("/secretmanager.googleapis.com/v1/").removesuffix("/versions/latest:access")
        if name not in self.secrets:
            raise Refusal(404, name)
        data = base64.b64encode(self.secrets[name]).decode()
        return {"name": f"{name}/versions/1", "payload": {"data": data, "dataCrc32c": "0"}}

    def _lustre(self, call: Call) -> Any:
        if call.method == "GET":
            self.looks_until_imported -= 1
        done = call.method == "GET" and self.looks_until_imported <= 0
        error = {"error": self.import_error} if done and self.import_error else {}
        return {"name": "projects/p/locations/z/operations/o", "done": done, **error}

    def _tpu(self, call: Call) -> Any:
        path = call.path.removeprefix("/tpu.googleapis.com")
        try:
            return self.tpu.answer(call.method, f"{path}?{urlencode(call.query)}", call.body)
        except self.tpu.refusal as refusal:
            raise Refusal(refusal.code, str(refusal)) from None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                parts = urlsplit(self.path)
                query = {key: values[0] for key, values in parse_qs(parts.query).items()}
                content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if parts.path.startswith("/computeMetadata/v1/"):
                    if self.headers["Metadata-Flavor"] != "Google":
                        self._reply(403, b"")
                        return
                    status, text, etag = stand_in.metadata(parts.path.removeprefix("/computeMetadata/v1/"), query)
                    self._reply(status, text.encode(), etag)
                    return
                if (self.headers["Authorization"] or "").removeprefix("Bearer ") not in stand_in.tokens:
                    self._reply(401, b"no token")
                    return
                body = (
                    json.loads(content) if content and self.headers["Content-Type"] == "application/json" else content
                )
                call = Call(self.command, parts.path, query, body or None if "upload" not in parts.path else content)
                stand_in.calls.append(call)
                try:
                    answer = stand_in.api(call)
                except Refusal as refusal:
                    self._reply(refusal.status, str(refusal).encode())
                    return
                whole = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                bucket, _, key = parts.path.rpartition("/o/")
                cut = f"{bucket.rpartition('/')[2]}/{unquote(key)}" in stand_in.cut
                self._reply(200, whole, sent=len(whole) // 2 if cut else None)

            do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - the base class's names

            def _reply(self, status: int, content: bytes, etag: str = "", sent: int | None = None) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("ETag", etag)
                self.end_headers()
                self.wfile.write(content[:sent])

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                """Keep the test output clean."""

        return Handler


def started() -> tuple[Gce, threading.Thread]:
    """A stand-in that serves."""
    gce = Gce()
    thread = threading.Thread(target=gce.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    return gce, thread
