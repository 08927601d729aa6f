"""Asking registries for digests: against a registry in small that speaks HTTP, wants tokens and keeps manifests."""

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from gangway.images.lock_images import RegistryError, fetch_digest, images_in_use, main
from gangway.images.specs import locked_digests

INDEX = "application/vnd.oci.image.index.v1+json"


class Registry:
    """Manifests by `HOST/REPOSITORY:TAG`. A token is for one repository; `open` asks for none."""

    def __init__(self) -> None:
        self.manifests: dict[str, bytes] = {}
        self.open = False
        self.url = ""
        self.realm = ""
        self.tokens: list[str] = []

    def push(self, image: str, text: str = "first", kind: str = INDEX) -> str:
        content = json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": [], "annotations": {"x": text}})
        self.manifests[image.replace("docker.io/", "registry-1.docker.io/", 1)] = content.encode()
        return f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    own = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            if url.path == "/token":
                asked = parse_qs(url.query)
                token = f"for {asked['scope'][0]}"
                own.tokens.append(token)
                return self._answer(200, json.dumps({"token": token}).encode())
            host, _, rest = url.path[1:].partition("/v2/")
            repository, _, tag = rest.partition("/manifests/")
            if not own.open and self.headers.get("Authorization") != f"Bearer for repository:{repository}:pull":
                challenge = f'Bearer realm="{own.realm}",service="registry",scope="repository:{repository}:pull"'
                return self._answer(401, b"{}", {"WWW-Authenticate": challenge})
            content = own.manifests.get(f"{host}/{repository}:{tag}")
            if content is None or INDEX not in self.headers["Accept"]:
                return self._answer(404, b"{}")
            return self._answer(200, content)

        def _answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    own.url = f"http://127.0.0.1:{server.server_port}"
    own.realm = f"{own.url}/token"
    monkeypatch.setenv("GANGWAY_REGISTRY_URL", own.url)
    yield own
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_digest_is_the_sum_of_what_the_registry_sends(registry: Registry) -> None:
    image = "docker.io/library/python:3.12.12-slim-bookworm"
    digest = registry.push(image)
    assert fetch_digest(image) == digest
    assert registry.tokens == ["for repository:library/python:pull"]
    registry.open = True
    assert fetch_digest(image) == digest


def test_another_registry_is_asked_itself(registry: Registry) -> None:
    digest = registry.push("registry.example.com/prom/prometheus:v3")
    assert fetch_digest("registry.example.com/prom/prometheus:v3") == digest


def test_the_lock_is_written_and_a_moved_tag_reported(
    registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "images.lock"
    first = {image: registry.push(image) for image in images_in_use()}
    assert main(lock=lock) == 0
    assert locked_digests(lock) == first
    moved = images_in_use()[0]
    second = {**first, moved: registry.push(moved, "second")}
    assert main(lock=lock) == 0
    assert locked_digests(lock) == second
    assert f"{second[moved]}: moved, from {first[moved]}" in capsys.readouterr().out


def test_one_that_does_not_answer_leaves_the_lock_as_it_is(
    registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "images.lock"
    for image in images_in_use():
        registry.push(image)
    main(lock=lock)
    before = lock.read_bytes()
    registry.manifests.popitem()
    assert main(lock=lock) == 1
    assert lock.read_bytes() == before
    assert "404" in capsys.readouterr().err


@pytest.mark.parametrize("realm", ["http://elsewhere.example/token", "file:///etc/passwd", ""])
def test_a_token_is_fetched_over_https_alone(registry: Registry, realm: str) -> None:
    registry.push("example.com/x:1")
    registry.realm = realm
    with pytest.raises(RegistryError, match="WWW-Authenticate"):
        fetch_digest("example.com/x:1")


@pytest.mark.parametrize("content", [b"<html>", b'{"mediaType": "text/html"}'])
def test_what_is_no_manifest_is_refused(registry: Registry, content: bytes) -> None:
    registry.manifests["example.com/x:1"] = content
    with pytest.raises(RegistryError):
        fetch_digest("example.com/x:1")
