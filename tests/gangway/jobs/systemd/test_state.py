"""What a job is at, as its nodes have left it: in a bucket, and in a run's own folder."""

import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gangway.cli.main import app
from gangway.components.core.findings import InputError
from gangway.jobs.systemd.state import JobState
from gangway.runs.run_store import RunStore
from gangway.trainer.launch.failures import add_failure, mark_leaving, start_state
from gangway.trainer.launch.node_state import JobFolder
from gangway.trainer.rendezvous.lifecycle import Event

SESSION = {"end": "2026-01-02T12:00:00Z", "more": 1}
RECORD = {"id": "r-1", "status": "interrupted", "images": 1_234_000, "sessions": [SESSION], "more": {}}
END = {
    "version": 1,
    "run_id": "r-1",
    "stack": "s",
    "node": "n",
    "code": 5,
    "reason": "too-many-failures",
    "time": "2026-01-02T12:01:00Z",
}


def told_of(folder: Path) -> str:
    done = CliRunner().invoke(app, ["job", str(folder)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0
    return done.output


def test_a_run_of_which_nothing_is_there_yet(tmp_path: Path) -> None:
    assert told_of(tmp_path) == f"run in {tmp_path.as_uri()}\nno record yet: nodes write it when the trainer stops\n"


def test_its_record_and_its_end(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(RECORD))
    (tmp_path / "ended.json").write_text(json.dumps(END))
    said = told_of(tmp_path)
    assert "record r-1: interrupted, 1,234,000 images, 2026-01-02 12:00 UTC" in said
    assert "the job ended on n, 2026-01-02 12:01 UTC: too-many-failures, exit code 5" in said


def test_each_node_and_what_it_did_last(tmp_path: Path) -> None:
    now, folder = time.time(), tmp_path / ".launch" / "key"
    here, gone = JobFolder(folder, "node-0"), JobFolder(folder, "node-1")
    here.write(add_failure(start_state(None, now, "boot").state, now, 1))
    here.note(Event.JOINED.value, "training", None)
    gone.write(mark_leaving(start_state(None, now - 100, "boot").state))
    said = told_of(tmp_path)
    assert "  node-0: going on, seen 0 s ago, 1 failures within six hours; enough nodes have met: training\n" in said
    assert "  node-1: left, seen 100 s ago\n" in said
    assert "exit code" not in said
    gone.write_over(5)
    assert "ended for all with exit code 5, node-1 says" in told_of(tmp_path)


@pytest.mark.parametrize("event", list(Event))
def test_every_event_is_words_that_a_terminal_may_have(tmp_path: Path, event: Event) -> None:
    folder = JobFolder(tmp_path / ".launch" / "key", "a")
    folder.write(start_state(None, time.time(), "boot").state)
    folder.note(event.value, "training", None)
    assert f"; {event.value}: training\n" in told_of(tmp_path)
    folder.note("\x1b[31m", "training", None)
    assert "31m" not in told_of(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", '{"id": "r", "status": "\x1b[31m", "images": 3}'])
def test_what_is_no_record_is_told(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(InputError, match=r"run\.json: not a record"):
        JobState.read(RunStore(tmp_path.as_uri()))
