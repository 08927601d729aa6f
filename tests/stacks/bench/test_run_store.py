"""The folder that a run reports to: on this machine, in a bucket, and each way in which it may not answer."""

import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from stacks.bench.run_store import RunStore, _bucket_region, _object_store, runs_url
from stacks.bench.runner import Failure, RunFailedError, StoreFailedError

PAGE = """<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><IsTruncated>false</IsTruncated>
{items}</ListBucketResult>"""
ITEM = (
    "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;0&quot;</ETag>"
    "<Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = tmp_path / "stack" / "stack"
    (run / "checkpoints").mkdir(parents=True)
    (run / "samples").mkdir()
    for name in ("run.json", "stats.jsonl", "samples/000.png", "checkpoints/1.pt"):
        (run / name).write_text(name, "utf-8")
    return run


def test_a_folder_of_this_machine(folder: Path, tmp_path: Path) -> None:
    store = RunStore(f"{folder.as_uri()}/")
    assert store.read("run.json") == b"run.json"
    assert store.read("none.json") is None
    assert store.names() == ["checkpoints/1.pt", "run.json", "samples/000.png", "stats.jsonl"]
    here = tmp_path / "here"
    assert store.copy(here) == ["run.json", "samples/000.png", "stats.jsonl"]
    copied = sorted(path.relative_to(here).as_posix() for path in here.rglob("*") if path.is_file())
    assert copied == ["run.json", "samples/000.png", "stats.jsonl"], "checkpoints stay where they are"


def test_a_folder_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    """The first write of a run makes it."""
    store = RunStore((tmp_path / "later").as_uri())
    assert store.read("run.json") is None
    assert store.names() == []


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


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    stand_in = S3()
    thread = threading.Thread(target=stand_in.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    endpoint = f"http://127.0.0.1:{stand_in.server.server_port}"
    settings = {"ENDPOINT_URL": endpoint, "ALLOW_HTTP": "true", "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}
    for name, value in settings.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    yield stand_in
    stand_in.server.shutdown()
    thread.join()
    stand_in.server.server_close()


def test_a_run_in_a_bucket(s3: S3, tmp_path: Path) -> None:
    store = RunStore("s3://runs/stack/stack", "us-east-1")
    assert store.read("run.json") is None
    s3.objects["runs"] |= {"stack/stack/run.json": b"{}", "other/run.json": b"y"}
    assert store.read("run.json") == b"{}"
    assert store.copy(tmp_path / "here") == ["run.json"]
    assert store.read("none.json") is None


def test_a_missing_bucket_is_told(s3: S3) -> None:
    with pytest.raises(StoreFailedError, match=r"^s3://gone/a: there is no such bucket"):
        RunStore("s3://gone/a", "us-east-1").read("run.json")


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (403, b"<Error><Code>AccessDenied</Code></Error>", Failure.LASTING),
        (404, b"<Error><Code>NoSuchBucket</Code></Error>", Failure.LASTING),
        (400, b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>",
         Failure.LOGIN),
        (403, b"<Error><Code>ExpiredToken</Code></Error>", Failure.LOGIN),
        (401, b"", Failure.LOGIN),
        (503, b"<Error><Code>SlowDown</Code></Error>", Failure.OUTAGE),
    ],
)  # fmt: skip
def test_what_passes_and_what_lasts(s3: S3, status: int, body: bytes, kind: Failure) -> None:
    s3.status, s3.body = status, body
    with pytest.raises(StoreFailedError) as told:
        RunStore("s3://runs/a", "us-east-1").names()
    assert told.value.kind is kind, str(told.value)


def test_an_ended_sso_login_passes(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.exceptions import UnauthorizedSSOTokenError

    def ended(session: Any) -> None:
        raise UnauthorizedSSOTokenError

    monkeypatch.setattr("boto3.Session.get_credentials", ended)
    with pytest.raises(StoreFailedError) as told:
        RunStore("s3://runs/a", "us-east-1").names()
    assert told.value.kind is Failure.LOGIN


def test_a_bucket_is_asked_for_its_region(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.regions["runs"] = "eu-central-1"
    asked: list[str] = []

    def aws(region: str) -> dict[str, Any]:
        asked.append(region)
        return {}

    monkeypatch.setattr("stacks.bench.run_store._aws", aws)
    RunStore("s3://runs/a").names()
    assert asked == ["eu-central-1"]
    monkeypatch.setattr("boto3.Session.get_credentials", lambda session: None)
    assert _bucket_region("runs") == "eu-central-1", "those without a login are told as well"


def test_an_account_is_part_of_azures_address(monkeypatch: pytest.MonkeyPatch) -> None:
    from obstore.store import AzureStore

    opened: list[str] = []
    real = AzureStore.from_url

    def noted(url: str, **settings: Any) -> AzureStore:
        opened.append(url)
        return real(url, **settings)

    monkeypatch.setattr("obstore.store.AzureStore", SimpleNamespace(from_url=noted))
    monkeypatch.setenv("AZURE_SKIP_SIGNATURE", "true")
    _object_store("az://myaccount/runs/stack/stack", "")
    assert opened == ["https://myaccount.blob.core.windows.net/runs/stack/stack"]


@pytest.mark.parametrize("name", ["../../x", "/tmp/gangway-test-x", "a/../../x", "a//x", "./x", "..", "a\0b"])
def test_no_name_leads_out_of_the_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes choose the names of objects, and must not write to the disk of whoever runs the suite."""
    held = {"run.json": b"{}", name: b"evil", "samples/": b""}
    files = SimpleNamespace(names=lambda: sorted(held), read=held.__getitem__)
    monkeypatch.setattr("stacks.bench.run_store._open", lambda *_: files)
    here = tmp_path / "deep" / "er" / "here"
    with pytest.raises(RunFailedError, match="no name inside a folder"):
        RunStore("swift://runs/a").copy(here)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written == [here / "run.json"]


@pytest.mark.parametrize("ask", [lambda store: store.read("run.json"), lambda store: store.names()])
def test_no_permission_is_told(s3: S3, ask: Callable[[RunStore], Any]) -> None:
    s3.status = 403
    with pytest.raises(StoreFailedError, match=r"^s3://runs/a: no permission to read it"):
        ask(RunStore("s3://runs/a", "us-east-1"))


def test_a_bucket_that_does_not_answer_is_told(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StoreFailedError, match="cannot be read") as told:
        RunStore("s3://runs/a", "us-east-1").read("run.json")
    assert told.value.kind is Failure.OUTAGE
    with pytest.raises(StoreFailedError, match="cannot be read") as told:
        RunStore("s3://runs/a").read("run.json")
    assert told.value.kind is Failure.OUTAGE, "also where its region is asked for"


def test_an_address_that_is_none() -> None:
    with pytest.raises(StoreFailedError, match="cannot be read") as told:
        RunStore("https://example.com/x").names()
    assert told.value.kind is not Failure.OUTAGE


@pytest.mark.parametrize("url", ["gs://runs/a/a", "https://account.blob.core.windows.net/runs/a/a"])
def test_the_other_clouds_answer_too(url: str, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their stores are opened as they are for real; the stand-in refuses everybody."""
    s3.status = 403
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    names = {"GOOGLE_BASE_URL": endpoint, "GOOGLE_SKIP_SIGNATURE": "true", "GOOGLE_ALLOW_HTTP": "true"}
    names |= {"AZURE_STORAGE_ENDPOINT": endpoint, "AZURE_SKIP_SIGNATURE": "true", "AZURE_ALLOW_HTTP": "true"}
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StoreFailedError, match="no permission to read it"):
        RunStore(url).read("run.json")


@pytest.mark.parametrize(
    ("provider", "outputs", "url"),
    [
        ("aws", {"run_bucket": "b"}, "s3://b/s/s"),
        ("gcp", {"run_bucket": "b"}, "gs://b/s/s"),
        ("azure", {"run_bucket": "runs", "run_bucket_url": "https://a.blob.core.windows.net/runs"},
         "https://a.blob.core.windows.net/runs/s/s"),
        ("hosts", {"run_bucket_url": "/shared/runs/"}, "file:///shared/runs/s/s"),
        ("openstack", {"run_bucket_url": "swift://s-runs"}, "swift://s-runs/s/s"),
        ("any", {"runs_url": "file:///shared/runs/s"}, "file:///shared/runs/s"),
    ],
)  # fmt: skip
def test_where_each_provider_reports(provider: str, outputs: dict[str, str], url: str) -> None:
    assert runs_url(provider, outputs, "s") == url
