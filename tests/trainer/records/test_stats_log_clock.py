"""A clock that is set while a run goes on: its lines, rates and record go on as if nothing had happened."""

import time

import pytest

from gangway.trainer.records.stats_log import SessionClock


def test_it_begins_with_the_time_of_day() -> None:
    before = time.time()
    assert before - 1 <= SessionClock().now() <= time.time() + 1


@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
def test_a_jump_of_the_time_of_day_is_not_seen(monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    clock = SessionClock()
    before = clock.now()
    honest = time.time
    monkeypatch.setattr(time, "time", lambda: honest() + jump)
    assert 0 <= clock.now() - before < 60
