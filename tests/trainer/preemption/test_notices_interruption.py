"""Signals become one request to stop, a rebalance one request to save; a notice is the cause where there is one."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangway.trainer.preemption.notices import Interruption, Request, write_notice


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
