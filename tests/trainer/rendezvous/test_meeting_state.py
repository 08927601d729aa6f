"""The state of a meeting as JSON: nothing is lost on its way, and what is no state is refused and runs nothing."""

import json
import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.rendezvous.meeting_state import MAX_BYTES, MeetingStateError, decode, encode

pytestmark = pytest.mark.attack("a network neighbour", "hostile bytes as the nodes' state")

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


@given(states())
def test_what_is_read_is_what_was_written(state: dict[str, Any]) -> None:
    content = encode(state)
    assert decode(content) == state
    assert encode(decode(content)) == content, "torchrun compares the bytes"
    later = encode({**state, "last_heartbeats": {k: t + timedelta(1) for k, t in state["last_heartbeats"].items()}})
    assert (later != content) == bool(state["last_heartbeats"])


def test_the_example_is_a_state() -> None:
    assert decode(json.dumps(VALID).encode())["participants"] == {("one", 7, 0): 0, ("two", 8, 0): 1}


class Attack:
    """Pickled, it touches a file where it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_is_refused_and_runs_nothing(protocol: int, tmp_path: Path) -> None:
    content = pickle.dumps(Attack(tmp_path / "run"), protocol)
    with pytest.raises(MeetingStateError):
        decode(content)
    assert not (tmp_path / "run").exists()
    pickle.loads(content)
    assert (tmp_path / "run").exists(), "the attack is one"


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
        decode(json.dumps({**VALID, name: value}).encode())


@pytest.mark.parametrize("name", VALID)
def test_a_state_is_whole(name: str) -> None:
    with pytest.raises(MeetingStateError):
        decode(json.dumps({key: value for key, value in VALID.items() if key != name}).encode())


@pytest.mark.parametrize(
    "content",
    [b"", b"null", b"[]", b"{", b"\xff\xfe", b"[" * 100_000, b'{"round":' * 100_000, b" " * (MAX_BYTES + 1)],
    ids=["empty", "null", "list", "half", "no text", "deep", "deep object", "long"],
)
def test_other_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(MeetingStateError):
        decode(content)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_in_the_same_way(content: bytes) -> None:
    with pytest.raises(MeetingStateError):
        decode(content)
