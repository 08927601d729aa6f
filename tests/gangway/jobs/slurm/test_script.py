"""Folders in which somebody else has written, or a disk has lost what was there: a row that says so, and all others."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gangway.jobs.base import Phase
from gangway.jobs.job_folder import UnreadableError
from gangway.jobs.slurm.engine import SlurmEngine
from tests.gangway.jobs.test_contract import job

STATES = "printf '7|{1}|RUNNING|None|gangway:%s/case-1\\n8|{1}|PENDING|Priority|gangway:%s/case-2\\n' {0} {0}"


@pytest.fixture
def engine(pretended: Callable[[str, str], None], tmp_path: Path) -> SlurmEngine:
    """With two jobs, one of which runs."""
    engine = SlurmEngine(tmp_path / "queue")
    for number in (7, 8):
        pretended("sbatch", f"echo {number}")
        engine.submit(job("true"))
    pretended("squeue", STATES.format(tmp_path / "queue", os.geteuid()))
    return engine


@pytest.mark.parametrize("name", ["slurm-id", "starts", "started", "end", "failures", "nodes"])
@pytest.mark.parametrize(
    "content", [b"\0" * 20, b"x1\n", b"\xff\xfe\n", b"done x 1\n", b"lost 0 1000\n", b"done 0 9" * 20]
)
def test_a_damaged_file_hides_no_other_job(engine: SlurmEngine, tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / "queue" / "case-1" / name).write_bytes(content)
    first, second = engine.jobs()
    assert (first.id, second.id, second.phase) == ("case-1", "case-2", Phase.WAITING)
    if name in ("nodes", "failures"):
        return  # any words are names; and failures are asked for below
    assert first.phase is Phase.UNREADABLE
    assert str(tmp_path / "queue" / "case-1" / name) in first.reason
    with pytest.raises(UnreadableError):
        engine.status("case-1")


@pytest.mark.parametrize("at", ["9" * 18, "9" * 14])
def test_a_time_that_is_none_is_unreadable(engine: SlurmEngine, tmp_path: Path, at: str) -> None:
    (tmp_path / "queue" / "case-1" / "end").write_text(f"done 0 {at}\n")
    (tmp_path / "queue" / "case-1" / "started").write_text("9" * 18)
    assert [each.phase for each in engine.jobs()] == [Phase.UNREADABLE, Phase.WAITING]


def test_failures_that_are_no_number_are_unreadable(engine: SlurmEngine, tmp_path: Path) -> None:
    assert engine.get_stored_job("case-1").failures == 0
    (tmp_path / "queue" / "case-1" / "failures").write_text("1\n")
    assert engine.get_stored_job("case-1").failures == 1
    (tmp_path / "queue" / "case-1" / "failures").write_text("x\n")
    with pytest.raises(UnreadableError, match="failures"):
        engine.get_stored_job("case-1")


@pytest.mark.parametrize(
    ("line", "phase", "code", "reason"),
    [
        ("done 0 1700000000000 \n", Phase.DONE, 0, ""),
        ("failed 4 1700000000000 not fit: n1\n", Phase.FAILED, 4, "not fit: n1"),
        ("bad-input 2 1700000000000 it would fail again\n", Phase.BAD_INPUT, 2, "it would fail again"),
    ],
)
def test_an_end_is_read_as_the_script_writes_it(
    engine: SlurmEngine, tmp_path: Path, line: str, phase: Phase, code: int, reason: str
) -> None:
    (tmp_path / "queue" / "case-1" / "end").write_text(line)
    found = engine.status("case-1")
    assert (found.phase, found.exit_code, found.reason) == (phase, code, reason)
    assert found.ended_at is not None
    assert found.ended_at.year == 2023
