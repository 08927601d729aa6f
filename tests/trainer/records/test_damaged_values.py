"""Lines of stats.jsonl that are whole, have all keys, and hold what no session writes: a fuzzer's finds."""

import json
from pathlib import Path
from typing import Any

import pytest

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.records.summary import summarise


@pytest.fixture
def run_dir(repo: Path, tmp_path: Path) -> Path:
    """A recorded run's folder."""
    recorded = repo / "tests/gangway/report/comparison/recorded"
    record = json.loads((recorded / "run.json").read_text("utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(record["config"]), "utf-8")
    (tmp_path / "stats.jsonl").write_bytes((recorded / "stats.jsonl").read_bytes())
    return tmp_path


def damage(run_dir: Path, event: str | None, changes: dict[str, Any]) -> None:
    """Changes the first line of that event; None for the last line of statistics."""
    path = run_dir / "stats.jsonl"
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    of_event = [line for line in lines if line.get("event") == event]
    of_event[0 if event else -1].update(changes)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


def test_the_recorded_run_has_a_record(run_dir: Path) -> None:
    assert summarise(run_dir).images > 0


@pytest.mark.parametrize(
    ("event", "changes"),
    [
        (None, {"loss_g": "x"}),
        (None, {"loss_g": 10**400}),
        (None, {"energy": 5}),
        (None, {"energy": {"node0/cpu": ["a", "b"]}}),
        (None, {"time": 1e300}),
        (None, {"time": 1e18}),
        (None, {"images": 10**400}),
        (None, {"cpu_utilisation": "much"}),
        ("start", {"num_nodes": "two"}),
        ("start", {"context": []}),
    ],
)
def test_a_value_of_nobodys_is_a_damaged_file(run_dir: Path, event: str | None, changes: dict[str, Any]) -> None:
    damage(run_dir, event, changes)
    with pytest.raises(TrainerError, match=r"stats\.jsonl: is damaged: a line holds a value that no session writes"):
        summarise(run_dir)


@pytest.mark.parametrize("number", [10**9, -1, 0.5, 10**400])
def test_a_session_of_an_impossible_number_is_a_line_that_cannot_be_read(run_dir: Path, number: float) -> None:
    """One of 10^9 took gigabytes for the names of those before it."""
    first = (run_dir / "stats.jsonl").read_text("utf-8").splitlines()[0]
    line = json.dumps({**json.loads(first), "session": number})
    with (run_dir / "stats.jsonl").open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    assert any("1 unreadable line(s)" in note for note in summarise(run_dir).notes)


@pytest.mark.parametrize(
    "line", [b'{"event": [], "images": 1, "time": 1, "session": 0}', b'{"images": ' + b"9" * 5000 + b"}"]
)
def test_a_line_of_nobodys_is_one_that_cannot_be_read(run_dir: Path, line: bytes) -> None:
    path = run_dir / "stats.jsonl"
    path.write_bytes(path.read_bytes() + line + b"\n")
    assert any("1 unreadable line(s)" in note for note in summarise(run_dir).notes)
