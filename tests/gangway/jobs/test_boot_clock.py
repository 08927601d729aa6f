"""What has to wait for a time waits for as long, whoever sets the clock meanwhile: a day ahead, or back."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gangway.components.core.findings import InputError
from gangway.jobs import boot_clock
from gangway.jobs.base import Phase
from gangway.jobs.boot_clock import boot_stamp, sec_since
from gangway.jobs.job_folder import OwnJobFolder
from gangway.jobs.job_folders import read_status, write_status
from gangway.jobs.serve import submit_once
from gangway.jobs.slurm.engine import SlurmEngine
from tests.gangway.jobs.slurm.conftest import pretended as pretended
from tests.gangway.jobs.test_contract import job

DAY = 86_400.0
TOKEN = "0123456789abcdef" * 2


class Clocks:
    """This machine's, as it is for the code: `ahead` of everybody's, `later` since the boot."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = self.later = 0.0
        self.boot = "this-boot"
        wall, since_boot = time.time, time.clock_gettime
        monkeypatch.setattr(time, "time", lambda: wall() + self.ahead)
        monkeypatch.setattr(time, "clock_gettime", lambda clock: since_boot(clock) + self.later)
        monkeypatch.setattr(boot_clock, "_boot", lambda: self.boot)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


def set_by(clocks: Clocks, sec: float, *files: Path) -> None:
    """Somebody sets the clock. What a file says is as far off from it then as if it had been written so long ago."""
    clocks.ahead += sec
    for file in files:
        before = file.stat().st_mtime - sec
        os.utime(file, (before, before))


def test_a_stamp_is_never_ahead_of_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    for now in (0.0006, 12.3456, 99.9999, 1_000_000.0005):
        monkeypatch.setattr(time, "clock_gettime", lambda clock, now=now: now)
        assert sec_since(boot_stamp()) == pytest.approx(0, abs=0.001)


def test_seconds_are_those_of_this_boot(clocks: Clocks) -> None:
    stamp = boot_stamp()
    clocks.ahead, clocks.later = DAY, 5.0
    assert sec_since(stamp) == pytest.approx(5, abs=1)
    clocks.later = -5.0
    assert sec_since(stamp) is None
    clocks.later, clocks.boot = 5.0, "another"
    assert [sec_since(each) for each in (stamp, "", "another", "another x")] == [None] * 4


@pytest.fixture
def engine(pretended: Callable[[str, str], None], tmp_path: Path) -> SlurmEngine:
    return SlurmEngine(tmp_path / "queue")


@pytest.mark.parametrize("sec", [DAY, -DAY])
def test_the_last_word_of_a_job_is_awaited_for_its_time(
    engine: SlurmEngine, tmp_path: Path, clocks: Clocks, sec: float
) -> None:
    job_id = engine.submit(job("true"))
    assert "waiting for its script" in engine.status(job_id).reason, "Slurm knows it no more"
    set_by(clocks, sec, tmp_path / "queue" / job_id / ".gone")
    clocks.later = 80.0
    assert "waiting for its script" in engine.status(job_id).reason
    clocks.boot = "after-a-reboot"
    assert "waiting for its script" in engine.status(job_id).reason
    clocks.later = 80.0 + 89.0
    assert "waiting for its script" in engine.status(job_id).reason
    clocks.later = 80.0 + 91.0
    assert engine.status(job_id).phase is Phase.FAILED


@pytest.mark.parametrize("sec", [DAY, -DAY])
def test_a_submit_is_given_up_after_its_time(engine: SlurmEngine, tmp_path: Path, clocks: Clocks, sec: float) -> None:
    job_id = engine.submit(job("true"))
    folder = tmp_path / "queue" / job_id
    (folder / "slurm-id").unlink()
    own = OwnJobFolder(folder)
    write_status(own, replace(read_status(own), submitted_at=datetime.now(UTC) - timedelta(seconds=sec)))
    set_by(clocks, sec, folder / ".submitted")
    clocks.later = 350.0
    assert engine.status(job_id).reason == "being submitted"
    clocks.later = 370.0
    assert engine.status(job_id).phase is Phase.FAILED


def test_a_submit_that_is_asked_for_again_is_known(tmp_path: Path, clocks: Clocks) -> None:
    assert submit_once(TOKEN, lambda: "a-1", tmp_path) == "a-1"
    set_by(clocks, 2 * DAY, tmp_path / TOKEN)
    assert submit_once(TOKEN[::-1], lambda: "a-2", tmp_path) == "a-2"
    assert submit_once(TOKEN, lambda: "twice", tmp_path) == "a-1"
    clocks.later = DAY + 1
    assert submit_once(TOKEN, lambda: "a-3", tmp_path) == "a-3", "it is forgotten"


def test_of_one_that_was_cut_off_before_a_reboot_nobody_knows(tmp_path: Path, clocks: Clocks) -> None:
    (tmp_path / TOKEN).write_text(f"{boot_stamp()}\n")
    clocks.boot = "after-a-reboot"
    with pytest.raises(InputError, match="interrupted"):
        submit_once(TOKEN, lambda: "twice", tmp_path)
