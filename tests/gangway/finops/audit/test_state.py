"""A state that cannot be read: what to do about it is said in full, with the stack's name and the flag for none."""

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.finops.audit import state


def test_every_way_in_which_there_is_no_state_names_the_flag_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("pulumi", 300)

    def refusing(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 1, "", "error: no stack named 'mine' found")

    monkeypatch.setattr(state, "which", lambda _: "/usr/bin/pulumi")
    for run, message in (
        (slow, "pulumi: no answer in 300 s"),
        (refusing, "pulumi stack export --stack mine: failed: error: no stack named 'mine' found"),
    ):
        monkeypatch.setattr(subprocess, "run", run)
        with pytest.raises(InputError) as caught:
            state.export_state("mine", tmp_path)
        assert str(caught.value).startswith(message)
        assert "pulumi stack export --stack mine --file state.json" in caught.value.fix
        assert "--no-state" in caught.value.fix
    for text in (None, "{", '{"version": 3}'):
        path = tmp_path / "state.json"
        if text is not None:
            path.write_text(text)
        with pytest.raises(InputError, match=f"--state {path}: (.|\n)*--no-state"):
            state.read_state(path)


OUTPUTS = {
    "run_bucket": "runs",
    "group_names": ["a"],
    "key": {"4dabf18193072939515e22adb298388d": "x", "ciphertext": "y"},
}
RESOURCES: list[dict[str, Any]] = [
    {"urn": "urn:pulumi:mine::ours::pulumi:pulumi:Stack::ours-mine", "type": "pulumi:pulumi:Stack", "outputs": OUTPUTS},
    {"urn": "urn:b", "type": "aws:s3/bucket:Bucket", "id": "runs", "outputs": {"bucket": "runs"}},
]
KEPT = json.dumps({"version": 3, "checkpoint": {"stack": "mine", "latest": {"resources": RESOURCES}}}).encode()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project without the CLI on this machine, whose home has no login."""
    monkeypatch.setattr(state, "which", lambda _: None)
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    (tmp_path / "Pulumi.yaml").write_text("name: ours\nruntime: python\n")
    return tmp_path


def kept(project: Path, file: str, content: bytes = KEPT) -> str:
    path = project / "state/.pulumi/stacks" / file
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return (project / "state").as_uri()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("ours/mine.json", KEPT),
        ("ours/mine.json.gz", gzip.compress(KEPT)),
        ("ours/mine.json", gzip.compress(KEPT)),
        ("mine.json", KEPT),
    ],
)
def test_the_newest_state_is_read_as_the_cli_exports_it(
    project: Path, monkeypatch: pytest.MonkeyPatch, file: str, content: bytes
) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", kept(project, file, content))
    assert state.stack_outputs("mine", project) == {"run_bucket": "runs", "group_names": ["a"]}, "secrets stay there"
    assert state.stack_outputs("organization/ours/mine", project)["run_bucket"] == "runs"
    found = state.export_state("mine", project)
    assert [each.id for each in found.resources] == ["runs"]
    assert file in found.source


def test_the_backend_is_that_of_the_environment_the_project_or_the_login(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = kept(project, "ours/mine.json")
    with pytest.raises(InputError, match="not logged in to a backend"):
        state.stack_outputs("mine", project)
    (project / "home").mkdir()
    (project / "home/credentials.json").write_text(json.dumps({"current": url}))
    assert state.stack_outputs("mine", project)
    (project / "Pulumi.yaml").write_text("name: ours\nbackend: {url: 'file:///nowhere'}\n")
    with pytest.raises(InputError, match="file:///nowhere"):
        state.stack_outputs("mine", project)
    monkeypatch.setenv("PULUMI_BACKEND_URL", url)
    assert state.stack_outputs("mine", project)


def test_what_only_the_cli_reads_is_said_with_what_would_be_read(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", "https://api.pulumi.com")
    with pytest.raises(InputError) as caught:
        state.export_state("mine", project)
    assert "the backend is https://api.pulumi.com" in str(caught.value)
    assert "azblob://" in caught.value.allowed
    assert "pulumi stack export --stack mine --file state.json" in caught.value.fix
    assert "--no-state" in caught.value.fix


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\x1f\x8bno gzip", b'{"version": 3, "checkpoint": null}'])
def test_a_file_that_is_no_state_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", kept(project, "ours/mine.json", content))
    with pytest.raises(InputError, match="contains no Pulumi state"):
        state.export_state("mine", project)


def test_a_stack_that_is_not_there_or_not_up_is_said(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = json.dumps({"version": 3, "checkpoint": {"latest": None}}).encode()
    monkeypatch.setenv("PULUMI_BACKEND_URL", kept(project, "ours/mine.json", empty))
    with pytest.raises(InputError, match="has no stack other of project ours"):
        state.stack_outputs("other", project)
    with pytest.raises(InputError, match="the stack is not up"):
        state.stack_outputs("mine", project)


@pytest.mark.parametrize(
    ("url", "store", "region"),
    [
        ("s3://ours/a/b?region=eu-north-1&awssdk=v2", "s3://ours/a/b", "eu-north-1"),
        ("s3://ours", "s3://ours", "us-west-2"),
        ("gs://ours/a", "gs://ours/a", "us-west-2"),
        ("azblob://box/a?storage_account=acct", "az://acct/box/a", ""),
        ("azblob://box", "az://other/box", ""),
    ],
)
def test_buckets_are_named_as_pulumi_names_them(
    monkeypatch: pytest.MonkeyPatch, url: str, store: str, region: str
) -> None:
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "other")
    found = state._store(url)
    assert found.url == store
    assert found.region == region
