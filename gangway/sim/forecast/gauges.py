"""A forecast as Prometheus gauges for a textfile collector, so that autoscalers (KEDA, HPA) scale ahead of demand."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from math import nan
from types import MappingProxyType

from gangway.sim.forecast.forecaster import Backtest, Forecast, Setting
from gangway.sim.forecast.series import Series

PREFIX = "gangway_forecast_"
GAUGES: Mapping[str, str] = MappingProxyType(
    {
        "value": "forecast, in the unit of the series",
        "baseline": "seasonal-naive forecast",
        "last_time_seconds": "time of the newest known value, seconds since 1970",
        "made_time_seconds": "time of the forecast, seconds since 1970",
        "last_value": "newest known value",
        "coverage": "share of true values inside the interval, in the back-test",
        "level": "share of true values that intervals aim to cover",
        "mae": "mean absolute error in the back-test",
        "skill": "1 - error / error of the baseline, in the back-test",
        "drift": "1: the forecasts' errors have changed",
    }
)
"""Help texts by name. All have the labels `series` and `of`."""
LABELS: Mapping[str, Sequence[str]] = MappingProxyType(
    {"value": ("ahead_seconds", "quantile"), "baseline": ("ahead_seconds",)}
)
"""Further labels."""


def exposition(
    series: Series, setting: Setting, model: Forecast, baseline: Forecast, tested: Backtest, now: datetime
) -> str:
    """Gauges `gangway_forecast_*`: values by series, subject, seconds ahead and quantile; accuracy. NaN: unknown."""
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry = CollectorRegistry()
    gauges = {
        name: Gauge(f"{PREFIX}{name}", text, ["series", "of", *LABELS.get(name, ())], registry=registry)
        for name, text in GAUGES.items()
    }
    for index in range(setting.horizon):
        ahead = f"{(index + 1) * series.step.total_seconds():g}"
        ends = (model.low[index], model.middle[index], model.high[index])
        for quantile, value in zip(setting.quantiles, ends, strict=True):
            gauges["value"].labels(series.name, series.of, ahead, f"{quantile:.6g}").set(value)
        gauges["baseline"].labels(series.name, series.of, ahead).set(baseline.middle[index])
    figures = {
        "last_time_seconds": series.find_time(model.origin - 1).timestamp(),
        "made_time_seconds": now.timestamp(),
        "last_value": series.values[model.origin - 1],
        "coverage": tested.model.coverage,
        "level": setting.level,
        "mae": tested.model.mae,
        "skill": tested.gain.value if tested.gain else nan,
        "drift": float(tested.drift.alarm is not None),
    }
    for name, value in figures.items():
        gauges[name].labels(series.name, series.of).set(value)
    return generate_latest(registry).decode()
