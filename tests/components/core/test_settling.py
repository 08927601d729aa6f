"""Settling: when it waits, when it does not, and what it says meanwhile."""

from typing import Any

import pytest
from pulumi.dynamic.dynamic import serialize_provider

from gangway.components.core import settling
from gangway.components.core.settling import SettlingProvider

PROPS = {"what": "the cloud heeds the roles of demo", "awaited": ["/a for me on /there"], "seconds": 70.0}


class Clock:
    """Time that passes only where somebody sleeps."""

    def __init__(self) -> None:
        self.now, self.slept = 1000.0, list[float]()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    stand_in = Clock()
    monkeypatch.setattr(settling, "time", stand_in)
    return stand_in


def test_it_waits_when_it_is_made_and_says_so_every_half_minute(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    made = SettlingProvider().create(dict(PROPS))
    assert (clock.slept, made.outs) == ([30, 30, 10], PROPS)
    assert capsys.readouterr().out.splitlines() == [
        f"waiting until the cloud heeds the roles of demo: {left} s of 70 left" for left in (70, 40, 10)
    ]


def test_what_is_made_anew_is_waited_for_anew(clock: Clock) -> None:
    provider, news = SettlingProvider(), {**PROPS, "awaited": ["/a for somebody else on /there"]}
    found = provider.diff("id", dict(PROPS), news)
    assert (found.changes, found.replaces) == (True, [])
    assert provider.update("id", dict(PROPS), news).outs == news
    assert sum(clock.slept) == 70


@pytest.mark.parametrize("news", [{**PROPS, "seconds": 10.0}, {**PROPS, "what": "others"}])
def test_another_number_of_seconds_is_for_the_next_time(clock: Clock, news: dict[str, Any]) -> None:
    provider = SettlingProvider()
    assert provider.diff("id", dict(PROPS), news).changes is True
    assert provider.update("id", dict(PROPS), news).outs == news
    assert clock.slept == []


def test_nothing_new_is_nothing_to_do() -> None:
    assert SettlingProvider().diff("id", {**PROPS, "__provider": "x"}, {**PROPS, "__provider": "y"}).changes is False


def test_no_wait_at_all(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    SettlingProvider().create({**PROPS, "seconds": 0.0})
    assert (clock.slept, capsys.readouterr().out) == ([], "")


def test_state_gets_a_reference_to_the_provider_and_no_secret() -> None:
    assert SettlingProvider.serialize_as_secret_always is False
    assert len(serialize_provider(SettlingProvider())) < 200
