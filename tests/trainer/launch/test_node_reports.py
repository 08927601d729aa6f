"""What people read of a job's nodes, out of files that the job's user may write anything into."""

import json
from pathlib import Path

import pytest

from gangway.trainer.launch.node_reports import LAUNCH_FOLDER, lines_of_nodes
from gangway.trainer.launch.node_state import NodeState


def job_folder(run_dir: Path, name: str = "job") -> Path:
    folder = run_dir / LAUNCH_FOLDER / name
    folder.mkdir(parents=True)
    (folder / "node-a.json").write_text(NodeState(seen_at=1.0).model_dump_json(), "utf-8")
    return folder


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (0, "1970-01-01 00:00 UTC"),
        (1e15, "1e+15 s after 1970"),
        (1e18, "1e+18 s after 1970"),
        (-1e300, "-1e+300 s after 1970"),
    ],
)
def test_any_moment_can_be_told(tmp_path: Path, at: float, said: str) -> None:
    over = {"version": 1, "code": 1, "node": "a", "at": at}
    (job_folder(tmp_path) / "over.json").write_text(json.dumps(over), "utf-8")
    assert list(lines_of_nodes(tmp_path))[-1] == f"  ended for all with exit code 1, a says, {said}"


@pytest.mark.attack("a job (uid 10001)", "names and words that act on the terminal of whoever looks")
def test_nothing_that_a_job_wrote_acts_on_a_terminal(tmp_path: Path) -> None:
    folder = job_folder(tmp_path, "job\x1b[31m\u202e")
    (folder / "node-a.jsonl").write_text(json.dumps({"event": "x\x1b[31m", "state": "y"}) + "\n", "utf-8")
    (folder / "node-b\x1b[31m.json").write_text(NodeState(seen_at=1.0).model_dump_json(), "utf-8")
    lines = list(lines_of_nodes(tmp_path))
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)
