"""A stand-in for the TPU v2 API over HTTP on 127.0.0.1: holds state, takes its time, fails and preempts as told.

Time is counted in looks: a queued resource moves on by one state each time somebody gets it, so nothing depends on the
machine's speed. It keeps every request for tests that check them; it does not check bodies itself. Run alone:

    python tests/tpu_standin.py
"""

import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

LIFE = ["CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"]
STATUS = {
    400: "FAILED_PRECONDITION",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
PATH = re.compile(r"/v2/(?P<parent>projects/[^/]+/locations/[^/]+)/(?P<kind>\w+)(/(?P<id>[^/]+))?")
PAGE_SIZE = 2


class RefusalError(Exception):
    """An answer that is an error."""

    def __init__(self, code: int, message: str, status: str = "") -> None:
        self.body = {"error": {"code": code, "message": message, "status": status or STATUS[code]}}
        self.code = code
        super().__init__(message)


@dataclass(frozen=True)
class Seen:
    """One request: its method, path, query and body."""

    method: str
    path: str
    query: dict[str, str]
    body: dict[str, Any] | None


@dataclass
class TpuCloud:
    """Everything the stand-in knows, and what a test may tell it.

    Attributes:
        hold_at: state at which queued resources stop moving on; None lets them become ACTIVE.
        looks_per_state: how often a state is seen before the next one.
        fail_with: the error with which queued resources fail.
        fail_at: the state they fail instead of.
        operation_error: the google.rpc.Status that the operation of a creation ends with.
        refusals: HTTP codes for the next requests, each used once; 0 lets one pass.
        undeletable_looks: how many deletions are refused because nodes are being provisioned.
        orphans: whether nodes outlive their queued resource.
    """

    hold_at: str | None = None
    looks_per_state: int = 1
    fail_with: str = ""
    fail_at: str = "PROVISIONING"
    operation_error: dict[str, Any] | None = None
    refusals: list[int] = field(default_factory=list)
    undeletable_looks: int = 0
    orphans: bool = False
    queued: dict[str, dict[str, Any]] = field(default_factory=dict)
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    operations: dict[str, dict[str, Any]] = field(default_factory=dict)
    requests: dict[str, str] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    looks: dict[str, int] = field(default_factory=dict)
    made: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)
    refusal = RefusalError

    def preempt(self, name: str, *, nodes_only: bool = False) -> None:
        """Takes the nodes of a queued resource back. With `nodes_only` the queued resource does not say so yet."""
        for node in self._nodes_of(name):
            node["state"] = "PREEMPTED"
        if not nodes_only:
            self.queued[name]["state"] = {"state": "SUSPENDED", "stateInitiator": "SERVICE"}

    def fail(self, name: str, message: str) -> None:
        """The request comes to an end without its nodes."""
        self.queued[name]["state"] = {"state": "FAILED", "failedData": {"error": {"code": 8, "message": message}}}

    def settle(self, name: str) -> str:
        """Looks until a queued resource moves on no more -> the state it stays in; empty where it is gone."""
        seen = ""
        while (state := self.queued.get(name, {}).get("state", {}).get("state", "")) != seen:
            seen = state
            if state == "DELETING":
                del self.queued[name]
            elif state:
                self.answer("GET", f"/v2/{name}", None)
        return seen

    def answer(self, method: str, url: str, body: dict[str, Any] | None) -> dict[str, Any]:
        """The answer to a request; raises RefusalError."""
        parts = urlsplit(url)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        with self.lock:
            self.seen.append(Seen(method, parts.path, query, body))
            code = self.refusals.pop(0) if self.refusals else 0
            if code:
                raise RefusalError(code, "as told by the test")
            found = PATH.fullmatch(parts.path)
            if not found:
                raise RefusalError(404, f"no such path: {parts.path}")
            return self._dispatch(method, found["parent"], found["kind"], found["id"], query, body)

    def _dispatch(
        self, method: str, parent: str, kind: str, last: str | None, query: dict[str, str], body: dict[str, Any] | None
    ) -> dict[str, Any]:
        store = {"queuedResources": self.queued, "nodes": self.nodes, "operations": self.operations}[kind]
        if last is None and method == "GET":
            return self._page(kind, parent, store, int(query.get("pageToken", 0)))
        if last is None:
            return self._create(parent, query, body or {})
        name = f"{parent}/{kind}/{last}"
        if name not in store:
            raise RefusalError(404, f"{name} was not found")
        if method == "DELETE":
            return self._delete(store, name, query)
        if method == "PATCH":
            store[name].update(body or {})
            return self._operation(parent)
        if kind == "queuedResources":
            self._age(name)
        elif store[name].get("state") == "DELETING":
            del store[name]
            raise RefusalError(404, f"{name} was not found")
        return store.get(name) or self._gone(name)

    def _gone(self, name: str) -> dict[str, Any]:
        raise RefusalError(404, f"{name} was not found")

    def _page(self, kind: str, parent: str, store: dict[str, dict[str, Any]], start: int) -> dict[str, Any]:
        if kind == "nodes":
            # Whoever lists nodes gives those that are being deleted the time to go.
            listed = [thing for name, thing in store.items() if name.startswith(f"{parent}/")]
            for name in [name for name, node in store.items() if node["state"] == "DELETING"]:
                del store[name]
        else:
            listed = [thing for name, thing in store.items() if name.startswith(f"{parent}/")]
        end = start + PAGE_SIZE
        more = {"nextPageToken": str(end)} if end < len(listed) else {}
        return {kind: listed[start:end], **more}

    def _create(self, parent: str, query: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
        known = self.requests.get(query["requestId"])
        if known:
            return self.operations[known]
        name = f"{parent}/queuedResources/{query['queuedResourceId']}"
        if name in self.queued:
            raise RefusalError(409, f"{name} already exists")
        operation = self._operation(parent)
        self.requests[query["requestId"]] = operation["name"]
        if self.operation_error:
            operation["error"] = self.operation_error
            return operation
        self.made += 1
        made = {"createTime": f"2026-01-01T00:00:{self.made:02}Z", "state": {"state": LIFE[0]}}
        self.queued[name] = {**body, "name": name, **made}
        self.looks[name] = 0
        return operation

    def _operation(self, parent: str) -> dict[str, Any]:
        name = f"{parent}/operations/operation-{len(self.operations)}"
        self.operations[name] = {"name": name, "done": True}
        return self.operations[name]

    def _age(self, name: str) -> None:
        """One look at a queued resource: it may move on."""
        state = self.queued[name]["state"]["state"]
        if state == "DELETING":
            del self.queued[name]
        if state not in LIFE[:-1] or state == self.hold_at:
            return
        self.looks[name] += 1
        if self.looks[name] % self.looks_per_state:
            return
        following = LIFE[LIFE.index(state) + 1]
        if following == self.fail_at and self.fail_with:
            error = {"code": 8, "message": self.fail_with}
            self.queued[name]["state"] = {"state": "FAILED", "failedData": {"error": error}}
            return
        self.queued[name]["state"] = {"state": following}
        if following == "ACTIVE":
            self._provision(name)

    def _provision(self, name: str) -> None:
        (spec,) = self.queued[name]["tpu"]["nodeSpec"]
        many = spec.get("multisliceParams")
        ids = [f"{many['nodeIdPrefix']}-{i}" for i in range(many["nodeCount"])] if many else [spec["nodeId"]]
        for index, node_id in enumerate(ids):
            node = f"{spec['parent']}/nodes/{node_id}"
            address = [{"ipAddress": f"10.0.0.{index + 1}", "port": 8470}]
            self.nodes[node] = {
                **spec["node"],
                "name": node,
                "state": "READY",
                "queuedResource": name,
                "networkEndpoints": address,
            }

    def _delete(self, store: dict[str, dict[str, Any]], name: str, query: dict[str, str]) -> dict[str, Any]:
        parent = name.rsplit("/", 2)[0]
        if store is self.nodes:
            store[name]["state"] = "DELETING"
            return self._operation(parent)
        if self.undeletable_looks:
            self.undeletable_looks -= 1
            raise RefusalError(400, "nodes are being provisioned")
        owned = self._nodes_of(name)
        if owned and query.get("force") != "true":
            raise RefusalError(400, "there are nodes")
        for node in [] if self.orphans else owned:
            del self.nodes[node["name"]]
        store[name]["state"] = {"state": "DELETING"}
        return self._operation(parent)

    def _nodes_of(self, name: str) -> list[dict[str, Any]]:
        return [node for node in self.nodes.values() if node.get("queuedResource") == name]


class _Handler(BaseHTTPRequestHandler):
    """HTTP around a TpuCloud."""

    cloud: TpuCloud
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        try:
            code, answer = 200, self.cloud.answer(self.command, self.path, body)
        except RefusalError as refusal:
            code, answer = refusal.code, refusal.body
        text = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 - names that http.server asks for

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Says nothing: requests are in `TpuCloud.seen`."""


class TpuStandin:
    """The stand-in while it runs. `url` is its address, `cloud` what it holds."""

    def __init__(self, port: int = 0) -> None:
        self.cloud = TpuCloud()
        handler = type("Handler", (_Handler,), {"cloud": self.cloud})
        self._server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> "TpuStandin":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


if __name__ == "__main__":
    with TpuStandin() as running:
        print(running.url, flush=True)
        threading.Event().wait()
