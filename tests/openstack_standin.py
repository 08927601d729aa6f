"""Keystone, an object store and Nova's metadata service in small, as a machine on OpenStack sees them.

Not a test; `conftest.py` loads it. A token opens what the credential's access rules say, and nothing else. Temporary
URLs are checked as Swift does ("Temporary URL middleware"): the signature, by the container's key, and the time.
"""

import hashlib
import hmac
import json
import re
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

CONTAINER = "demo-runs"
ACCOUNT = "AUTH_e99b6f4b9bf84a9da27e20c9cbfe887a"
SECRETS = "demo-secrets"
SECRETS_KEY = "the container's Temp-URL-Key"
METADATA_PATH = "/openstack/latest/meta_data.json"


def signature(key: str, path: str, expires: int) -> str:
    """Of a GET of `path` until then."""
    return hmac.new(key.encode(), f"GET\n{expires}\n{path}".encode(), hashlib.sha256).hexdigest()


@dataclass
class Cloud:
    """What there is.

    Attributes:
        credential: id and secret that Keystone knows.
        regions: of the catalogue.
        objects: by container and name.
        refusals: answers to requests of the object store before it takes any: statuses.
        logins: bodies that Keystone was asked with.
        metadata: the machine's own items; None where the service does not answer.
        fetched: paths of temporary URLs that were opened.
    """

    credential: tuple[str, str] = ("credential-id", "credential-secret")
    regions: tuple[str, ...] = ("RegionOne", "RegionTwo")
    objects: dict[str, bytes] = field(default_factory=dict)
    refusals: list[int] = field(default_factory=list)
    logins: list[Any] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    metadata: dict[str, str] | None = None
    fetched: list[str] = field(default_factory=list)
    server: Any = None

    @property
    def url(self) -> str:
        """Of the server."""
        return f"http://127.0.0.1:{self.server.server_port}"

    @property
    def auth_url(self) -> str:
        """Of Keystone."""
        return f"{self.url}/identity/v3"

    def catalog(self) -> list[dict[str, Any]]:
        """As Keystone tells it with a token."""

        def endpoints(path: str) -> list[dict[str, str]]:
            return [
                {"interface": interface, "region_id": region, "url": f"{self.url}/{interface}/{region}{path}"}
                for region in self.regions
                for interface in ("internal", "public")
            ]

        return [
            {"type": "compute", "endpoints": endpoints("/v2.1")},
            {"type": "object-store", "endpoints": endpoints(f"/v1/{ACCOUNT}")},
        ]

    def publish(self, name: str, secrets: Any, ttl_sec: int = 60, key: str = SECRETS_KEY) -> None:
        """Puts a machine's secrets into their container, and their address into its metadata."""
        path, expires = f"/v1/{ACCOUNT}/{SECRETS}/{name}", int(time.time()) + ttl_sec
        self.objects[f"{SECRETS}/{name}"] = json.dumps(secrets).encode()
        self.metadata = {
            "gangway:secrets": f"{self.url}{path}",
            "gangway:secrets-signature": f"temp_url_sig={signature(key, path, expires)}&temp_url_expires={expires}",
        }

    def opened(self, target: str) -> bytes | None:
        """What a temporary URL opens."""
        parts = urlsplit(target)
        given = {name: values[0] for name, values in parse_qs(parts.query).items()}
        expires = int(given.get("temp_url_expires", 0))
        wanted = signature(SECRETS_KEY, parts.path, expires)
        if not hmac.compare_digest(wanted, given.get("temp_url_sig", "")) or expires < time.time():
            return None
        self.fetched.append(parts.path)
        return self.objects.get(parts.path.partition(f"{ACCOUNT}/")[2])

    def log_in(self, body: Any) -> str | None:
        """A token, for who may have one."""
        self.logins.append(body)
        identity = body["auth"]["identity"]
        said = identity.get("application_credential", {})
        if identity["methods"] != ["application_credential"] or (said["id"], said["secret"]) != self.credential:
            return None
        self.tokens.append(f"token-{len(self.tokens)}")
        return self.tokens[-1]

    def status(self, token: str | None, path: str) -> int:
        """Of a PUT."""
        if self.refusals:
            return self.refusals.pop(0)
        inside = re.fullmatch(rf"/public/RegionOne/v1/{ACCOUNT}/{CONTAINER}/.+", path)
        return 201 if token in self.tokens and inside else 401


def started() -> tuple[Cloud, threading.Thread]:
    """The running cloud and its thread."""
    cloud = Cloud()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            token = cloud.log_in(body) if self.path == "/identity/v3/auth/tokens" else None
            if token is None:
                self._reply(401, {"error": {"message": "The request you have made requires authentication."}})
            else:
                self._reply(201, {"token": {"catalog": cloud.catalog()}}, token)

        def do_GET(self) -> None:
            if self.path == METADATA_PATH:
                self._reply(404 if cloud.metadata is None else 200, {"uuid": "server", "meta": cloud.metadata})
            elif (content := cloud.opened(self.path)) is not None:
                self._reply(200, json.loads(content))
            else:
                self._reply(401, {"error": "Temp URL invalid"})

        def do_PUT(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            status = cloud.status(self.headers["X-Auth-Token"], self.path)
            if status == 201:
                cloud.objects[self.path.partition(f"{ACCOUNT}/")[2]] = content
            self._reply(status, {})

        def _reply(self, status: int, body: Any, token: str | None = None) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            if token is not None:
                self.send_header("X-Subject-Token", token)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
            """Keep the test output clean."""

    cloud.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=cloud.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    return cloud, thread
