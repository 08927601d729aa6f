"""What a job is at, as its nodes have left it: in a bucket, and in a run's own folder."""

import json
import shlex
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.testing import CliRunner

from gangway.cli.main import app
from gangway.components.core.findings import InputError
from gangway.components.core.job import Training
from gangway.finops.audit import state
from gangway.jobs.systemd.state import JobProgress, JobState, folder_lines, stack_lines
from gangway.runs.run_store import RunStore
from gangway.trainer.config.values.control import SWITCH_FILE, Bounds, ControlSettings, Mode, Objective, PolicyName
from gangway.trainer.launch.failures import add_failure, mark_leaving, start_state
from gangway.trainer.launch.node_state import JobFolder
from gangway.trainer.records.decisions import DecisionRecord
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
AT = "2026-01-02T12:00:00.000+00:00"
TOLD: dict[str, Any] = {
    **{"knob": "threads", "was": 4, "value": 3, "policy": "rules", "reason": "it waits"},
    **{"expected_gain": 0.1, "undone_if": "", "outcome": "done"},
}
STOPPED = {"id": "r-1", "status": "interrupted", "images": 1_000_000, "sessions": [{"end": "2026-01-02T12:00:00.500Z"}]}
REPORTED = {"version": 1, "images": 1_500_000, "time": 1_767_441_600}


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


def made(images: int, **more: Any) -> DecisionRecord:
    return DecisionRecord.model_validate({**TOLD, "at": AT, "images": images, **more})


def job(settings: ControlSettings | None, run_dir: str = "/fsx/runs/a job") -> dict[str, Any]:
    training = Training(config={}, run_dir=run_dir, controller=settings and settings.document())
    return {"training": training.model_dump(mode="json")}


@pytest.mark.parametrize("policy", get_args(PolicyName))
@pytest.mark.parametrize("mode", get_args(Mode))
@pytest.mark.parametrize("objective", get_args(Objective))
def test_the_job_says_who_decides(policy: PolicyName, mode: Mode, objective: Objective) -> None:
    asked = ControlSettings(policy=policy, mode=mode, objective=objective, bounds=Bounds(threads=(1, 2)))
    assert next(iter(stack_lines(job(asked), (), over=True))) == f"controller: {asked.choice}"


def test_a_stacks_job_with_a_controller_and_how_it_is_switched_off() -> None:
    decided = [made(1000 * place, verdict="kept", brought="it brought +9%") for place in range(1, 6)]
    first, head, *rest, last = stack_lines(job(ControlSettings(mode="observe")), decided, over=False)
    assert first == "controller: rules for time, observe"
    assert "5 decisions" in head
    assert [line.split(", ")[1] for line in rest] == ["3,000 images: threads 4 to 3", "4,000 images: threads 4 to 3",
                                                      "5,000 images: threads 4 to 3"]  # fmt: skip
    assert all(line.endswith("by rules: it waits; kept: it brought +9%") for line in rest)
    command = shlex.split(last.partition("sudo ")[2])
    assert command == [
        *("docker", "exec", "gangway-trainer", "python", "-m", "gangway.trainer"),
        *("control", "off", "--run-dir", "/fsx/runs/a job"),
    ]


def test_a_job_that_is_over_has_nothing_to_be_switched_and_one_without_a_controller_no_line() -> None:
    over = list(stack_lines(job(ControlSettings()), (), over=True))
    assert over == ["controller: rules for time, act", "  no decisions, from its record"]
    assert not list(stack_lines(job(None), (), over=False))
    assert not list(stack_lines(None, (), over=False))


def test_a_runs_words_are_short_and_do_nothing_to_a_terminal() -> None:
    lines = "\n".join(stack_lines(job(ControlSettings()), [made(1, reason="\x1b[31m" + "word " * 999)], over=True))
    assert "\x1b" not in lines
    assert len(lines) < 600


def log(folder: Path, *lines: dict[str, Any]) -> None:
    plain = {"time": 1.8e9, "session": 0}
    texts = [json.dumps({**plain, **line}) for line in lines]
    (folder / "stats.jsonl").write_text("\n".join([*texts, '{"event": "decision", "half']))


BEGUN = {"event": "controller", "images": 0, "settings": ControlSettings(policy="model").model_dump(mode="json")}
DECIDED = {"event": "decision", "images": 640, **TOLD}


def test_a_folder_says_it_by_its_own_log_and_whether_it_is_off(tmp_path: Path) -> None:
    log(tmp_path, {"images": 3}, BEGUN, DECIDED, {"event": "decision-kept", "images": 9, "knob": "threads", "value": 3,
                                                  "why": "it brought +9%"})  # fmt: skip
    first, _, decided, last = folder_lines(tmp_path, over=False)
    assert first == "controller: model for time, act"
    assert decided.endswith("640 images: threads 4 to 3, by rules: it waits; kept: it brought +9%")
    assert shlex.split(last)[-4:] == ["control", "off", "--run-dir", str(tmp_path)]
    (tmp_path / SWITCH_FILE).touch()
    first, *_, last = folder_lines(tmp_path, over=False)
    assert "switched off" in first
    assert shlex.split(last)[-4:-1] == ["control", "on", "--run-dir"]


def test_a_folder_without_a_controller_says_nothing_of_one(tmp_path: Path) -> None:
    assert not list(folder_lines(tmp_path, over=False))
    log(tmp_path, {"images": 3}, {"event": "resume", "images": 0})
    assert not list(folder_lines(tmp_path, over=False))


@pytest.mark.parametrize(
    "odd", [{**DECIDED, "time": "now"}, {**DECIDED, "was": None}, {"event": "decision"}, {**BEGUN, "settings": 5}]
)
def test_what_no_session_writes_is_refused(tmp_path: Path, odd: dict[str, Any]) -> None:
    log(tmp_path, odd)
    with pytest.raises(InputError, match=r"stats\.jsonl"):
        list(folder_lines(tmp_path, over=False))


def test_a_record_of_another_version_has_its_decisions(tmp_path: Path) -> None:
    newer = {**made(640).model_dump(), "mood": "bright"}
    record = {"id": "r-1", "status": "running", "images": 700, "decisions": [newer]}
    (tmp_path / "run.json").write_text(json.dumps(record))
    log(tmp_path, BEGUN)
    done = CliRunner().invoke(app, ["job", str(tmp_path)])
    assert done.exit_code == 0
    assert "record r-1: running, 700 images" in done.output
    assert "controller: model for time, act\n  no decisions, from its log\n" in done.output
    assert JobState.read(RunStore(tmp_path.as_uri())).decisions == (made(640),)


def test_a_stacks_state_and_its_newest_record_are_what_is_read(
    tmp_path: Path, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the job was started with, whatever the stack file says by now: the shipped one asks for no controller."""
    record = {"id": "r-1", "status": "interrupted", "images": 700, "decisions": [made(640).model_dump()]}
    (tmp_path / "run.json").write_text(json.dumps(record))
    outputs = {"run_bucket": "b", "runs_url": tmp_path.as_uri(), "job": job(ControlSettings(policy="learned"))}
    monkeypatch.setattr(state, "stack_outputs", lambda *_: outputs)
    done = CliRunner().invoke(app, ["job", str(repo / "stacks/Pulumi.aws-demo.yaml")])
    assert done.exit_code == 0, done.output
    assert "controller: learned for time, act\n  the last of 1 decision, from its record:\n" in done.output
    assert "640 images: threads 4 to 3, by rules: it waits; unjudged\n" in done.output
    assert (
        "sudo docker exec gangway-trainer python -m gangway.trainer control off --run-dir '/fsx/runs/a job'\n"
        in done.output
    )


def put_state(folder: Path, **files: object) -> JobState:
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return JobState.read(RunStore(folder.as_uri()))


def test_nothing_was_put_yet(tmp_path: Path) -> None:
    assert JobProgress.read(RunStore(tmp_path.as_uri())) is None
    found = put_state(tmp_path)
    assert (found.images, found.reported_at, found.is_over) == (0, None, False)


def test_of_a_session_that_never_stopped_its_progress_counts(tmp_path: Path) -> None:
    found = put_state(tmp_path, progress=REPORTED)
    assert (found.images, found.reported_at) == (1_500_000, datetime(2026, 1, 3, 12, tzinfo=UTC))
    assert not found.is_over
    assert any("1,500,000 images" in line for line in found.lines())


def test_the_newer_of_record_and_progress_counts(tmp_path: Path) -> None:
    """After a restart from a checkpoint there are fewer images again."""
    later = put_state(tmp_path, run=STOPPED, progress={**REPORTED, "images": 900_000})
    assert (later.images, later.reported_at) == (900_000, datetime(2026, 1, 3, 12, tzinfo=UTC))
    before = put_state(tmp_path, progress={**REPORTED, "time": 1_767_355_200})
    assert (before.images, before.reported_at) == (1_000_000, datetime(2026, 1, 2, 12, 0, 0, 500_000, tzinfo=UTC))
    assert before.progress is None


def test_progress_ends_no_job_and_begins_none(tmp_path: Path) -> None:
    assert not put_state(tmp_path, run=STOPPED, progress={**REPORTED, "images": 10**9, "status": "done"}).is_over
    done = put_state(tmp_path, run={**STOPPED, "status": "done"})
    assert done.is_over
    assert not any("1,500,000" in line for line in done.lines())


@pytest.mark.parametrize("change", [{"images": -1}, {"images": 10**40}, {"time": "soon"}, {"version": 2}])
def test_what_no_node_writes_is_told(tmp_path: Path, change: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"progress\.json: not a job's progress"):
        put_state(tmp_path, progress={**REPORTED, **change})
