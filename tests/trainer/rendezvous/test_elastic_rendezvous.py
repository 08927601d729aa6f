"""The state of a meeting as JSON: nothing is lost on its way, and what is no state is refused and runs nothing."""

import json
import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.launch import launcher
from gangway.trainer.rendezvous.elastic_rendezvous import (
    MAX_BYTES,
    MeetingStateError,
    decode_state,
    encode_state,
    meeting_argv,
)
from tests.hostile import Attack

hostile = pytest.mark.attack("a network neighbour", "hostile bytes as the nodes' state")

NODES = st.tuples(st.text(min_size=1, max_size=20), st.integers(0, 2**31), st.integers(0, 2**31))
TIMES = st.datetimes(datetime(1970, 1, 2), datetime(2199, 1, 1), timezones=st.just(UTC))
VALID: dict[str, Any] = {
    "round": 1,
    "complete": True,
    "deadline": None,
    "closed": False,
    "participants": [[["one", 7, 0], 0], [["two", 8, 0], 1]],
    "wait_list": [["three", 9, 0]],
    "redundancy_list": [],
    "last_heartbeats": [[["one", 7, 0], 5], [["two", 8, 0], 5], [["three", 9, 0], 5]],
}


@st.composite
def states(draw: st.DrawFn) -> dict[str, Any]:
    nodes = draw(st.lists(NODES, unique=True, max_size=8))
    lists = draw(st.lists(st.sampled_from("pwr"), min_size=len(nodes), max_size=len(nodes)))
    where = dict(zip(nodes, lists, strict=True))
    return {
        "round": draw(st.integers(0, 2**40)),
        "complete": draw(st.booleans()),
        "deadline": draw(st.none() | TIMES),
        "closed": draw(st.booleans()),
        "participants": {node: draw(st.integers(0, 9)) for node in nodes if where[node] == "p"},
        "wait_list": {node for node in nodes if where[node] == "w"},
        "redundancy_list": {node for node in nodes if where[node] == "r"},
        "last_heartbeats": {node: draw(TIMES) for node in nodes},
    }


@hostile
@given(states())
def test_what_is_read_is_what_was_written(state: dict[str, Any]) -> None:
    content = encode_state(state)
    assert decode_state(content) == state
    assert encode_state(decode_state(content)) == content, "torchrun compares the bytes"
    later = encode_state(
        {**state, "last_heartbeats": {k: t + timedelta(1) for k, t in state["last_heartbeats"].items()}}
    )
    assert (later != content) == bool(state["last_heartbeats"])


@hostile
def test_the_example_is_a_state() -> None:
    assert decode_state(json.dumps(VALID).encode())["participants"] == {("one", 7, 0): 0, ("two", 8, 0): 1}


@hostile
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_is_refused_and_runs_nothing(protocol: int, tmp_path: Path) -> None:
    content = pickle.dumps(Attack(tmp_path / "run"), protocol)
    with pytest.raises(MeetingStateError):
        decode_state(content)
    assert not (tmp_path / "run").exists()
    pickle.loads(content)
    assert (tmp_path / "run").exists(), "the attack is one"


@hostile
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("round", True),
        ("round", "1"),
        ("round", 1.0),
        ("round", -1),
        ("round", 10**400),
        ("complete", 1),
        ("closed", "false"),
        ("deadline", "2026-01-01T00:00:00Z"),
        ("deadline", float("nan")),
        ("deadline", 10**18),
        ("participants", {}),
        ("participants", [["one", 0]]),
        ("participants", [[["one", 7, 0], "0"]]),
        ("participants", [[["one", 7, 0], 1 << 20]]),
        ("participants", [[["one", 7, 0], 0], [["one", 7, 0], 1]]),  # stands twice
        ("participants", [[["stranger", 7, 0], 0]]),  # no heartbeat
        ("wait_list", [["one", 7, 0]]),  # takes part already
        ("wait_list", [["three", 9]]),
        ("wait_list", [["three", 9, 0, 0]]),
        ("wait_list", [["", 9, 0]]),
        ("wait_list", [["x" * 2000, 9, 0]]),
        ("redundancy_list", None),
        ("last_heartbeats", []),
        ("last_heartbeats", [[["one", 7, 0], 5], [["one", 7, 0], 6]]),
        ("more", 1),
    ],
)
def test_what_is_no_state_is_refused(name: str, value: object) -> None:
    with pytest.raises(MeetingStateError):
        decode_state(json.dumps({**VALID, name: value}).encode())


@hostile
@pytest.mark.parametrize("name", VALID)
def test_a_state_is_whole(name: str) -> None:
    with pytest.raises(MeetingStateError):
        decode_state(json.dumps({key: value for key, value in VALID.items() if key != name}).encode())


@hostile
@pytest.mark.parametrize(
    "content",
    [b"", b"null", b"[]", b"{", b"\xff\xfe", b"[" * 100_000, b'{"round":' * 100_000, b" " * (MAX_BYTES + 1)],
    ids=["empty", "null", "list", "half", "no text", "deep", "deep object", "long"],
)
def test_other_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(MeetingStateError):
        decode_state(content)


@hostile
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_in_the_same_way(content: bytes) -> None:
    with pytest.raises(MeetingStateError):
        decode_state(content)


HOSTS = ["10.0.0.1", "10.0.0.2"]


def test_one_chip_needs_no_launcher_and_one_host_no_meeting() -> None:
    assert meeting_argv(1, ["10.0.0.1"]) == []
    assert meeting_argv(4, ["10.0.0.1"], key="job.pem") == ["--standalone", "--nproc-per-node=4"]


def test_hosts_meet_at_the_first_of_the_first_slice() -> None:
    assert "--rdzv-endpoint=10.0.0.1:29400" in meeting_argv(4, HOSTS)
    several = meeting_argv(4, ["10.0.1.1", "10.0.1.2"], 3, "10.0.0.1:8080")
    assert "--rdzv-endpoint=10.0.0.1:29400" in several
    assert "--nnodes=6" in several


def test_with_a_key_they_meet_by_it_and_not_as_torchrun_would() -> None:
    argv = meeting_argv(4, HOSTS, key="job.pem")
    assert argv[:2] == ["--member-key", "job.pem"], "the launcher's own flags come before torchrun's"
    assert "--rdzv-backend=gangway" in argv
    assert "--rdzv-backend=c10d" in meeting_argv(4, HOSTS)


def test_the_launcher_reads_that_key(capfd: pytest.CaptureFixture[str]) -> None:
    """A file that is not there ends the run before anybody is met; a run without one is warned of."""
    argv = [
        *meeting_argv(1, HOSTS, key="/no/such/job.pem"),
        "-m",
        "gangway.trainer",
        "train",
        "--preset",
        "dcgan-digits",
    ]
    assert launcher.main(argv) == 2
    assert "/no/such/job.pem" in capfd.readouterr().err
