"""What kubectl says, and what it means; kubectl is a script here, which says what the real one does."""

import os
from pathlib import Path

import pytest

from gangway.components.core.findings import InputError
from gangway.jobs.base import EngineAwayError
from gangway.jobs.kubernetes.kubectl import ForbiddenError, Kubectl, MissingError, TakenError


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


@pytest.mark.parametrize(
    "said",
    [
        'error: context "prod" does not exist',
        "Error in configuration: context was not found for specified context: prod",
    ],
)
def test_a_context_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    says(tmp_path, monkeypatch, said)
    with pytest.raises(InputError, match="no such context") as caught:
        Kubectl("prod", "team-a").get("nodes")
    assert caught.value.value == "prod"
    assert not isinstance(caught.value, EngineAwayError)


_KLOG = (
    'E1128 05:50:08.641995    9906 memcache.go:265] "Unhandled Error" err="could not get current server API group '
    'list: dial tcp 127.0.0.1:8080: connect: connection refused"'
)


@pytest.mark.parametrize(
    "said",
    [
        "The connection to the server localhost:8080 was refused - did you specify the right host or port?",
        'error: the server doesn\'t have a resource type "jobsets"',
        'Error from server (NotFound): nodes "E1128" not found',
    ],
)
def test_what_its_libraries_log_is_no_part_of_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    (tmp_path / "said").write_text(f"{_KLOG}\n{_KLOG}\n{said}\n")
    script = tmp_path / "kubectl"
    script.write_text(f"#!/bin/sh\ncat {tmp_path}/said >&2\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(InputError) as caught:
        Kubectl("", "team-a").get("nodes")
    assert said in caught.value.problem
    assert "memcache" not in str(caught.value)


def test_where_there_is_nothing_but_their_log_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says(tmp_path, monkeypatch, _KLOG)
    with pytest.raises(InputError, match="memcache"):
        Kubectl("", "team-a").get("nodes")


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
