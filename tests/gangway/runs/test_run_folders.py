"""Lines of stats.jsonl: whole ones are read, odd ones are named with their number, none makes a traceback."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.runs.run_folders import read_stats

TICK: dict[str, Any] = {
    "images": 512,
    "kimg": 0.5,
    "session": 0,
    "loss_g": 1.0,
    "energy": {"cpu": [1.0, "measured", "x"]},
}
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*TICK, "event"]), inner, max_size=5),
    max_leaves=8,
)


def test_whole_lines_are_read_and_the_one_being_written_is_not(tmp_path: Path) -> None:
    path = tmp_path / "stats.jsonl"
    assert read_stats(path) == ()
    event = {"event": "start", "images": 0, "session": 0}
    path.write_text(f"{json.dumps(event)}\n\n{json.dumps(TICK)}\n{{")
    assert read_stats(path) == (event, TICK)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ([1], "not a JSON object"),
        ({"a": 1}, "images is not a number"),
        ({**TICK, "session": None}, "session is not a number"),
        ({**TICK, "kimg": float("nan")}, "kimg is not a number"),
        ({**TICK, "session": [0]}, "session is not a number"),
        ({**TICK, "kimg": "0.5"}, "kimg is not a number"),
        ({**TICK, "loss_g": "1"}, "loss_g is not a number"),
        ({**TICK, "energy": 5}, "energy is not by device"),
        ({**TICK, "energy": {"cpu": 5}}, "energy is not joules"),
        ({**TICK, "energy": {"cpu": ["1", "measured", "x"]}}, "energy is not joules"),
        ({**TICK, "event": 5}, "event is not text"),
    ],
)
def test_an_odd_line_is_named(tmp_path: Path, line: object, why: str) -> None:
    path = tmp_path / "stats.jsonl"
    path.write_text(f"{json.dumps(TICK)}\n{json.dumps(line)}\n")
    with pytest.raises(InputError, match=rf"stats.jsonl: line 2: is not a line of a run: {why}"):
        read_stats(path)


def test_a_line_without_what_is_drawn_is_named(tmp_path: Path) -> None:
    path = tmp_path / "stats.jsonl"
    whole = {**TICK, "loss_d": None, "world_size": 1}
    path.write_text(f"{json.dumps(whole)}\n{json.dumps(TICK)}\n")
    assert len(read_stats(path, ("loss_g",))) == 2
    with pytest.raises(InputError, match=r"stats.jsonl: line 2: is not a line of a run: missing loss_d, world_size"):
        read_stats(path, ("loss_g", "loss_d", "world_size"))


@given(JSON)
def test_whatever_stands_there_is_a_line_or_a_mistake(tmp_path_factory: pytest.TempPathFactory, line: object) -> None:
    path = tmp_path_factory.mktemp("run") / "stats.jsonl"
    path.write_text(json.dumps(line) + "\n")
    with suppress(InputError):
        (read,) = read_stats(path)
        assert "event" in read or {"images", "session", "kimg"} <= read.keys()
