"""Gauges: what Prometheus reads back is what was forecast."""

from dataclasses import replace
from datetime import UTC, datetime

from prometheus_client.parser import text_string_to_metric_families

from gangway.sim.forecast.forecaster import Backtest, Forecast, Setting
from gangway.sim.forecast.gauges import exposition
from gangway.sim.forecast.series import Series

NOW = datetime(2026, 12, 1, 4, 30, tzinfo=UTC)
SETTING = Setting(horizon=2, season=24, level=0.8)
MODEL = Forecast(4, (9.0, 9.0), (10.0, 11.0), (12.0, 12.0))
BASELINE = Forecast(4, (5.0, 5.0), (8.0, 8.5), (15.0, 15.0))


def test_what_is_read_back(series: Series, tested: Backtest) -> None:
    text = exposition(series, SETTING, MODEL, BASELINE, tested, NOW)
    samples = {
        (
            each.name.removeprefix("gangway_forecast_"),
            *(value for name, value in sorted(each.labels.items()) if name != "of"),
        ): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }
    values = {key[1:3]: value for key, value in samples.items() if key[0] == "value"}
    assert values == {
        ("3600", "0.1"): 9, ("3600", "0.5"): 10, ("3600", "0.9"): 12,
        ("7200", "0.1"): 9, ("7200", "0.5"): 11, ("7200", "0.9"): 12,
    }  # fmt: skip
    assert (samples["baseline", "3600", "jobs"], samples["baseline", "7200", "jobs"]) == (8, 8.5)
    assert samples["last_value", "jobs"] == 8
    assert samples["last_time_seconds", "jobs"] == datetime(2026, 12, 1, 3, tzinfo=UTC).timestamp()
    assert samples["made_time_seconds", "jobs"] == NOW.timestamp()
    assert (samples["mae", "jobs"], samples["coverage", "jobs"], samples["drift", "jobs"]) == (1.25, 0.5, 0)
    assert samples["skill", "jobs"] != samples["skill", "jobs"], "NaN: the baseline never erred"


def test_two_series_of_one_name_are_told_apart(series: Series, tested: Backtest) -> None:
    """As in one folder of textfiles, where nothing may stand twice."""
    texts = [exposition(replace(series, of=of), SETTING, MODEL, BASELINE, tested, NOW) for of in ("p3/a", "g4dn/b")]
    families = [family for text in texts for family in text_string_to_metric_families(text)]
    samples = [(each.name, *sorted(each.labels.items())) for family in families for each in family.samples]
    assert len(samples) == len(set(samples)) > 0


def test_a_name_from_a_file_is_quoted(series: Series, tested: Backtest) -> None:
    text = exposition(replace(series, name='a"} 1\nx'), SETTING, MODEL, BASELINE, tested, NOW)
    names = {s.labels["series"] for family in text_string_to_metric_families(text) for s in family.samples}
    assert names == {'a"} 1\nx'}
