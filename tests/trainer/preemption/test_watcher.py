"""The watcher beside a file as a machine keeps it (images/node/notices.py)."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from gangway.trainer.preemption.notices import read_notices
from gangway.trainer.preemption.watcher import NoticesFile, Watcher


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Signals that the watcher would have sent."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr("gangway.trainer.preemption.watcher.os.kill", lambda pid, number: sent.append((pid, number)))
    return sent


@pytest.fixture
def held(tmp_path: Path) -> Path:
    path = tmp_path / "held"
    path.write_text("")
    return path


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_quiet_machine_has_no_notices(held: Path) -> None:
    assert list(NoticesFile(held).poll()) == []


def test_a_line_is_a_kind_and_the_clouds_own_words_for_the_time(held: Path) -> None:
    held.write_text("host-maintenance Mon, 19 Sep 2026 18:29:47 GMT\nkind-of-tomorrow 1\nlifecycle-terminate\n")
    assert list(NoticesFile(held).poll()) == [
        ("host-maintenance", "Mon, 19 Sep 2026 18:29:47 GMT"),
        ("lifecycle-terminate", ""),
    ]


def test_a_file_that_nobody_writes_says_nothing(held: Path) -> None:
    held.write_text("spot-interruption\n")
    os.utime(held, (1, 1))
    with pytest.raises(OSError, match="not written for 60 s"):
        list(NoticesFile(held).poll())
    held.unlink()
    with pytest.raises(OSError, match="held"):
        list(NoticesFile(held).poll())


def test_an_interruption_stops_the_launcher_once(
    held: Path, signals: list[tuple[int, int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "notices.jsonl"
    watcher = Watcher(path, NoticesFile(held).poll, poll_sec=0.01)
    watcher.start()
    time.sleep(0.05)
    assert read_notices(path) == []
    held.write_text("rebalance 2026-11-21T08:00:00Z\n")
    wait_until(lambda: read_notices(path))
    time.sleep(0.05)
    assert signals == [], "a rebalance recommendation stops nothing"
    held.write_text("rebalance 2026-11-21T08:00:00Z\nspot-interruption 2026-11-21T08:22:00Z\n")
    watcher.join(10)
    assert not watcher.is_alive()
    assert signals == [(os.getpid(), signal.SIGTERM)]
    assert [notice.kind for notice in read_notices(path)] == ["rebalance", "spot-interruption"]
    assert capsys.readouterr().err.splitlines() == [
        "gangway: rebalance at 2026-11-21T08:00:00Z: saving once and continuing",
        "gangway: spot-interruption at 2026-11-21T08:22:00Z: saving and stopping",
    ]


def test_the_jobs_deadline_is_a_notice_too(signals: list[tuple[int, int]], tmp_path: Path) -> None:
    over_at = time.monotonic() + 0.05
    watcher = Watcher(tmp_path / "notices.jsonl", None, lambda: over_at - time.monotonic())
    watcher.start()
    watcher.join(10)
    assert signals == [(os.getpid(), signal.SIGTERM)]
    assert [notice.kind for notice in read_notices(tmp_path / "notices.jsonl")] == ["max-hours"]


def test_a_file_that_comes_late_is_missed_once_and_then_read(
    held: Path, signals: list[tuple[int, int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held.unlink()
    watcher = Watcher(tmp_path / "notices.jsonl", NoticesFile(held).poll, poll_sec=0.01)
    watcher.start()
    time.sleep(0.1)
    held.write_text("lifecycle-terminate\n")
    watcher.join(10)
    assert signals == [(os.getpid(), signal.SIGTERM)]
    assert capsys.readouterr().err.count("cannot see notices, trying on: FileNotFoundError") == 1


def test_whatever_goes_wrong_ends_no_watch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without its thread nobody hears of notices, or of the end of the job's hours."""
    asked = []

    def poll() -> list[Any]:
        asked.append(1)
        raise KeyError("Events")

    watcher = Watcher(tmp_path / "notices.jsonl", poll, poll_sec=0.01)
    watcher.start()
    wait_until(lambda: len(asked) > 3)
    assert watcher.is_alive()
    watcher.close()
    assert not watcher.is_alive()
    assert capsys.readouterr().err.count("cannot see notices, trying on: KeyError: 'Events'") == 1
