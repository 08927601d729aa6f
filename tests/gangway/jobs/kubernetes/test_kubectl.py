"""What kubectl says, and what it means; kubectl is a script here, which says what the real one does."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.jobs.base import EngineAwayError
from gangway.jobs.kubernetes.kubectl import (
    ForbiddenError,
    Kubectl,
    MissingError,
    TakenError,
    find_log_error,
    merge_logs,
)

_START_NS = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 10**9


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


def said(lines: list[tuple[int, str, str]]) -> bytes:
    """As `kubectl logs --prefix --timestamps` has it: pod after pod."""
    text = "".join(
        f"[pod/{pod}/node] {datetime.fromtimestamp(at // 10**9, UTC):%Y-%m-%dT%H:%M:%S}.{at % 10**9:09d}Z {text}\n"
        for at, pod, text in sorted(lines, key=lambda each: each[1])
    )
    return text.encode()


_LINES = st.lists(
    st.tuples(st.integers(0, 20 * 10**9), st.sampled_from("ab"), st.text("xyz ]é\r\u2028\x85\x0b", max_size=6)),
    unique_by=lambda each: each[0],
    max_size=20,
)


@given(_LINES, st.lists(st.integers(0, 25), max_size=4))
def test_however_often_it_is_asked_each_line_comes_once_and_in_order(
    drawn: list[tuple[int, str, str]], asked_sec: list[int]
) -> None:
    lines = [(_START_NS + at, pod, text) for at, pod, text in drawn]
    offset, text = 0, ""
    for at_sec in sorted(asked_sec):
        now = _START_NS + at_sec * 10**9
        part, offset = merge_logs(said([each for each in lines if each[0] <= now]), offset, now)
        text += part
    part, offset = merge_logs(said(lines), offset, None)
    assert text + part == "".join(f"{text}\n" for _, _, text in sorted(lines))
    assert merge_logs(said(lines), offset, None) == ("", offset)


def test_a_pod_whose_lines_come_late_loses_none() -> None:
    early, late = (_START_NS, "a", "first"), (_START_NS - 10**9, "b", "before it")
    text, offset = merge_logs(said([early]), 0, _START_NS)
    assert text == ""
    assert merge_logs(said([early, late]), offset, None)[0] == "before it\nfirst\n"


def test_nodes_tell_the_time_of_where_they_are() -> None:
    lines = (
        b"[pod/a/node] 2026-01-01T02:00:01.000000002+02:00 second\n"
        b"[pod/a/node] 2026-01-01T02:00:02+02:00 last"
        b"[pod/b/node] 2025-12-31T18:30:01.000000001-05:30 first\n"
        b"[pod/c/node] 2026-01-01T00:00:01.000000003Z third\n"
    )
    assert merge_logs(lines, 0, None) == ("first\nsecond\nthird\nlast\n", _START_NS + 2 * 10**9)
    assert merge_logs(lines, _START_NS + 10**9 + 2, None)[0] == "third\nlast\n"


def test_what_is_no_line_of_a_pod_is_left_out() -> None:
    assert merge_logs(b"error: a container in pod b is waiting to start\n", 0, None) == ("", 0)


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    line = said([(_START_NS, "a", "x")]).replace(b"x\n", b"\xff 10%\r 20%\n")
    assert merge_logs(line, 0, None)[0] == "\ufffd 10%\r 20%\n"


def test_a_last_line_without_an_end_takes_nothing_of_the_next_pods() -> None:
    lines = said([(_START_NS, "a", "last"), (_START_NS + 1, "b", "first")]).replace(b"last\n", b"last")
    assert merge_logs(lines, 0, None)[0] == "last\nfirst\n"


@pytest.mark.parametrize(
    ("error", "is_cut"),
    [
        (b'error: container "node" in pod "b" is waiting to start: ContainerCreating\n', False),
        (b'error: pods "b" not found\n', False),
        (b'error: Get "https://n1:10250/containerLogs": dial tcp: i/o timeout\n', True),
        (
            b"half aerror: deadline exceeded (Client.Timeout or context cancellation while reading body)\n",
            True,
        ),
    ],
)
def test_what_was_cut_short_is_told_from_what_has_not_begun(error: bytes, is_cut: bool) -> None:
    lines = said([(_START_NS, "a", "error: of a job")])
    assert find_log_error(lines) == ""
    assert bool(find_log_error(lines + error)) is is_cut
