"""When a job was on nodes: what is counted of a start that was killed, and what is no such file."""

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

from gangway.components.core.findings import InputError
from gangway.jobs.job_folder import OwnJobFolder
from gangway.jobs.run_intervals import RunningInterval, end_interval, get_run_intervals, used_sec


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
