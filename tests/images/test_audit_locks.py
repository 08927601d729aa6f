"""The audit of locks against OSV in small: an HTTP server with OSV's two questions that knows some vulnerabilities."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gangway.images.audit_locks import LOCKS, ROOT, Package, get_packages, main, read_accepted


class Osv:
    """Vulnerabilities by `name version`; each question is answered one id a page."""

    def __init__(self) -> None:
        self.of: dict[str, list[str]] = {}
        self.details: dict[str, dict[str, Any]] = {}
        self.asked: list[Any] = []

    def knows(self, package: str, name: str, **details: Any) -> None:
        self.of.setdefault(package, []).append(name)
        self.details[name] = {"id": name, "summary": f"what {name} is", **details}

    def answer(self, query: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(query)
        assert query["package"]["ecosystem"] == "PyPI"
        names = self.of.get(f"{query['package']['name']} {query['version']}", [])
        page = int(query.get("page_token", "0"))
        more = {"next_page_token": str(page + 1)} if page + 1 < len(names) else {}
        return {"vulns": [{"id": names[page]}], **more} if names else {}


@pytest.fixture
def osv(monkeypatch: pytest.MonkeyPatch) -> Iterator[Osv]:
    own = Osv()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._say(200, {"results": [own.answer(query) for query in question["queries"]]})

        def do_GET(self) -> None:
            details = own.details.get(self.path.rpartition("/")[2])
            self._say(200 if details else 404, details or {})

        def _say(self, status: int, data: dict[str, Any]) -> None:
            content = json.dumps(data).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("GANGWAY_OSV_URL", f"http://127.0.0.1:{server.server_port}")
    yield own
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "some.lock"
    path.write_text("# a comment==1\nTorch[cuda]==2.9 \\\n    --hash=sha256:12\nyaml==6 ; python_version > '3'\n")
    return path


@pytest.fixture
def list_of(tmp_path: Path) -> Any:
    def write(*lines: str) -> Path:
        (tmp_path / "accepted.txt").write_text("# why\n" + "".join(f"{line}\n" for line in lines))
        return tmp_path / "accepted.txt"

    return write


def test_every_pin_of_a_lock_is_asked_about(osv: Osv, lock: Path, list_of: Any) -> None:
    assert get_packages([lock]) == {Package("torch", "2.9"): ["some.lock"], Package("yaml", "6"): ["some.lock"]}
    assert main([str(lock)], list_of()) == 0
    assert {(query["package"]["name"], query["version"]) for query in osv.asked} == {("torch", "2.9"), ("yaml", "6")}


def test_our_own_locks_are_read_whole() -> None:
    packages = get_packages([ROOT / name for name in LOCKS])
    assert {"torch", "numpy", "pydantic", "boto3"} <= {package.name for package in packages}
    assert read_accepted() is not None


def test_only_a_vulnerability_that_is_not_accepted_fails(
    osv: Osv, lock: Path, list_of: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    osv.knows("torch 2.9", "GHSA-1", aliases=["CVE-1"])
    osv.knows("torch 2.9", "PYSEC-1", aliases=["GHSA-1", "CVE-1"])
    osv.knows("torch 2.9", "GHSA-2")
    assert main([str(lock)], list_of()) == 1
    output = capsys.readouterr().out
    assert "torch 2.9 (some.lock): GHSA-1: what GHSA-1 is" in output
    assert "PYSEC-1" not in output, "it is the same under another name"
    assert output.endswith("2 packages: 2 new, 0 accepted\n")
    assert main([str(lock)], list_of("CVE-1 no code of ours calls it")) == 1
    assert main([str(lock)], list_of("CVE-1 no code of ours calls it", "GHSA-2 likewise")) == 0
    assert "accepted: no code of ours calls it" in capsys.readouterr().out


def test_a_withdrawn_vulnerability_needs_no_acceptance(
    osv: Osv, lock: Path, list_of: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    osv.knows("yaml 6", "GHSA-3", withdrawn="2026-01-01T00:00:00Z")
    assert main([str(lock)], list_of("GHSA-3 wrong")) == 0
    assert "GHSA-3 is no longer reported" in capsys.readouterr().err


@pytest.mark.parametrize("trouble", ["nobody", "no lock", "no reason", "lost details"])
def test_what_could_not_be_checked_is_not_called_clean(
    osv: Osv,
    lock: Path,
    list_of: Any,
    trouble: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = list_of("GHSA-1") if trouble == "no reason" else list_of()
    if trouble == "nobody":
        monkeypatch.setenv("GANGWAY_OSV_URL", "http://127.0.0.1:9")
    elif trouble == "no lock":
        lock.write_text("nothing\n")
    elif trouble == "lost details":
        osv.knows("yaml 6", "GHSA-4")
        osv.details.clear()
    assert main([str(lock)], names) == 2
    assert "nothing was checked" in capsys.readouterr().err
