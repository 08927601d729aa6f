"""OpenStack's object store, read as a person reads it: each kind of login, pages, and what it refuses."""

from pathlib import Path
from typing import Any

import pytest

from gangway.runs import run_store as swift
from gangway.runs.run_store import RunStore, StoreFailedError


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
