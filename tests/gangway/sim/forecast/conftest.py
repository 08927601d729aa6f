"""A history and two forecasts of it, by hand: no model is fitted."""

from datetime import UTC, datetime, timedelta

import pytest

from gangway.sim.forecast.accuracy import Drift, Judged, accuracy
from gangway.sim.forecast.forecaster import Backtest, Forecast, Setting
from gangway.sim.forecast.series import Series

START = datetime(2026, 12, 1, tzinfo=UTC)
SETTING = Setting(horizon=2, season=24, level=0.8)
MODEL = Forecast(4, (9.0, 9.0), (10.0, 11.0), (12.0, 12.0))
BASELINE = Forecast(4, (5.0, 5.0), (8.0, 8.0), (15.0, 15.0))


@pytest.fixture
def series() -> Series:
    return Series("jobs", START, timedelta(hours=1), (8.0, 9.0, 7.0, 8.0))


@pytest.fixture
def tested() -> Backtest:
    judged = [Judged((9.0, 9.0), (10.0, 11.0), (12.0, 12.0), (10.5, 13.0))]
    figures = accuracy(judged, SETTING.level)
    return Backtest((MODEL,), (BASELINE,), figures, figures, None, Drift(None, None, False, 5.0, 30))
