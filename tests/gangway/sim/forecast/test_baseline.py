"""The baseline: by hand, and how its season is chosen."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.sim.forecast.baseline import choose_season, seasonal_naive, source_index


@pytest.mark.parametrize(
    ("horizon", "season", "expected"),
    [
        (2, 4, [5, 6]),
        (4, 4, [5, 6, 7, 8]),
        (6, 4, [5, 6, 7, 8, 5, 6]),  # what lies beyond a season is as the last known one
        (3, 1, [8, 8, 8]),
    ],
)
def test_by_hand(horizon: int, season: int, expected: list[float]) -> None:
    assert seasonal_naive([1, 2, 3, 4, 5, 6, 7, 8], horizon, season) == expected


@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 50))
def test_the_source_is_known_whole_seasons_earlier_and_the_last_such(origin: int, step: int, season: int) -> None:
    source, target = source_index(origin, step, season), origin + step - 1
    assert source < origin
    assert (target - source) % season == 0
    assert source + season >= origin


@pytest.mark.parametrize(
    ("step", "season"),
    [
        (timedelta(hours=1), 24),
        (timedelta(minutes=5), 288),
        (timedelta(hours=12), 2),
        (timedelta(days=1), 7),
        (timedelta(hours=5), 1),
        (timedelta(days=7), 1),
    ],
)
def test_the_season_and_its_reason(step: timedelta, season: int) -> None:
    chosen, reason = choose_season(step)
    assert chosen == season
    assert reason.startswith({24: "a day", 288: "a day", 2: "a day", 7: "a week", 1: "none"}[season])
