"""What is the same on every engine: a log that is followed while the engine is away now and then, or read once."""

from dataclasses import asdict, fields
from datetime import UTC, datetime
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import Severity
from gangway.components.core.safe_text import leaves
from gangway.jobs.base import (
    LOG_PART_BYTES,
    EngineAwayError,
    JobStatus,
    Move,
    Phase,
    Room,
    Usage,
    after,
    follow,
    read_log,
    rendezvous_findings,
    restart_limit,
    wait_until_over,
)
from gangway.jobs.job_folders import LOG_FILE
from gangway.jobs.local.engine import LocalQueue
from gangway.stacks.config.job_file import JobFile
from tests.gangway.jobs.local.test_engine import processes_of
from tests.gangway.jobs.test_contract import job, limited


class _Blips(LocalQueue):
    """Every second question for a log has no answer."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._answers = cycle((False, True))

    def log(self, job_id: str, offset: int = 0) -> tuple[str, int]:
        if not next(self._answers):
            raise EngineAwayError("--on", "no answer")
        return super().log(job_id, offset)


@pytest.mark.slow
@pytest.mark.parametrize("script", ["echo one; echo two", "echo one; sleep 0.5; echo two"])
def test_a_log_is_followed_through_blips(tmp_path: Path, script: str) -> None:
    queue = _Blips(tmp_path / "queue")
    job_id, pause = queue.submit(job(script)), limited()
    assert "".join(follow(queue, job_id, lambda: pause(queue.status(job_id)))) == "one\ntwo\n"


@pytest.mark.slow
def test_a_job_that_loses_its_process_while_it_is_followed_is_taken_up(tmp_path: Path) -> None:
    queue, pause = LocalQueue(tmp_path / "queue"), limited()
    job_id = queue.submit(job("test -e seen && echo again && exit 0; touch seen; echo begun; sleep 600"))
    text = ""
    for part in follow(queue, job_id, lambda: pause(queue.status(job_id))):
        text += part
        if "again" not in text and "begun" in text:
            for process in processes_of(tmp_path):
                process.kill()
    assert text == "begun\nagain\n"
    assert queue.status(job_id).phase is Phase.DONE


class _Grows(LocalQueue):
    """The job writes a line before each answer."""

    asked = 0

    def log(self, job_id: str, offset: int = 0) -> tuple[str, int]:
        self.asked += 1
        with (self._folder / job_id / LOG_FILE).open("a") as file:
            file.write("one more\n")
        return super().log(job_id, offset)


@pytest.mark.slow
@pytest.mark.parametrize(
    "before",
    ["", "one\n", "x" + "é" * 1_250_000, "x" * LOG_PART_BYTES],
    ids=["nothing", "a line", "parts that end within letters", "just a part"],
)
def test_what_a_job_has_written_has_an_end_though_it_writes_on(tmp_path: Path, before: str) -> None:
    queue, pause = _Grows(tmp_path / "queue"), limited()
    job_id = queue.submit(job("true"))
    wait_until_over(queue, job_id, pause)
    (tmp_path / "queue" / job_id / LOG_FILE).write_text(before)
    text = "".join(islice(read_log(queue, job_id), 20))
    assert text.startswith(before)
    assert set(text.removeprefix(before).splitlines()) == {"one more"}
    assert queue.asked < 20


def test_no_text_of_a_status_moves_a_cursor_or_makes_a_line() -> None:
    """Of whatever engine, and whoever has written it: each text of each record is spelled out as it is made."""
    odd, kinds = "\x1b]0;t\x07\u202ea\nb\tc", {"datetime": datetime.now(UTC), "int": 1, "float": 1.0, "bool": True}

    def made(kind: type) -> Any:
        known = {"phase": Phase.WAITING, "used": Usage(), "stretches": (), "moves": (), "nodes": (odd, odd)}
        return kind(
            **{
                each.name: known.get(each.name, kinds.get(str(each.type).partition(" ")[0], odd))
                for each in fields(kind)
            }
        )

    records = [made(kind) for kind in (JobStatus, Move, Room)]
    texts = [text for record in records for text in leaves(asdict(record)) if isinstance(text[1], str)]
    assert len(texts) > 12
    assert not [text for place, text in texts if not text.isprintable()]


COMMAND, PRESET = {"command": ("true",)}, {"preset": "dcgan-digits", "kimg": 1}


@pytest.mark.parametrize(
    ("keys", "warned"),
    [
        ({}, False),
        ({"processes_per_node": 1}, False),
        ({"processes_per_node": 2}, True),
        ({"processes_per_node": 1, "nodes": {"min": 1, "max": 2}}, True),
        ({"nodes": {"min": 2, "max": 2}}, False),
        ({**PRESET, "processes_per_node": 2, "nodes": {"min": 2, "max": 2}}, False),
    ],
)
def test_a_command_whose_processes_meet_without_a_key_is_warned_of(keys: dict[str, object], warned: bool) -> None:
    file = JobFile.model_validate({"name": "case", "max_hours": 1, **({} if "preset" in keys else COMMAND), **keys})
    found = list(rendezvous_findings(file, "its neighbours"))
    assert [each.code for each in found] == ["job.rendezvous-without-key"] * warned
    assert all("its neighbours" in each.message and each.severity is Severity.WARNING for each in found)


@given(st.lists(st.integers(0, 255), max_size=40), st.integers(0, 5), st.booleans())
def test_a_job_is_begun_again_until_it_is_over_and_failures_alone_count(
    codes: list[int], most: int, other_nodes: bool
) -> None:
    failures = 0
    for code in codes:
        step = after(code, failures, most, other_nodes=other_nodes)
        is_failure = code not in (0, 2, 3, 4, 5, 6, 75)
        assert step.failures == failures + is_failure
        assert (step.phase is Phase.DONE) == (code == 0)
        assert (step.phase is Phase.BAD_INPUT) == (code == 2)
        if code == 75:
            assert step.phase is None
        if is_failure:
            assert (step.phase is Phase.FAILED) == (step.failures > most)
        if code == 4:
            assert (step.phase is None) == other_nodes
        assert step.phase in (None, Phase.DONE) or step.reason
        failures = step.failures


@pytest.mark.parametrize(("hours", "failures", "most"), [(0.1, 0, 20), (6, 2, 26), (6.1, 0, 25)])
def test_interruptions_have_an_end_too(hours: float, failures: int, most: int) -> None:
    """Four an hour, and also of a short job 20."""
    assert restart_limit(job("true", max_hours=hours, max_restarts=failures)) == most
