"""How far a job is between two records: what counts, what is no node's, and that it ends nothing."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gangway.components.core.findings import InputError
from gangway.jobs.systemd.state import JobProgress, JobState
from gangway.runs.run_store import RunStore

RECORD = {"id": "r-1", "status": "interrupted", "images": 1_000_000, "sessions": [{"end": "2026-01-02T12:00:00.500Z"}]}
PROGRESS = {"version": 1, "images": 1_500_000, "time": 1_767_441_600}


def state(folder: Path, **files: object) -> JobState:
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return JobState.read(RunStore(folder.as_uri()))


def test_nothing_was_put_yet(tmp_path: Path) -> None:
    assert JobProgress.read(RunStore(tmp_path.as_uri())) is None
    found = state(tmp_path)
    assert (found.images, found.reported_at, found.is_over) == (0, None, False)


def test_of_a_session_that_never_stopped_its_progress_counts(tmp_path: Path) -> None:
    found = state(tmp_path, progress=PROGRESS)
    assert (found.images, found.reported_at) == (1_500_000, datetime(2026, 1, 3, 12, tzinfo=UTC))
    assert not found.is_over
    assert any("1,500,000 images" in line for line in found.lines())


def test_the_newer_of_record_and_progress_counts(tmp_path: Path) -> None:
    """After a restart from a checkpoint there are fewer images again."""
    later = state(tmp_path, run=RECORD, progress={**PROGRESS, "images": 900_000})
    assert (later.images, later.reported_at) == (900_000, datetime(2026, 1, 3, 12, tzinfo=UTC))
    before = state(tmp_path, progress={**PROGRESS, "time": 1_767_355_200})
    assert (before.images, before.reported_at) == (1_000_000, datetime(2026, 1, 2, 12, 0, 0, 500_000, tzinfo=UTC))
    assert before.progress is None


def test_progress_ends_no_job_and_begins_none(tmp_path: Path) -> None:
    assert not state(tmp_path, run=RECORD, progress={**PROGRESS, "images": 10**9, "status": "done"}).is_over
    done = state(tmp_path, run={**RECORD, "status": "done"})
    assert done.is_over
    assert not any("1,500,000" in line for line in done.lines())


@pytest.mark.parametrize("change", [{"images": -1}, {"images": 10**40}, {"time": "soon"}, {"version": 2}])
def test_what_no_node_writes_is_told(tmp_path: Path, change: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"progress\.json: not a job's progress"):
        state(tmp_path, progress={**PROGRESS, **change})
