"""The seasonal-naive baseline (the value one season ago), and the choice of the season."""

from collections.abc import Sequence
from datetime import timedelta

from gangway.sim.forecast.series import said_length

__all__ = ["choose_season", "seasonal_naive", "source_index"]

_DAY, _WEEK = timedelta(days=1), timedelta(days=7)


def choose_season(step: timedelta) -> tuple[int, str]:
    """Steps in a season and the reason: a day if it has several steps, a week for daily steps, else 1: no season."""
    if step < _DAY and not _DAY % step:
        return _DAY // step, f"a day: steps of {said_length(step)} make one"
    if step == _DAY:
        return 7, "a week: a step is a day"
    return 1, f"none: steps of {said_length(step)} make no whole day, so the last value is the baseline"


def source_index(origin: int, step: int, season: int) -> int:
    """The index of the latest value a whole number of seasons before `step` (from 1) after `origin` values."""
    seasons = -(-step // season)
    return origin - 1 + step - seasons * season


def seasonal_naive(values: Sequence[float], horizon: int, season: int) -> list[float]:
    """Forecast `horizon` values, each as one season ago.

    >>> seasonal_naive([1, 2, 3, 11, 12, 13], 4, 3)
    [11, 12, 13, 11]
    """
    return [values[source_index(len(values), step, season)] for step in range(1, horizon + 1)]
