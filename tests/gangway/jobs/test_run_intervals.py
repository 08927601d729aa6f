"""When a job was on nodes: what is counted of a start that was killed, and what is no such file."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gangway.components.core.findings import InputError
from gangway.jobs import run_intervals
from gangway.jobs.base import Phase
from gangway.jobs.job_folder import OwnJobFolder
from gangway.jobs.job_folders import read_status, write_status
from gangway.jobs.run_intervals import RunningInterval, boot_stamp, end_interval, get_run_intervals, sec_since, used_sec
from gangway.jobs.serve import submit_once
from gangway.jobs.slurm.engine import SlurmEngine
from tests.gangway.jobs.slurm.conftest import pretended as pretended
from tests.gangway.jobs.test_contract import job


class Clocks:
    """Both of a machine's, moved by hand: `wall` jumps, `monotonic` counts the seconds for which it is awake."""

    def __init__(self) -> None:
        self.wall_sec, self.monotonic_sec = 1_800_000_000.0, 100.0

    def work(self, sec: float) -> None:
        self.wall_sec += sec
        self.monotonic_sec += sec


@pytest.fixture
def folder(tmp_path: Path) -> OwnJobFolder:
    return OwnJobFolder(tmp_path)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    made = Clocks()
    monkeypatch.setattr(time, "time_ns", lambda: round(made.wall_sec * 1e9))
    monkeypatch.setattr(time, "monotonic_ns", lambda: round(made.monotonic_sec * 1e9))
    return made


def test_what_has_ended_is_kept_and_what_goes_on_is_open(folder: OwnJobFolder, clocks: Clocks) -> None:
    assert get_run_intervals(folder, runs=True) == ()
    running = RunningInterval(folder, 2)
    clocks.work(5)
    running.update()
    end_interval(folder)
    running = RunningInterval(folder, 3)
    clocks.work(7)
    running.update()
    first, second = get_run_intervals(folder, runs=True)
    assert (first.nodes, second.nodes, second.end) == (2, 3, None)
    assert first.end == second.start == first.start + timedelta(seconds=5)
    assert used_sec([first, second], second.start + timedelta(days=1)) == 12


@pytest.mark.parametrize("jump_sec", [3600, -3600, 86_400 * 365])
def test_no_jump_of_the_clock_and_no_sleep_counts(folder: OwnJobFolder, clocks: Clocks, jump_sec: float) -> None:
    """A machine that sleeps wakes up with a wall clock that has gone on, and a monotonic one that has not."""
    running = RunningInterval(folder, 1)
    clocks.work(5)
    clocks.wall_sec += jump_sec
    clocks.work(7)
    running.update()
    (going_on,) = get_run_intervals(folder, runs=True)
    assert used_sec([going_on], going_on.start + timedelta(seconds=12 + jump_sec)) == 12
    (killed,) = get_run_intervals(folder, runs=False)
    assert used_sec([killed], killed.start) == 12
    end_interval(folder)
    assert get_run_intervals(folder, runs=False) == (killed,)


def test_one_that_was_killed_came_as_far_as_it_said(folder: OwnJobFolder, clocks: Clocks) -> None:
    running = RunningInterval(folder, 1)
    clocks.work(100)
    running.update()
    clocks.work(3)
    (killed,) = get_run_intervals(folder, runs=False)
    assert killed.end == killed.start + timedelta(seconds=100)
    end_interval(folder)
    assert get_run_intervals(folder, runs=True) == (killed,)
    end_interval(folder)
    assert get_run_intervals(folder, runs=True) == (killed,), "there is none to end"


@pytest.mark.parametrize(("touched_ms", "sec"), [(100_000, 99), (0, 0)])
def test_one_that_has_no_length_came_as_far_as_its_file_says(folder: OwnJobFolder, touched_ms: int, sec: float) -> None:
    """And no less than nothing, where the clock had gone back."""
    (folder.path / "on-nodes").write_text("1000 2\n")
    os.utime(folder.path / "on-nodes", ns=(touched_ms * 1_000_000,) * 2)
    (found,) = get_run_intervals(folder, runs=False)
    assert (used_sec([found], found.start), found.nodes) == (sec, 2)


def test_one_that_was_half_written_down_is_counted_once(folder: OwnJobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    RunningInterval(folder, 1).update()
    with monkeypatch.context() as killed:
        killed.setattr(os, "unlink", lambda *_, **__: (_ for _ in ()).throw(OSError("no")))
        with pytest.raises(OSError, match="no"):
            end_interval(folder)
    end_interval(folder)
    assert len(get_run_intervals(folder, runs=False)) == 1


def test_a_full_disk_leaves_what_was_there(folder: OwnJobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    RunningInterval(folder, 1)
    end_interval(folder)
    running = RunningInterval(folder, 2)
    before = folder.read("stretches")
    opened = os.open
    with monkeypatch.context() as full:
        full.setattr(os, "open", lambda path, flags, *rest, **named: opened(path, flags & ~os.O_CREAT, *rest, **named))
        running.update()
        with pytest.raises(OSError, match="No such file"):
            end_interval(folder)
    assert folder.read("stretches") == before
    end_interval(folder)
    assert [each.nodes for each in get_run_intervals(folder, runs=False)] == [1, 2]


@pytest.mark.parametrize("text", ["1 2\n", "a b c\n", "1 2 3 4\n", "1 99999999999999999999 1\n"])
def test_what_somebody_else_wrote_is_told(folder: OwnJobFolder, text: str) -> None:
    (folder.path / "stretches").write_text(text)
    with pytest.raises(InputError, match="not the run intervals of a job"):
        get_run_intervals(folder, runs=False)


DAY = 86_400.0
TOKEN = "0123456789abcdef" * 2


class BootClocks:
    """This machine's, as it is for the code: `ahead` of everybody's, `later` since the boot."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = self.later = 0.0
        self.boot = "this-boot"
        wall, since_boot = time.time, time.clock_gettime
        monkeypatch.setattr(time, "time", lambda: wall() + self.ahead)
        monkeypatch.setattr(time, "clock_gettime", lambda clock: since_boot(clock) + self.later)
        monkeypatch.setattr(run_intervals, "_boot", lambda: self.boot)


@pytest.fixture
def boot_clocks(monkeypatch: pytest.MonkeyPatch) -> BootClocks:
    return BootClocks(monkeypatch)


def set_by(boot_clocks: BootClocks, sec: float, *files: Path) -> None:
    """Somebody sets the clock. What a file says is as far off from it then as if it had been written so long ago."""
    boot_clocks.ahead += sec
    for file in files:
        before = file.stat().st_mtime - sec
        os.utime(file, (before, before))


def test_a_stamp_is_never_ahead_of_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    for now in (0.0006, 12.3456, 99.9999, 1_000_000.0005):
        monkeypatch.setattr(time, "clock_gettime", lambda clock, now=now: now)
        assert sec_since(boot_stamp()) == pytest.approx(0, abs=0.001)


def test_seconds_are_those_of_this_boot(boot_clocks: BootClocks) -> None:
    stamp = boot_stamp()
    boot_clocks.ahead, boot_clocks.later = DAY, 5.0
    assert sec_since(stamp) == pytest.approx(5, abs=1)
    boot_clocks.later = -5.0
    assert sec_since(stamp) is None
    boot_clocks.later, boot_clocks.boot = 5.0, "another"
    assert [sec_since(each) for each in (stamp, "", "another", "another x")] == [None] * 4


@pytest.fixture
def engine(pretended: Callable[[str, str], None], tmp_path: Path) -> SlurmEngine:
    return SlurmEngine(tmp_path / "queue")


@pytest.mark.parametrize("sec", [DAY, -DAY])
def test_the_last_word_of_a_job_is_awaited_for_its_time(
    engine: SlurmEngine, tmp_path: Path, boot_clocks: BootClocks, sec: float
) -> None:
    job_id = engine.submit(job("true"))
    assert "waiting for its script" in engine.status(job_id).reason, "Slurm knows it no more"
    set_by(boot_clocks, sec, tmp_path / "queue" / job_id / ".gone")
    boot_clocks.later = 80.0
    assert "waiting for its script" in engine.status(job_id).reason
    boot_clocks.boot = "after-a-reboot"
    assert "waiting for its script" in engine.status(job_id).reason
    boot_clocks.later = 80.0 + 89.0
    assert "waiting for its script" in engine.status(job_id).reason
    boot_clocks.later = 80.0 + 91.0
    assert engine.status(job_id).phase is Phase.FAILED


@pytest.mark.parametrize("sec", [DAY, -DAY])
def test_a_submit_is_given_up_after_its_time(
    engine: SlurmEngine, tmp_path: Path, boot_clocks: BootClocks, sec: float
) -> None:
    job_id = engine.submit(job("true"))
    folder = tmp_path / "queue" / job_id
    (folder / "slurm-id").unlink()
    own = OwnJobFolder(folder)
    write_status(own, replace(read_status(own), submitted_at=datetime.now(UTC) - timedelta(seconds=sec)))
    set_by(boot_clocks, sec, folder / ".submitted")
    boot_clocks.later = 350.0
    assert engine.status(job_id).reason == "being submitted"
    boot_clocks.later = 370.0
    assert engine.status(job_id).phase is Phase.FAILED


def test_a_submit_that_is_asked_for_again_is_known(tmp_path: Path, boot_clocks: BootClocks) -> None:
    assert submit_once(TOKEN, lambda: "a-1", tmp_path) == "a-1"
    set_by(boot_clocks, 2 * DAY, tmp_path / TOKEN)
    assert submit_once(TOKEN[::-1], lambda: "a-2", tmp_path) == "a-2"
    assert submit_once(TOKEN, lambda: "twice", tmp_path) == "a-1"
    boot_clocks.later = DAY + 1
    assert submit_once(TOKEN, lambda: "a-3", tmp_path) == "a-3", "it is forgotten"


def test_of_one_that_was_cut_off_before_a_reboot_nobody_knows(tmp_path: Path, boot_clocks: BootClocks) -> None:
    (tmp_path / TOKEN).write_text(f"{boot_stamp()}\n")
    boot_clocks.boot = "after-a-reboot"
    with pytest.raises(InputError, match="interrupted"):
        submit_once(TOKEN, lambda: "twice", tmp_path)
