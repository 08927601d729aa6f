"""The folder that a run reports to: on this machine, in a bucket, and each way in which it may not answer."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gangway.runs import run_store as swift
from gangway.runs.run_store import (
    Failure,
    RunFailedError,
    RunStore,
    StoreFailedError,
    _bucket_region,
    object_store,
    runs_url,
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


def test_a_run_in_a_bucket(s3: Any, tmp_path: Path) -> None:
    store = RunStore("s3://runs/stack/stack", "us-east-1")
    assert store.read("run.json") is None
    s3.objects["runs"] |= {"stack/stack/run.json": b"{}", "other/run.json": b"y"}
    assert store.read("run.json") == b"{}"
    assert store.copy(tmp_path / "here") == ["run.json"]
    assert store.read("none.json") is None


def test_a_missing_bucket_is_told(s3: Any) -> None:
    with pytest.raises(StoreFailedError, match=r"^s3://gone/a: no such bucket"):
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
def test_what_passes_and_what_lasts(s3: Any, status: int, body: bytes, kind: Failure) -> None:
    s3.status, s3.body = status, body
    with pytest.raises(StoreFailedError) as told:
        RunStore("s3://runs/a", "us-east-1").names()
    assert told.value.kind is kind, str(told.value)


def test_an_ended_sso_login_passes(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.exceptions import UnauthorizedSSOTokenError

    def ended(session: Any) -> None:
        raise UnauthorizedSSOTokenError

    monkeypatch.setattr("boto3.Session.get_credentials", ended)
    with pytest.raises(StoreFailedError) as told:
        RunStore("s3://runs/a", "us-east-1").names()
    assert told.value.kind is Failure.LOGIN


def test_a_bucket_is_asked_for_its_region(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.regions["runs"] = "eu-central-1"
    asked: list[str] = []

    def aws(region: str) -> dict[str, Any]:
        asked.append(region)
        return {}

    monkeypatch.setattr("gangway.runs.run_store._aws", aws)
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
    object_store("az://myaccount/runs/stack/stack", "")
    assert opened == ["https://myaccount.blob.core.windows.net/runs/stack/stack"]


@pytest.mark.attack("a bucket's writer", "object names and links that lead out of the data folder")
@pytest.mark.parametrize("name", ["../../x", "/tmp/gangway-test-x", "a/../../x", "a//x", "./x", "..", "a\0b"])
def test_no_name_leads_out_of_the_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes choose the names of objects, and must not write to the disk of whoever runs the suite."""
    held = {"run.json": b"{}", name: b"evil", "samples/": b""}
    files = SimpleNamespace(names=lambda: sorted(held), read=lambda name, most: held[name])
    monkeypatch.setattr("gangway.runs.run_store._open", lambda *_: files)
    here = tmp_path / "deep" / "er" / "here"
    with pytest.raises(RunFailedError, match="leads out of the folder"):
        RunStore("swift://runs/a").copy(here)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written == [here / "run.json"]


@pytest.mark.parametrize("ask", [lambda store: store.read("run.json"), lambda store: store.names()])
def test_no_permission_is_told(s3: Any, ask: Callable[[RunStore], Any]) -> None:
    s3.status = 403
    with pytest.raises(StoreFailedError, match=r"^s3://runs/a: no permission to read it"):
        ask(RunStore("s3://runs/a", "us-east-1"))


def test_a_bucket_that_does_not_answer_is_told(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_the_other_clouds_answer_too(url: str, s3: Any) -> None:
    """Their stores are opened as they are for real; the stand-in refuses everybody."""
    s3.status = 403
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


def test_a_run_in_a_container(lab: Any, tmp_path: Path) -> None:
    store = RunStore("swift://runs/s/s", "one", "lab")
    assert store.read("run.json") is None
    lab.objects["runs"] |= {"s/s/run.json": b"{}", "s/s/samples/a b.png": b"x", "other": b"y"}
    assert store.read("run.json") == b"{}"
    assert store.copy(tmp_path / "here") == ["run.json", "samples/a b.png"]
    assert (tmp_path / "here/samples/a b.png").read_bytes() == b"x"
    own = {"methods": ["application_credential"], "application_credential": {"id": "i", "secret": "s"}}
    assert lab.asked[0] == {"auth": {"identity": own}}


def test_pages_are_gone_through(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swift, "_PAGE", 2)
    lab.objects["runs"] = {f"s/{number}": b"" for number in range(5)}
    assert RunStore("swift://runs/s", "one", "lab").names() == ["0", "1", "2", "3", "4"]


def test_a_password_from_the_environment(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"AUTH_URL": f"{lab.url}/v3", "USERNAME": "u", "PASSWORD": "p", "PROJECT_NAME": "gan"}.items():
        monkeypatch.setenv(f"OS_{name}", value)
    assert RunStore("swift://runs/s", "one").names() == []
    user = {"name": "u", "password": "p", "domain": {"name": "Default"}}
    assert lab.asked[0]["auth"]["identity"] == {"methods": ["password"], "password": {"user": user}}
    assert lab.asked[0]["auth"]["scope"] == {"project": {"name": "gan", "domain": {"name": "Default"}}}
    monkeypatch.setenv("OS_PROJECT_ID", "id-1")
    RunStore("swift://runs/s", "one").names()
    assert lab.asked[1]["auth"]["scope"] == {"project": {"id": "id-1"}}


def test_what_goes_wrong_is_told(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreFailedError, match="no such bucket"):
        RunStore("swift://gone/s", "one", "lab").read("run.json")
    with pytest.raises(StoreFailedError, match="no object store in region three"):
        RunStore("swift://runs/s", "three", "lab").read("run.json")
    lab.status = 403
    with pytest.raises(StoreFailedError, match="no permission to read it"):
        RunStore("swift://runs/s", "one", "lab").read("run.json")
    monkeypatch.delenv("OS_CLIENT_CONFIG_FILE")
    with pytest.raises(StoreFailedError, match=r"clouds\.yaml and OS_"):
        RunStore("swift://runs/s", "one", "no-such-cloud").names()
