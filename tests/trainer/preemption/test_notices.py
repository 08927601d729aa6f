"""Notices travel through the node's file from the watcher to every worker."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gangway.trainer.preemption.notices import (
    HeldNotices,
    Interruption,
    Notice,
    Request,
    Watcher,
    notices_file,
    read_notices,
    write_notice,
)


def test_notices_are_read_in_the_order_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "notices.jsonl"
    assert read_notices(path) == []
    first = write_notice(path, "rebalance")
    second = write_notice(path, "spot-interruption", "2026-11-21T08:22:00Z")
    assert read_notices(path) == [first, second]
    assert (second.kind, second.deadline) == ("spot-interruption", "2026-11-21T08:22:00Z")
    assert first.seen_at <= second.seen_at


def test_only_a_rebalance_lets_the_run_go_on() -> None:
    kinds = ("spot-interruption", "lifecycle-terminate", "max-hours", "rebalance")
    assert [kind for kind in kinds if not Notice(kind, 0.0).stops] == ["rebalance"]  # type: ignore[arg-type]  # literals


def test_outside_the_launcher_there_is_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GANGWAY_NOTICES", raising=False)
    assert notices_file() is None
    assert read_notices(None) == []
    monkeypatch.setenv("GANGWAY_NOTICES", str(tmp_path / "x"))
    assert notices_file() == tmp_path / "x"


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def notices(tmp_path: Path) -> Path:
    return tmp_path / "notices.jsonl"


def signalled(notices: Path | None = None) -> Interruption:
    interruption = Interruption(notices).install()
    os.kill(os.getpid(), signal.SIGTERM)
    return interruption


def test_the_first_signal_is_the_cause() -> None:
    interruption = Interruption().install()
    assert not interruption.requested
    assert (interruption.request(), interruption.cause, interruption.waited_sec) == (Request.NOTHING, "", 0)
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
        os.kill(os.getpid(), number)
    assert interruption.requested
    assert (interruption.request(), interruption.cause) == (Request.STOP, "SIGTERM")
    waited = interruption.waited_sec
    os.kill(os.getpid(), signal.SIGTERM)
    assert interruption.waited_sec >= waited > 0, "counted from the first"


def test_a_notice_says_why_the_signal_came(notices: Path) -> None:
    write_notice(notices, "rebalance")
    notice = write_notice(notices, "spot-interruption", "2026-11-21T08:22:00Z")
    interruption = signalled(notices)
    assert interruption.cause == "spot-interruption"
    assert interruption.notice == notice


def test_a_rebalance_is_no_cause_of_a_stop(notices: Path) -> None:
    write_notice(notices, "rebalance")
    assert signalled(notices).cause == "SIGTERM"


def test_a_rebalance_asks_for_one_checkpoint_and_no_stop(notices: Path) -> None:
    interruption = Interruption(notices).install()
    assert interruption.request() == Request.NOTHING
    write_notice(notices, "rebalance")
    assert interruption.request() == Request.SAVE
    assert (interruption.requested, interruption.cause) == (False, "")
    assert interruption.notice is not None
    interruption.saved()
    assert interruption.request() == Request.NOTHING
    write_notice(notices, "rebalance")
    assert interruption.request() == Request.SAVE, "a second notice is another one"
    assert max(Request.SAVE, Request.STOP) == Request.STOP


def test_a_restarted_worker_does_not_save_for_an_old_notice(notices: Path) -> None:
    write_notice(notices, "rebalance")
    assert Interruption(notices).install().request() == Request.NOTHING


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Signals that the watcher would have sent."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr("gangway.trainer.preemption.notices.os.kill", lambda pid, number: sent.append((pid, number)))
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
    assert list(HeldNotices(held).poll()) == []


def test_a_line_is_a_kind_and_the_clouds_own_words_for_the_time(held: Path) -> None:
    held.write_text("host-maintenance Mon, 19 Sep 2026 18:29:47 GMT\nkind-of-tomorrow 1\nlifecycle-terminate\n")
    assert list(HeldNotices(held).poll()) == [
        ("host-maintenance", "Mon, 19 Sep 2026 18:29:47 GMT"),
        ("lifecycle-terminate", ""),
    ]


def test_a_file_that_nobody_writes_says_nothing(held: Path) -> None:
    held.write_text("spot-interruption\n")
    os.utime(held, (1, 1))
    with pytest.raises(OSError, match="not written for 60 s"):
        list(HeldNotices(held).poll())
    held.unlink()
    with pytest.raises(OSError, match="held"):
        list(HeldNotices(held).poll())


def test_an_interruption_stops_the_launcher_once(
    held: Path, signals: list[tuple[int, int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "notices.jsonl"
    watcher = Watcher(path, HeldNotices(held).poll, poll_sec=0.01)
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
    watcher = Watcher(tmp_path / "notices.jsonl", HeldNotices(held).poll, poll_sec=0.01)
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
