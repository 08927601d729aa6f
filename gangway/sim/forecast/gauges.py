"""A forecast as Prometheus gauges for a textfile collector, so that autoscalers (KEDA, HPA) scale ahead of demand."""

from collections.abc import Sequence
from datetime import datetime
from math import nan

from gangway.sim.forecast.forecaster import Backtest, Forecast, Setting
from gangway.sim.forecast.series import Series

__all__ = ["exposition"]


def exposition(
    series: Series, setting: Setting, model: Forecast, baseline: Forecast, tested: Backtest, now: datetime
) -> str:
    """Gauges `gangway_forecast_*`: values by series, subject, seconds ahead and quantile; accuracy. NaN: unknown."""
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry = CollectorRegistry()

    def gauge(name: str, help_text: str, labels: Sequence[str] = ()) -> Gauge:
        return Gauge(f"gangway_forecast_{name}", help_text, ["series", "of", *labels], registry=registry)

    values = gauge("value", "What will be, in the unit that the series' name has", ["ahead_seconds", "quantile"])
    naive = gauge("baseline", "The seasonal-naive forecast beside it", ["ahead_seconds"])
    for index in range(setting.horizon):
        ahead = f"{(index + 1) * series.step.total_seconds():g}"
        ends = (model.low[index], model.middle[index], model.high[index])
        for quantile, value in zip(setting.quantiles, ends, strict=True):
            values.labels(series.name, series.of, ahead, f"{quantile:.6g}").set(value)
        naive.labels(series.name, series.of, ahead).set(baseline.middle[index])
    single = {
        "last_time_seconds": ("When the newest value that it knows was measured", series.find_time(model.origin - 1)),
        "made_time_seconds": ("When it was made", now),
    }
    for name, (help_text, moment) in single.items():
        gauge(name, help_text).labels(series.name, series.of).set(moment.timestamp())
    figures = {
        "last_value": ("The newest value that it knows", series.values[model.origin - 1]),
        "coverage": ("Share of truths within the interval, in the back-test", tested.model.coverage),
        "level": ("Share of truths that intervals are to hold", setting.level),
        "mae": ("Mean absolute error in the back-test", tested.model.mae),
        "skill": ("1 - error / error of the baseline, in the back-test", tested.gain.value if tested.gain else nan),
        "drift": ("1: forecasts err otherwise than they did", float(tested.drift.alarm is not None)),
    }
    for name, (help_text, value) in figures.items():
        gauge(name, help_text).labels(series.name, series.of).set(value)
    return generate_latest(registry).decode()
