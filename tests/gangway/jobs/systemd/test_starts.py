"""Starts of a stack's command: as own-node.sh notes them, and what is read out of them."""

import os
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gangway.images.render import TEMPLATES
from gangway.jobs.base import RunInterval
from gangway.jobs.systemd.starts import count_failures, count_starts, get_run_intervals, read_starts
from gangway.runs.run_store import RunStore, StoreFailedError

NODE = TEMPLATES / "job" / "own-node.sh"
KEY = "0123456789ab"


def at(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


@pytest.fixture
def noted(tmp_path: Path) -> Callable[..., RunStore]:
    """A run folder with such starts: name behind the key -> line."""

    def write(starts: dict[str, str], key: str = KEY) -> RunStore:
        folder = tmp_path / "run" / ".starts"
        folder.mkdir(parents=True, exist_ok=True)
        for name, line in starts.items():
            (folder / f"{key}.{name}").write_text(line)
        return RunStore((tmp_path / "run").as_uri())

    return write


def run_node(root: Path, script: str, **env: str) -> int:
    """A start of a command, as a node's container has it."""
    (root / "run").mkdir(exist_ok=True)
    words = ["/bin/sh", str(NODE), str(root / "held"), str(root / "run/.launch" / KEY), "", "1", "60"]
    variables = {"GANGWAY_RUN_DIR": str(root / "run"), "GANGWAY_NOTICES": str(root / "notices.jsonl"), **env}
    return subprocess.run(
        [*words, "--", "sh", "-c", script],
        env={**os.environ, **variables},
        capture_output=True,
        timeout=60,
        check=False,
    ).returncode


def test_each_start_of_a_node_is_noted_with_its_end(tmp_path: Path) -> None:
    assert run_node(tmp_path, "exit 75", GANGWAY_CAPACITY="spot") == 75
    (start,) = read_starts(RunStore((tmp_path / "run").as_uri()), KEY)[0]
    assert (start.node, start.code, start.failed, start.round) == (os.uname().nodename, 75, False, "")
    assert start.capacity == "spot"
    assert start.began <= start.last


def test_failures_are_noted_as_they_count(tmp_path: Path) -> None:
    (tmp_path / "run/.launch" / KEY).mkdir(parents=True)
    (tmp_path / "run/.launch" / KEY / "failures").write_text("1\n")
    assert run_node(tmp_path, "exit 9") == 5
    (start,) = read_starts(RunStore((tmp_path / "run").as_uri()), KEY)[0]
    assert (start.code, start.failed, start.capacity) == (5, True, "")


def test_a_command_that_is_at_work_is_noted_as_begun(tmp_path: Path) -> None:
    assert run_node(tmp_path, f'cat "$GANGWAY_RUN_DIR"/.starts/{KEY}.* >"$GANGWAY_RUN_DIR/seen"') == 0
    last, of_round, capacity = (tmp_path / "run/seen").read_text().split()
    assert int(last) > 0
    assert (of_round, capacity) == ("-", "-")


def test_rounds_of_several_nodes_are_one_time_each(noted: Callable[..., RunStore]) -> None:
    starts, problems = read_starts(
        noted(
            {
                "a.7.10": "100 0 spot 75",
                "b.c.7.12": "90 0 spot 75",
                "a.7.110": "200 1 on-demand 1 failed",
                "b.c.7.111": "190 1 on-demand 1 failed",
            }
        ),
        KEY,
    )
    assert not problems
    assert [start.node for start in starts] == ["a", "b.c", "a", "b.c"]
    assert (count_starts(starts), count_failures(starts)) == (2, 1)
    assert get_run_intervals(starts) == (
        RunInterval(at(10), at(12), 1),
        RunInterval(at(12), at(90), 2),
        RunInterval(at(90), at(100), 1),
        RunInterval(at(110), at(111), 1),
        RunInterval(at(111), at(190), 2),
        RunInterval(at(190), at(200), 1),
    )


def test_nodes_that_do_not_meet_begin_each_by_itself(noted: Callable[..., RunStore]) -> None:
    starts, _ = read_starts(noted({"a.7.10": "100 - - 0", "b.7.10": "90 - - 1 failed", "b.7.91": "95 - -"}), KEY)
    assert (count_starts(starts), count_failures(starts)) == (3, 1)
    assert [start.code for start in starts] == [0, 1, None]


def test_another_commands_starts_are_none_of_it(noted: Callable[..., RunStore]) -> None:
    noted({"a.7.10": "100 - - 0"}, key="ba9876543210")
    assert read_starts(noted({"a.7.20": "30 - - 0"}), KEY)[0][0].began == at(20)


@pytest.mark.parametrize("line", ["", "20", "9 - - 0", "20 - - 1000", "20 x - 0", "20 - - 0 lost", "a - -"])
def test_what_is_no_start_is_told_and_counts_for_nothing(noted: Callable[..., RunStore], line: str) -> None:
    starts, problems = read_starts(noted({"a.7.10": line, "b.7.10": "20 - - 0"}), KEY)
    assert [start.node for start in starts] == ["b"]
    assert problems == [f".starts/{KEY}.a.7.10: not a start"]


def test_whoever_writes_much_there_is_told(noted: Callable[..., RunStore]) -> None:
    with pytest.raises(StoreFailedError, match="more than"):
        read_starts(noted({"a.7.10": "1" * 5000}), KEY)
