"""Object stores in small, by HTTP: S3, of which Google's and Azure's clients are told as well, and OpenStack's Swift.

Not a test; `conftest.py` loads it.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
import yaml

PAGE = """<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><IsTruncated>false</IsTruncated>
{items}</ListBucketResult>"""
ITEM = (
    "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;0&quot;</ETag>"
    "<Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
)


class S3:
    """The two requests of S3 that reading needs: a list, and an object.

    Attributes:
        objects: by bucket and key.
        status: of every answer, where it is not 200 or 404.
        body: of every such answer.
        regions: by bucket, told to everybody.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, bytes]] = {"runs": {}}
        self.status, self.body = 200, b"<Error><Code>AccessDenied</Code><Message>not you</Message></Error>"
        self.regions: dict[str, str] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                bucket, _, key = unquote(url.path).lstrip("/").partition("/")
                status, body = outer.answer(bucket, key, {k: v[0] for k, v in parse_qs(url.query).items()})
                self.send_response(status)
                for name, value in {
                    "Content-Length": str(len(body)), "ETag": '"0"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT",
                }.items():  # fmt: skip
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def do_HEAD(self) -> None:
                bucket = urlsplit(self.path).path.strip("/")
                self.send_response(403 if bucket in outer.regions else 404)
                self.send_header("x-amz-bucket-region", outer.regions.get(bucket, ""))
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                """Keep the test output clean."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def answer(self, bucket: str, key: str, query: dict[str, str]) -> tuple[int, bytes]:
        if self.status != 200:
            return self.status, self.body
        if bucket not in self.objects:
            return 404, b"<Error><Code>NoSuchBucket</Code></Error>"
        if key:
            content = self.objects[bucket].get(key)
            return (404, b"<Error><Code>NoSuchKey</Code></Error>") if content is None else (200, content)
        found = {k: v for k, v in self.objects[bucket].items() if k.startswith(query.get("prefix", ""))}
        return 200, PAGE.format(items="".join(ITEM.format(key=k, size=len(v)) for k, v in found.items())).encode()


class Lab:
    """Keystone and Swift in small.

    Attributes:
        objects: by container and name.
        asked: the bodies of requests for a token.
        status: of Swift's answers, where it is not 200 or 404.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, bytes]] = {"runs": {}}
        self.asked: list[dict[str, Any]] = []
        self.status = 200
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v3/auth/tokens"
                outer.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                token = {
                    "methods": ["password"], "catalog": outer.catalog(), "user": {"id": "u"}, "project": {"id": "1"},
                    "issued_at": "2026-01-01T00:00:00.000000Z", "expires_at": "2099-01-01T00:00:00.000000Z",
                }  # fmt: skip
                body = json.dumps({"token": token}).encode()
                self._reply(201, body, {"X-Subject-Token": "token-1"})

            def do_GET(self) -> None:
                url = urlsplit(self.path)
                if url.path.rstrip("/") == "/v3":  # which versions there are, asked without a token
                    version = {
                        "id": "v3.14",
                        "status": "stable",
                        "links": [{"rel": "self", "href": f"{outer.url}/v3/"}],
                    }
                    self._reply(200, json.dumps({"version": version}).encode(), {})
                    return
                assert self.headers["X-Auth-Token"] == "token-1"
                container, _, name = unquote(url.path).removeprefix("/v1/AUTH_1/").partition("/")
                self._reply(*outer.answer(container, name, {k: v[0] for k, v in parse_qs(url.query).items()}), {})

            def _reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
                self.send_response(status)
                for key, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(key, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                """Keep the test output clean."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def catalog(self) -> list[dict[str, Any]]:
        places = [("admin", "one"), ("public", "two"), ("public", "one"), ("public", "us-east-1")]
        endpoints = [
            {"interface": interface, "region_id": region, "region": region, "url": f"{self.url}/v1/AUTH_1"}
            for interface, region in places
        ]
        return [
            {"type": "compute", "name": "nova", "endpoints": []},
            {"type": "object-store", "name": "swift", "endpoints": endpoints},
        ]

    def answer(self, container: str, name: str, query: dict[str, str]) -> tuple[int, bytes]:
        if self.status != 200 or container not in self.objects:
            return (404 if self.status == 200 else self.status), b""
        held = self.objects[container]
        if name:
            return (200, held[name]) if name in held else (404, b"")
        names = [one for one in sorted(held) if one.startswith(query["prefix"]) and one > query.get("marker", "")]
        return 200, json.dumps([{"name": one} for one in names[: int(query["limit"])]]).encode()


@contextmanager
def _serving(server: ThreadingHTTPServer) -> Iterator[str]:
    """Serves meanwhile; gives the address."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@contextmanager
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """An S3 that every client of it is told of, and that Google's and Azure's are."""
    made = S3()
    with _serving(made.server) as endpoint:
        settings = {
            "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
            "GOOGLE_BASE_URL": endpoint, "GOOGLE_SKIP_SIGNATURE": "true", "GOOGLE_ALLOW_HTTP": "true",
            "AZURE_STORAGE_ENDPOINT": endpoint, "AZURE_SKIP_SIGNATURE": "true", "AZURE_ALLOW_HTTP": "true",
        }  # fmt: skip
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        yield made


@contextmanager
def lab(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A cloud of OpenStack, called `lab` in clouds.yaml."""
    made = Lab()
    with _serving(made.server):
        own = {"application_credential_id": "i", "application_credential_secret": "s", "auth_url": f"{made.url}/v3/"}
        clouds = folder / "clouds.yaml"
        clouds.write_text(yaml.safe_dump({"clouds": {"lab": {"auth": own}}}), "utf-8")
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(clouds))
        yield made
