"""A stand-in for Compute Engine's instances and images over HTTP on 127.0.0.1, as `up` uses them for machine images.

It holds state, and refuses what Google refuses: methods, parameters and fields that its discovery document lacks, names
that are taken, images of disks in use. Operations are done at once unless `is_slow`.
"""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from tests import google_methods

PATH = re.compile(
    r"/compute\.googleapis\.com/compute/v1/projects/[^/]+/(?:global|zones/[^/]+)/(\w+)(?:/([^/]+))?(?:/(\w+))?"
)
LABEL = re.compile(r"\(labels\.([\w-]+) = ([\w-]+)\)")


class Call(NamedTuple):
    """A call of the API."""

    method: str
    path: str
    query: dict[str, str]
    body: Any


class RefusalError(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Compute:
    """The stand-in.

    Attributes:
        instances: by name, the body that made it, and `status`.
        images: by name, the body that made it, `status` and `creationTimestamp`.
        result: what builders say of their script; None while it runs.
        failing: message with which the next operation ends.
        is_slow: an operation is done when it is looked at the second time.
        calls: in their order.
    """

    def __init__(self) -> None:
        self.instances: dict[str, dict[str, Any]] = {}
        self.images: dict[str, dict[str, Any]] = {}
        self.result: str | None = "done"
        self.failing = ""
        self.is_slow = False
        self.calls: list[Call] = []
        self._looks: dict[str, int] = {}
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def made(self) -> list[str]:
        """The names of the builders that there were."""
        return [call.body["name"] for call in self.calls if call.method == "POST" and call.path.endswith("/instances")]

    def answer(self, call: Call) -> Any:
        """JSON data. Raises RefusalError."""
        self.calls.append(call)
        if not google_methods.published(call):
            raise RefusalError(404, f"Google publishes no such method: {call}")
        match = PATH.fullmatch(call.path)
        assert match, call.path
        kind, name, verb = match[1], match[2] or "", match[3] or ""
        return getattr(self, f"_{kind}")(name, verb, call)

    def _instances(self, name: str, verb: str, call: Call) -> Any:
        if call.method == "POST" and not name:
            check_fields("Instance", call.body)
            self._add(self.instances, call.body, "RUNNING")
            return self._operation()
        instance = self._known(self.instances, name)
        if verb == "getGuestAttributes":
            if self.result is None:
                raise RefusalError(404, "no such attribute")
            return {"variableKey": call.query["variableKey"], "variableValue": self.result}
        if verb == "stop":
            instance["status"] = "TERMINATED"
        elif call.method == "DELETE":
            del self.instances[name]
        return self._operation() if verb or call.method == "DELETE" else instance

    def _images(self, name: str, _: str, call: Call) -> Any:
        if call.method == "POST":
            check_fields("Image", call.body)
            source = self._known(self.instances, call.body["sourceDisk"].rpartition("/")[2])
            if source["status"] != "TERMINATED":
                raise RefusalError(400, "the disk is in use by a running instance")
            self._add(self.images, call.body, "READY")
        elif call.method == "GET" and not name:
            wanted = dict(LABEL.findall(call.query["filter"]))
            return {"items": [one for one in self.images.values() if wanted.items() <= one["labels"].items()]}
        elif call.method == "GET":
            return self._known(self.images, name)
        else:
            self._known(self.images, name)
            del self.images[name]
        return self._operation()

    def _operations(self, name: str, _: str, call: Call) -> Any:
        self._looks[name] += 1
        return {"name": name, "status": "DONE" if self._looks[name] > 1 else "RUNNING"}

    def _operation(self) -> dict[str, Any]:
        name = f"operation-{len(self.calls)}"
        self._looks[name] = 0
        if self.failing:
            message, self.failing = self.failing, ""
            return {"name": name, "status": "DONE", "error": {"errors": [{"code": "X", "message": message}]}}
        return {"name": name, "status": "PENDING" if self.is_slow else "DONE"}

    def _add(self, known: dict[str, dict[str, Any]], body: dict[str, Any], status: str) -> None:
        if body["name"] in known:
            raise RefusalError(409, f"{body['name']} already exists")
        stamp = f"2026-12-01T00:00:00.{len(self.calls):03d}-08:00"
        known[body["name"]] = {**body, "status": status, "creationTimestamp": stamp}

    def _known(self, known: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
        if name not in known:
            raise RefusalError(404, f"{name} was not found")
        return known[name]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        compute = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                parts = urlsplit(self.path)
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                try:
                    status, data = (
                        200,
                        compute.answer(Call(self.command, parts.path, dict(parse_qsl(parts.query)), body)),
                    )
                except RefusalError as error:
                    status, data = error.status, {"error": {"code": error.status, "message": str(error)}}
                text = json.dumps(data).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - the base class's names

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        return Handler


def check_fields(schema: str, body: Any, place: str = "") -> None:
    """Raises RefusalError for a field that the API does not have."""
    document = google_methods.document("compute")
    known = document["schemas"][schema]["properties"]
    for name, value in body.items():
        where = f"{place}.{name}"
        if name not in known:
            raise RefusalError(400, f"{schema} has no field {where}")
        reference = known[name].get("$ref") or known[name].get("items", {}).get("$ref")
        for one in value if isinstance(value, list) else [value]:
            if reference:
                check_fields(reference, one, where)


def started() -> tuple[Compute, threading.Thread]:
    """A running stand-in, and the thread that serves it."""
    compute = Compute()
    thread = threading.Thread(target=compute.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    return compute, thread
