"""What people read of a job's nodes, out of files that the job's user may write anything into."""

import json
from pathlib import Path

import pytest

from trainer.launch.node_state import NodeState
from trainer.launch.nodes_said import LAUNCH_FOLDER, lines_of_nodes


def job_folder(run_dir: Path, name: str = "job") -> Path:
    folder = run_dir / LAUNCH_FOLDER / name
    folder.mkdir(parents=True)
    (folder / "node-a.json").write_text(NodeState(seen_at=1.0).model_dump_json(), "utf-8")
    return folder


@pytest.mark.parametrize(
    ("at", "said"), [(0, "1970-01-01 00:00 UTC"), (1e15, "1e+15 s after 1970"), (-1e300, "-1e+300 s after 1970")]
)
def test_any_moment_can_be_told(tmp_path: Path, at: float, said: str) -> None:
    over = {"version": 1, "code": 1, "node": "a", "at": at}
    (job_folder(tmp_path) / "over.json").write_text(json.dumps(over), "utf-8")
    assert list(lines_of_nodes(tmp_path))[-1] == f"  ended for all with exit code 1, a says, {said}"
