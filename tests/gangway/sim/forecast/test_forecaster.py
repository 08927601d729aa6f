"""The forecast: it never looks ahead, keeps its promises on noise, beats the baseline where there is something to
learn, and says what it cannot do.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from statistics import NormalDist
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gangway.components.core.findings import InputError
from gangway.sim.forecast import forecaster
from gangway.sim.forecast.accuracy import accuracy
from gangway.sim.forecast.forecaster import (
    Backtest,
    Forecast,
    Setting,
    adaptive_offsets,
    backtest,
    choose_season,
    choose_setting,
    exposition,
    fewest_scores,
    fit,
    forecast,
    get_offset,
    score,
    source_index,
)
from gangway.sim.forecast.series import Series
from gangway.sim.forecast.synthetic import simulate

START = datetime(2026, 1, 5, tzinfo=UTC)


def seasonal_naive(values: Sequence[float], horizon: int, season: int) -> list[float]:
    return [values[source_index(len(values), step, season)] for step in range(1, horizon + 1)]


def hourly(values: Sequence[float], step: timedelta = timedelta(hours=1)) -> Series:
    return Series("jobs", START, step, tuple(values))


@cache
def examined(kind: str) -> tuple[Series, Setting, Backtest]:
    series = simulate(kind, 24 * 21)
    setting = choose_setting(series, 12, None, 0.8)
    return series, setting, backtest(series, setting)


@pytest.mark.slow
def test_a_forecast_never_looks_ahead() -> None:
    """Another future changes no forecast that was made before it, nor its interval, nor the baseline."""
    series, setting, before = examined("grid")
    draw, kept = random.Random(1), len(series.values) - 40
    later = [draw.uniform(-1e4, 1e4) for _ in series.values[kept:]]
    after = backtest(replace(series, values=(*series.values[:kept], *later)), setting)
    same = [index for index, each in enumerate(before.forecasts) if each.origin <= kept]
    assert 10 < len(same) < len(before.forecasts)
    assert [after.forecasts[index] for index in same] == [before.forecasts[index] for index in same]
    assert [after.baseline[index] for index in same] == [before.baseline[index] for index in same]
    assert after.forecasts[-1] != before.forecasts[-1]


def test_what_is_published_is_what_a_longer_history_would_have_published_then() -> None:
    series, setting, _ = examined("grid")
    model, baseline = forecast(series.until(400), setting)
    assert model == forecast(replace(series.until(400)), setting)[0]
    assert (model.origin, baseline.origin) == (400, 400)
    assert list(baseline.middle) == seasonal_naive(series.values[:400], setting.horizon, setting.season)


@pytest.mark.parametrize("kind", ["grid", "interruptions"])
def test_quantiles_do_not_cross_and_nothing_goes_below_zero(kind: str) -> None:
    _, _, found = examined(kind)
    for each in (*found.forecasts, *found.baseline):
        assert all(0 <= a <= b <= c for a, b, c in zip(each.low, each.middle, each.high, strict=True))


def test_the_baseline_of_the_back_test_is_the_one_by_hand() -> None:
    series, setting, found = examined("grid")
    for each in found.baseline:
        assert list(each.middle) == seasonal_naive(series.values[: each.origin], setting.horizon, setting.season)
    whole = [each for each in found.baseline if each.origin + setting.horizon <= len(series.values)]
    errors = [
        abs(series.values[each.origin + index] - each.middle[index])
        for each in whole
        for index in range(setting.horizon)
    ]
    assert found.naive.mae == pytest.approx(sum(errors) / len(errors))
    assert found.naive.forecasts == len(whole)
    assert found.model == accuracy(
        [
            each.beside(series.values[each.origin : each.origin + setting.horizon])
            for each in found.forecasts[: len(whole)]
        ],
        setting.level,
    )


@pytest.mark.slow
def test_on_exchangeable_noise_intervals_hold_their_share() -> None:
    """Independent values, one step ahead: truths are independent of each other, so binomial bounds hold."""
    draw = random.Random(9)
    series = hourly([draw.gauss(100, 10) for _ in range(1200)])
    found = backtest(series, Setting(horizon=1, season=24, level=0.8))
    number = found.model.forecasts
    assert number >= 290
    for each in (found.model, found.naive):
        assert abs(each.coverage - 0.8) <= 4 * (0.8 * 0.2 / number) ** 0.5
    # The baseline repeats a noisy value; the best guess is the mean, which errs by less by a root of two.
    assert found.gain is not None
    assert found.gain.verdict == "better"


def test_what_repeats_exactly_is_the_baselines() -> None:
    series = hourly([float(hour % 24) for hour in range(24 * 20)])
    setting = Setting(horizon=6, season=24, level=0.8)
    model, baseline = forecast(series, setting)
    assert model.middle == baseline.middle == tuple(float(hour) for hour in range(6))
    assert backtest(series, setting).gain is None


def test_a_shift_of_the_level_is_seen_as_drift_and_stillness_is_not() -> None:
    draw = random.Random(10)
    noise = [draw.gauss(0, 1) for _ in range(700)]
    setting = Setting(horizon=1, season=1, level=0.8)
    still = backtest(hourly([100 + each for each in noise]), setting)
    # From here on each value lies above the one before, which no forecast of a stationary series expects.
    rising = backtest(hourly([100 + each + max(0, index - 600) * 4 for index, each in enumerate(noise)]), setting)
    assert still.drift.alarm is None
    assert rising.drift.alarm is not None
    assert rising.drift.upward


@pytest.mark.parametrize("step", [timedelta(minutes=30), timedelta(days=1), timedelta(hours=5)])
def test_other_steps_have_other_seasons(step: timedelta) -> None:
    draw = random.Random(12)
    series = hourly([50 + draw.gauss(0, 1) for _ in range(700)], step)
    setting = choose_setting(series, 4, None, 0.8)
    model, _ = forecast(series, setting)
    assert all(45 < each < 55 for each in model.middle)
    assert setting.season_reason


def test_too_short_a_history_says_how_much_is_needed_and_what_it_is_enough_for() -> None:
    series = hourly([1.0, 2.0] * 140)
    with pytest.raises(InputError) as refused:
        choose_setting(series, 24, None, 0.9)
    error = refused.value
    assert (error.value, error.allowed.split()[0]) == (280, str(Setting(24, 24, 0.9).fewest_values))
    hours = int(error.fix.removeprefix("--horizon ").partition("h")[0])
    assert choose_setting(series, hours, None, 0.9).horizon == hours
    with pytest.raises(InputError, match="too short"):
        choose_setting(series, hours + 1, None, 0.9)
    with pytest.raises(InputError) as refused:
        choose_setting(hourly([1.0] * 20), 1, None, 0.9)
    assert refused.value.fix.startswith("give ")


@pytest.mark.slow
@pytest.mark.parametrize(("horizon", "season", "level"), [(1, 1, 0.9), (7, 24, 0.9), (24, 7, 0.95), (30, 24, 0.5)])
def test_the_least_history_is_enough(horizon: int, season: int, level: float) -> None:
    """For every part of the work: fitting, calibrating, ten forecasts to test, drift."""
    setting = Setting(horizon, season, level)
    draw = random.Random(13)
    found = backtest(hourly([draw.gauss(0, 1) for _ in range(setting.fewest_values)]), setting)
    assert found.model.forecasts >= 10
    assert all(abs(value) < 1e6 for each in found.forecasts for value in (*each.low, *each.high))


@pytest.mark.slow
@pytest.mark.parametrize(("horizon", "season", "level"), [(48, 24, 0.99), (72, 24, 0.99), (2, 168, 0.5)])
@pytest.mark.parametrize("more", [0, 1, 37, 97])
def test_a_back_test_leaves_what_is_needed_to_learn_from(
    monkeypatch: pytest.MonkeyPatch, horizon: int, season: int, level: float, more: int
) -> None:
    """At the fewest values that are asked for, and just above: neither tests nor calibration take of it."""
    setting = Setting(horizon, season, level)
    learnt: list[int] = []

    def counted(series: Series, known: int, *others: Any) -> Any:
        learnt.append(known)
        return fit(series, known, *others)

    monkeypatch.setattr(forecaster, "fit", counted)
    draw = random.Random(14)
    found = backtest(hourly([draw.gauss(0, 1) for _ in range(setting.fewest_values + more)]), setting)
    assert min(learnt) >= setting.least_learnt
    assert found.model.forecasts >= 10


def test_what_has_gone_below_zero_lately_may_be_forecast_there() -> None:
    """Zero is the floor of what has never been below it, and of nothing else: a price falls below it for once."""
    draw = random.Random(15)
    noise = [draw.gauss(0, 2) for _ in range(600)]
    series = hourly([(40 if index < 520 else -40) + each for index, each in enumerate(noise)])
    model, baseline = forecast(series, Setting(horizon=6, season=24, level=0.8))
    assert max(model.middle) < -20
    assert max(baseline.middle) < -20
    earlier, _ = forecast(series.until(520), Setting(horizon=6, season=24, level=0.8))
    assert min(earlier.low) >= 0


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


NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60)


def test_the_offset_by_hand() -> None:
    """Of nine scores, 90 % takes the ninth of ten places; 50 % the fifth."""
    scores = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    assert (get_offset(scores, 0.9), get_offset(scores, 0.5), get_offset(scores, 0.0)) == (9.0, 5.0, 1.0)
    assert fewest_scores(0.9) == 9


@given(NUMBERS, st.floats(0.5, 0.99), st.floats(0, 0.4))
def test_more_is_promised_by_wider_intervals(scores: list[float], level: float, less: float) -> None:
    ordered = sorted(scores)
    assert get_offset(ordered, level) >= get_offset(ordered, level - less)


@given(st.integers(-99, 99), st.integers(0, 99), st.integers(-300, 300), st.integers(-99, 99))
def test_a_truth_is_within_the_moved_interval_when_its_score_is_no_more(
    low: int, width: int, truth: int, moved: int
) -> None:
    high = low + width
    assert (score(low, high, truth) <= moved) == (low - moved <= truth <= high + moved)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
@pytest.mark.parametrize("heavy", [False, True], ids=["normal", "heavy tails"])
def test_coverage_on_exchangeable_data_is_the_level(level: float, heavy: bool) -> None:
    """From a wrong model (a constant, its interval of no width): 4,000 times 99 scores and a truth. (n + 1) level is
    a whole number, so coverage is the level exactly; within five binomial deviations.
    """
    draw, trials = random.Random(7), 4000

    def truth() -> float:
        value = draw.gauss(3, 2)
        return value**3 if heavy else value

    held = sum(score(0, 0, truth()) <= get_offset(sorted(score(0, 0, truth()) for _ in range(99)), level)
               for _ in range(trials))  # fmt: skip
    assert abs(held / trials - level) <= 5 * math.sqrt(level * (1 - level) / trials)


def test_the_adaptive_offsets_keep_the_level_on_noise_and_after_a_shift() -> None:
    draw, level, number = random.Random(3), 0.9, 6000
    for spread_later in (1.0, 4.0):
        scores = [abs(draw.gauss(0, 1 if index < number // 2 else spread_later)) for index in range(number)]
        offsets = adaptive_offsets(scores, level, delay=4)
        later = range(number // 2 + 200, number // 2 + 1200)
        held = sum(scores[index] <= offsets[index] for index in later) / len(later)
        plain = sorted(scores[: number // 2])
        without = sum(scores[index] <= get_offset(plain, level) for index in later) / len(later)
        assert abs(held - level) <= 5 * math.sqrt(level * (1 - level) / len(later))
        assert spread_later == 1 or without < 0.5, "or there was nothing to adapt to"


@given(NUMBERS, st.integers(1, 10), st.data())
def test_no_offset_knows_a_score_before_its_truth(scores: list[float], delay: int, data: st.DataObject) -> None:
    kept = data.draw(st.integers(0, len(scores)))
    changed = scores[:kept] + [value + 1 for value in scores[kept:]]
    told = kept + delay
    assert adaptive_offsets(scores, 0.9, delay)[:told] == adaptive_offsets(changed, 0.9, delay)[:told]
    assert adaptive_offsets(scores, 0.9, delay)[:delay] == [math.inf] * min(delay, len(scores))


def test_the_true_quantiles_are_left_alone() -> None:
    """A model that knows the distribution is moved by next to nothing."""
    draw, normal = random.Random(5), NormalDist()
    low, high = normal.inv_cdf(0.05), normal.inv_cdf(0.95)
    scores = sorted(score(low, high, draw.gauss(0, 1)) for _ in range(20_000))
    assert abs(get_offset(scores, 0.9)) < 0.05


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
