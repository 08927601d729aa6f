"""OpenStack's object store, read as a person reads it: each kind of login, pages, and what it refuses."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
import yaml

from stacks.bench import swift
from stacks.bench.run_store import RunStore
from stacks.bench.runner import StoreFailedError


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
                body = json.dumps({"token": {"catalog": outer.catalog()}}).encode()
                self._reply(201, body, {"X-Subject-Token": "token-1"})

            def do_GET(self) -> None:
                assert self.headers["X-Auth-Token"] == "token-1"
                url = urlsplit(self.path)
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
        places = [("admin", "one"), ("public", "two"), ("public", "one")]
        endpoints = [
            {"interface": interface, "region_id": region, "url": f"{self.url}/v1/AUTH_1"}
            for interface, region in places
        ]
        return [{"type": "compute", "endpoints": []}, {"type": "object-store", "endpoints": endpoints}]

    def answer(self, container: str, name: str, query: dict[str, str]) -> tuple[int, bytes]:
        if self.status != 200 or container not in self.objects:
            return (404 if self.status == 200 else self.status), b""
        held = self.objects[container]
        if name:
            return (200, held[name]) if name in held else (404, b"")
        names = [one for one in sorted(held) if one.startswith(query["prefix"]) and one > query.get("marker", "")]
        return 200, json.dumps([{"name": one} for one in names[: int(query["limit"])]]).encode()


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    made = Lab()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    own = {"application_credential_id": "i", "application_credential_secret": "s", "auth_url": f"{made.url}/v3/"}
    clouds = tmp_path / "clouds.yaml"
    clouds.write_text(yaml.safe_dump({"clouds": {"lab": {"auth": own}}}), "utf-8")
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(clouds))
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def test_a_run_in_a_container(lab: Lab, tmp_path: Path) -> None:
    store = RunStore("swift://runs/s/s", "one", "lab")
    assert store.read("run.json") is None
    lab.objects["runs"] |= {"s/s/run.json": b"{}", "s/s/samples/a b.png": b"x", "other": b"y"}
    assert store.read("run.json") == b"{}"
    assert store.copy(tmp_path / "here") == ["run.json", "samples/a b.png"]
    assert (tmp_path / "here/samples/a b.png").read_bytes() == b"x"
    own = {"methods": ["application_credential"], "application_credential": {"id": "i", "secret": "s"}}
    assert lab.asked[0] == {"auth": {"identity": own}}


def test_pages_are_gone_through(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swift, "_PAGE", 2)
    lab.objects["runs"] = {f"s/{number}": b"" for number in range(5)}
    assert RunStore("swift://runs/s", "one", "lab").names() == ["0", "1", "2", "3", "4"]


def test_a_password_from_the_environment(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"AUTH_URL": f"{lab.url}/v3", "USERNAME": "u", "PASSWORD": "p", "PROJECT_NAME": "gan"}.items():
        monkeypatch.setenv(f"OS_{name}", value)
    assert RunStore("swift://runs/s", "one").names() == []
    user = {"name": "u", "password": "p", "domain": {"name": "Default"}}
    assert lab.asked[0]["auth"]["identity"] == {"methods": ["password"], "password": {"user": user}}
    assert lab.asked[0]["auth"]["scope"] == {"project": {"name": "gan", "domain": {"name": "Default"}}}
    monkeypatch.setenv("OS_PROJECT_ID", "id-1")
    RunStore("swift://runs/s", "one").names()
    assert lab.asked[1]["auth"]["scope"] == {"project": {"id": "id-1"}}


def test_what_goes_wrong_is_told(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreFailedError, match="there is no such bucket"):
        RunStore("swift://gone/s", "one", "lab").read("run.json")
    with pytest.raises(StoreFailedError, match="no object store in region three"):
        RunStore("swift://runs/s", "three", "lab").read("run.json")
    lab.status = 403
    with pytest.raises(StoreFailedError, match="no permission to read it"):
        RunStore("swift://runs/s", "one", "lab").read("run.json")
    monkeypatch.delenv("OS_CLIENT_CONFIG_FILE")
    with pytest.raises(StoreFailedError, match=r"neither clouds\.yaml nor OS_"):
        RunStore("swift://runs/s", "one", "no-such-cloud").names()
