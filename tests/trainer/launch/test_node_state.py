"""The files in which a job's nodes speak to each other: whole, strict, and of no harm where they are damaged."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.launch.node_state import (
    Failure,
    Interval,
    JobFolder,
    NodeState,
    SpendingLimit,
    Standing,
    union_sec,
    used_sec,
)

SECONDS = st.floats(-1e9, 1e12, allow_nan=False)
STATES = st.builds(
    NodeState,
    standing=st.sampled_from(Standing),
    seen_at=SECONDS,
    boot_id=st.text("0123456789abcdef-", max_size=36),
    intervals=st.lists(st.builds(Interval, began=SECONDS, length_sec=st.floats(0, 1e9)), max_size=3).map(tuple),
    failures=st.lists(st.builds(Failure, at=SECONDS, code=st.integers(1, 255)), max_size=3).map(tuple),
    lost_at=st.lists(SECONDS, max_size=3).map(tuple),
)


@given(STATES)
def test_what_a_node_says_is_what_others_hear(state: NodeState) -> None:
    assert NodeState.model_validate_json(state.model_dump_json()) == state


def test_nodes_hear_each_other_and_nothing_is_left_behind(tmp_path: Path) -> None:
    one, two = JobFolder(tmp_path / "job", "one"), JobFolder(tmp_path / "job", "two.internal")
    assert (one.nodes(), one.over()) == ({}, None)
    said = NodeState(seen_at=1.0), NodeState(seen_at=2.0, standing=Standing.LEFT)
    one.write(said[0])
    two.write(said[1])
    assert one.nodes() == two.nodes() == {"one": said[0], "two.internal": said[1]}
    two.write_over(5)
    over = one.over()
    assert over is not None
    assert (over.code, over.node) == (5, "two.internal")
    one.forget_over()
    one.forget_over()
    assert two.over() is None
    two.note("told to leave", "stopping", None)
    assert sorted(path.name for path in (tmp_path / "job").iterdir()) == [
        "node-one.json",
        "node-two.internal.json",
        "node-two.internal.jsonl",
    ]


def test_all_nodes_that_were_up_have_cost_and_those_that_are_up_will() -> None:
    limit, hour = SpendingLimit(max_usd=100, usd_per_node_hour=10), (Interval(began=0, length_sec=3600),)
    left = NodeState(seen_at=3600, standing=Standing.LEFT, intervals=hour * 2)
    silent = NodeState(seen_at=3000, intervals=hour)
    up = NodeState(seen_at=3600, intervals=hour)
    nodes = {"left": left, "silent": silent, "one": up, "two": up}
    assert limit.spent_usd(nodes) == 50
    assert limit.left_sec(nodes, now=3600) == 50 / 10 / 2 * 3600
    assert limit.left_sec({"left": left}, now=3600) == 8 * 3600, "who asks is up"
    assert SpendingLimit(max_usd=40, usd_per_node_hour=10).left_sec(nodes, now=3600) < 0


GOOD = NodeState(seen_at=1.0).model_dump(mode="json")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b'{"seen_at": 1.0',
        json.dumps({**GOOD, "seen_at": "now"}).encode(),
        json.dumps({**GOOD, "seen_at": float("nan")}).encode(),
        json.dumps({**GOOD, "version": 2}).encode(),
        json.dumps({**GOOD, "command": "rm"}).encode(),
        json.dumps({**GOOD, "standing": "fine"}).encode(),
        json.dumps({**GOOD, "intervals": [{"began": 0.0, "length_sec": -1.0}]}).encode(),
        json.dumps({**GOOD, "failures": [{"at": 0.0, "code": True}]}).encode(),
        b" " * 1_000_001,
    ],
)
def test_a_damaged_file_is_told_once_and_left_out(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "node-bad.json").write_bytes(content)
    (tmp_path / "over.json").write_bytes(content)
    (tmp_path / "notes.txt").write_text("of somebody's")
    here = JobFolder(tmp_path, "good")
    here.write(NodeState(seen_at=1.0))
    for _ in range(2):
        assert list(here.nodes()) == ["good"]
        assert here.over() is None
    told = capsys.readouterr().err.splitlines()
    assert sorted(line.partition(" is damaged")[0] for line in told) == [
        f"gangway: {tmp_path}/node-bad.json",
        f"gangway: {tmp_path}/over.json",
    ]


def test_a_folder_that_cannot_be_written_ends_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    here = JobFolder(tmp_path / "file" / "job", "node")
    for _ in range(2):
        here.write(NodeState(seen_at=1.0))
        here.note("joined", "training", None)
        assert here.nodes() == {}
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2
    assert "other nodes cannot hear of this one" in told[0]


def test_a_name_is_a_files(tmp_path: Path) -> None:
    here = JobFolder(tmp_path, "../no de/\n")
    here.write(NodeState(seen_at=1.0))
    assert [path.name for path in tmp_path.iterdir()] == ["node-..-no-de--.json"]
    assert list(here.nodes()) == ["..-no-de--"]


INTERVALS = st.lists(
    st.builds(Interval, began=st.integers(0, 500).map(float), length_sec=st.integers(0, 80).map(float)), max_size=8
)


def nodes(*intervals: list[Interval]) -> dict[str, NodeState]:
    return {str(i): NodeState(seen_at=0, intervals=tuple(each)) for i, each in enumerate(intervals)}


@given(INTERVALS)
def test_a_second_counts_once_however_many_nodes_are_up(intervals: list[Interval]) -> None:
    """Against counting whole seconds one by one."""
    seconds = {second for each in intervals for second in range(int(each.began), int(each.began + each.length_sec))}
    assert union_sec(intervals) == len(seconds)


@given(INTERVALS, INTERVALS)
def test_nobodys_time_is_lost_and_no_time_without_nodes_counts(first: list[Interval], second: list[Interval]) -> None:
    used = used_sec(nodes(first, second))
    own = [sum(each.length_sec for each in intervals) for intervals in (first, second)]
    assert max(own) <= used <= sum(own)
    assert used >= union_sec([*first, *second])


@given(INTERVALS, st.floats(-1e6, 1e6, allow_nan=False))
def test_a_clock_that_jumps_changes_nothing_for_a_node_alone(intervals: list[Interval], jump: float) -> None:
    """Its launchers follow each other, though the clock says that they overlap."""
    apart, total = [], 0.0
    for each in intervals:
        apart.append(Interval(began=total, length_sec=each.length_sec))
        total += each.length_sec
    half = len(apart) // 2
    jumped = [*apart[:half], *(Interval(began=each.began + jump, length_sec=each.length_sec) for each in apart[half:])]
    assert used_sec(nodes(jumped)) >= total - 1e-6
    assert used_sec(nodes(jumped)) <= total + 1e-6
