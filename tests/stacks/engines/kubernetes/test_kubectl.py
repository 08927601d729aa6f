"""What kubectl says, and what it means; kubectl is a script here, which says what the real one does."""

import os
from pathlib import Path

import pytest

from components.core.findings import InputError
from stacks.engines.base import EngineAwayError
from stacks.engines.kubernetes.kubectl import ForbiddenError, Kubectl, MissingError, TakenError


def says(folder: Path, monkeypatch: pytest.MonkeyPatch, error: str) -> None:
    script = folder / "kubectl"
    script.write_text(f"#!/bin/sh\necho '{error}' >&2\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ('Error from server (NotFound): jobsets.jobset.x-k8s.io "a-1" not found', MissingError),
        ('Error from server (AlreadyExists): error when creating "STDIN": configmaps "a-1" already exists', TakenError),
        ('Error from server (Forbidden): nodes is forbidden: User "ada" cannot list resource "nodes"', ForbiddenError),
        (
            "The connection to the server 127.0.0.1:9 was refused - did you specify the right host or port?",
            EngineAwayError,
        ),
        ("Unable to connect to the server: dial tcp: lookup k8s.invalid: no such host", EngineAwayError),
        ("Unable to connect to the server: net/http: TLS handshake timeout", EngineAwayError),
        (
            "Error from server (Timeout): the server was unable to return a response in time",
            EngineAwayError,
        ),
        ("Error from server (InternalError): an error on the server has prevented the request", EngineAwayError),
        ("Error from server (TooManyRequests): the server has received too many requests", EngineAwayError),
    ],
)
def test_each_error_is_told_from_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, kind: type[InputError]
) -> None:
    says(tmp_path, monkeypatch, said)
    with pytest.raises(InputError) as caught:
        Kubectl("", "team-a").get("nodes")
    assert type(caught.value) is kind
    assert said in caught.value.problem


def test_a_context_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says(tmp_path, monkeypatch, 'error: context "prod" does not exist')
    with pytest.raises(InputError, match='"prod" does not exist') as caught:
        Kubectl("prod", "team-a").get("nodes")
    assert not isinstance(caught.value, EngineAwayError)


def test_without_kubectl_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="kubectl is not on PATH"):
        Kubectl("", "team-a").get("nodes")


def test_what_pods_have_written_comes_byte_for_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = b"10%\r20%\r\n\xff\xe2\x80\xa8\n"
    (tmp_path / "written").write_bytes(written)
    script = tmp_path / "kubectl"
    script.write_text(f"#!/bin/sh\ncat {tmp_path}/written\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert Kubectl("", "team-a").logs("--selector=a") == written
