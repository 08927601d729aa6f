"""Forecasts a history with intervals, beside the baseline, and back-tests both from what was known at earlier times.

Forecast and back-test share one code path, so the back-test judges what is published.
"""

import math
from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf, nan
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from gangway.components.core.findings import InputError
from gangway.sim.forecast.accuracy import FEWEST, Accuracy, Drift, Judged, Skill, accuracy, detect, deviates, skill
from gangway.sim.forecast.series import Series, said_length

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Integers = npt.NDArray[np.int64]


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


ADAPTATION = 0.02
"""Change of the target level per truth; 0: plain split conformal."""


def score(low: float, high: float, truth: float) -> float:
    """Distance of the truth outside the interval; negative inside."""
    return max(low - truth, truth - high)


def fewest_scores(level: float) -> int:
    """The least number of earlier forecasts for the level.

    >>> fewest_scores(0.9), fewest_scores(0.95)
    (9, 19)
    """
    return math.ceil(level / (1 - level) - 1e-9)


def get_offset(scores: Sequence[float], level: float) -> float:
    """What to add on both sides. `scores`: ascending. The largest if the level needs more scores than there are."""
    rank = math.ceil((len(scores) + 1) * level - 1e-9)
    return scores[min(max(rank, 1), len(scores)) - 1]


def adaptive_offsets(scores: Sequence[float], level: float, delay: int) -> list[float]:
    """Each forecast's offset, from the scores known by then; infinite before. `delay`: forecasts until a truth, 1 or
    more.
    """
    missed, aimed = 1 - level, 1 - level
    known: list[float] = []
    offsets: list[float] = []
    for index in range(len(scores)):
        num_known = index - delay
        if num_known >= 0:
            outside = scores[num_known] > offsets[num_known]
            if math.isfinite(offsets[num_known]):
                aimed = min(max(aimed + ADAPTATION * (missed - outside), 0.0), 1.0)
            insort(known, scores[num_known])
        offsets.append(get_offset(known, 1 - aimed) if known else math.inf)
    return offsets


MOST_STEPS: Final = 2016
"""Ahead, and in a season: a week of five-minute steps."""
_ORIGINS_IN_HORIZON: Final = 8
_MOST_ORIGINS: Final = 400
"""For calibration, and for the test."""
_FEWEST_TESTED: Final = 10
_FEWEST_TO_LEARN: Final = 100
_REFITS: Final = 3


@dataclass(frozen=True)
class Setting:
    """What to forecast, in steps. `season`: period of the baseline; `level`: nominal coverage of the intervals."""

    horizon: int
    season: int
    level: float
    season_reason: str = "as told"

    @property
    def stride(self) -> int:
        """Steps between origins."""
        return max(1, self.horizon // _ORIGINS_IN_HORIZON)

    @property
    def overlapping(self) -> int:
        """Consecutive forecasts that cover times of the first."""
        return -(-self.horizon // self.stride)

    @property
    def quantiles(self) -> tuple[float, float, float]:
        """Of low, middle and high."""
        tail = (1 - self.level) / 2
        return tail, 0.5, 1 - tail

    @property
    def least_calibration(self) -> int:
        """Values after the training values whose forecasts set the width of the intervals."""
        return self.stride * (max(fewest_scores(self.level), FEWEST) + 1) + self.horizon

    @property
    def least_tested(self) -> int:
        """Values of the back-test."""
        return self.stride * _FEWEST_TESTED + self.horizon

    @property
    def least_learnt(self) -> int:
        """Values to fit a model to."""
        return lookback(self.season) + max(3 * self.season, _FEWEST_TO_LEARN) + self.horizon

    @property
    def fewest_values(self) -> int:
        """The shortest usable history."""
        return self.least_learnt + self.least_calibration + self.least_tested


@dataclass(frozen=True)
class Forecast:
    """A forecast after the first `origin` values, one value per step; low <= middle <= high."""

    origin: int
    low: tuple[float, ...]
    middle: tuple[float, ...]
    high: tuple[float, ...]

    def beside(self, truth: Sequence[float]) -> Judged:
        """Pair the forecast with its truth."""
        return Judged(self.low, self.middle, self.high, tuple(truth))


@dataclass(frozen=True)
class Backtest:
    """Model and baseline at earlier origins. `gain`: None if the baseline never errs; `drift`: of one-step errors."""

    forecasts: tuple[Forecast, ...]
    baseline: tuple[Forecast, ...]
    model: Accuracy
    naive: Accuracy
    gain: Skill | None
    drift: Drift


def choose_setting(series: Series, horizon: int, season: int | None, level: float) -> Setting:
    """Choose a setting, with its season if `season` is None. InputError: the history is too short."""
    chosen, reason = choose_season(series.step) if season is None else (season, "as told")
    setting = Setting(horizon, chosen, level, reason)
    number, required = len(series.values), setting.fewest_values
    if number < required:
        raise InputError(
            series.name,
            f"too short a history to look {horizon} steps ahead, and to test that",
            value=number,
            allowed=f"{required} values at least: {said_length(required * series.step)}"
            f" (a season of {chosen} steps, level {level:g})",
            fix=_longest_horizon(series, setting) or f"give {required - number} values more of its past",
        )
    return setting


def _longest_horizon(series: Series, setting: Setting) -> str | None:
    for horizon in range(setting.horizon - 1, 0, -1):
        if Setting(horizon, setting.season, setting.level).fewest_values <= len(series.values):
            hours = horizon * series.step.total_seconds() / 3600
            return f"--horizon {hours:.10g}h, or give more of its past"
    return None


def forecast(series: Series, setting: Setting) -> tuple[Forecast, Forecast]:
    """Forecast with model and baseline after the last value."""
    number = len(series.values)
    rolled = _roll(series, setting, number, number)
    return rolled.model[-1], rolled.baseline[-1]


def backtest(series: Series, setting: Setting) -> Backtest:
    """Back-test the last quarter of the history, at most 400 origins, with three fits on earlier values."""
    number, stride = len(series.values), setting.stride
    spare = number - setting.least_learnt - setting.least_calibration
    tested = max(setting.least_tested, min(number // 4, _MOST_ORIGINS * stride, spare))
    first = number - tested // stride * stride
    block = -(-(number - first) // (stride * _REFITS)) * stride
    rolls = [
        _roll(series, setting, begin, min(begin + block, number) - stride) for begin in range(first, number, block)
    ]
    model = [each for roll in rolls for each in roll.model]
    naive = [each for roll in rolls for each in roll.baseline]
    values, whole = series.values, number - setting.horizon

    def judged(forecasts: Sequence[Forecast]) -> list[Judged]:
        known = (each for each in forecasts if each.origin <= whole)
        return [each.beside(values[each.origin : each.origin + setting.horizon]) for each in known]

    of_model, of_naive = judged(model), judged(naive)
    return Backtest(
        forecasts=tuple(model),
        baseline=tuple(naive),
        model=accuracy(of_model, setting.level),
        naive=accuracy(of_naive, setting.level),
        gain=skill(of_model, of_naive, setting.overlapping),
        drift=detect([deviate for roll in rolls for deviate in roll.deviates]),
    )


@dataclass(frozen=True)
class _Rolled:
    """Forecasts of some origins; one-step errors as deviates from those that set the intervals."""

    model: tuple[Forecast, ...]
    baseline: tuple[Forecast, ...]
    deviates: tuple[float, ...]


def _roll(series: Series, setting: Setting, first: int, last: int) -> _Rolled:
    """Forecasts at every stride with one model, fitted before the calibration values that precede `first`."""
    import numpy as np

    stride = setting.stride
    spare = first - setting.least_learnt
    calibration = max(setting.least_calibration, min(first // 5, _MOST_ORIGINS * stride, spare)) // stride * stride
    learnt = first - calibration
    origins = np.arange(learnt, last + 1, stride)
    fitted = fit(series, learnt, setting.horizon, setting.season, setting.quantiles)
    sources = [
        [source_index(origin, step, setting.season) for step in range(1, setting.horizon + 1)]
        for origin in origins.tolist()
    ]
    naive = np.asarray(series.values)[np.asarray(sources)]
    minimum = np.minimum.accumulate(series.values)[origins - 1]
    floor = np.where(minimum >= 0, 0.0, -inf)[:, None]
    model, baseline = (
        _intervals(series, setting, origins, predicted, floor)
        for predicted in (fitted.predict(origins), np.repeat(naive[:, :, None], 3, axis=2))
    )
    before = calibration // stride
    known = (each for each in model if each.origin < len(series.values))
    errors = [series.values[each.origin] - each.middle[0] for each in known]
    return _Rolled(model[before:], baseline[before:], tuple(deviates(errors[before:], errors[:before])))


def _intervals(
    series: Series, setting: Setting, origins: "Integers", predicted: "Floats", floor: "Floats"
) -> tuple[Forecast, ...]:
    """Moves each step's interval by the misses of earlier forecasts. `floor`: lower bound of each origin's values."""
    import numpy as np

    values, number = series.values, len(series.values)
    adjusted = np.empty(predicted.shape[:2])
    for step in range(1, setting.horizon + 1):
        low, _, high = predicted[:, step - 1].T.tolist()
        at = [min(origin + step, number) - 1 for origin in origins.tolist()]  # of the last, another's truth: not used
        scores = [score(a, b, values[index]) for a, b, index in zip(low, high, at, strict=True)]
        adjusted[:, step - 1] = adaptive_offsets(scores, setting.level, -(-step // setting.stride))
    middle = predicted[:, :, 1]
    # A shrinking interval always contains its middle.
    low_ends = np.maximum(np.minimum(predicted[:, :, 0] - adjusted, middle), floor)
    high_ends = np.maximum(np.maximum(predicted[:, :, 2] + adjusted, middle), floor)
    rows = zip(origins.tolist(), low_ends.tolist(), np.maximum(middle, floor).tolist(), high_ends.tolist(), strict=True)
    return tuple(Forecast(origin, tuple(low), tuple(mid), tuple(high)) for origin, low, mid, high in rows)


# A forecast as Prometheus gauges for a textfile collector, so that autoscalers (KEDA, HPA) scale ahead of demand.

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


# Quantiles by gradient boosting on lags and calendar, relative to an anchor: the baseline plus its error at the origin,
# which decays with each step as it did in the past (a seasonal AR(1)).
#
# One model per quantile serves all steps, with the step as a feature: a row is a pair of origin (number of known
# values) and step. Trees cannot extrapolate, so all features are differences; targets are scaled by the mean error of
# their step, or the far steps would dominate.

_MOST_ROWS: Final = 12_000
"""Pairs of origin and step to learn from; beyond that a fixed random sample. Neighbours are nearly redundant."""
_SEED: Final = 0
_DAY_SEC, _WEEK_DAYS, _THURSDAY = 86_400, 7, 3
"""1 January 1970 was a Thursday, counted from Monday."""


def lookback(season: int) -> int:
    """Values that the features need before an origin."""
    return 2 * season + 1


@dataclass(frozen=True)
class QuantileBoosting:
    """Fitted models in the order of their quantiles."""

    series: Series
    horizon: int
    season: int
    fading: float
    weekly: bool
    scale: "Floats"
    models: tuple[Any, ...]

    def predict(self, origins: "Integers") -> "Floats":
        """Origins x steps x quantiles, sorted: that never makes quantiles worse (Chernozhukov et al., 2010)."""
        import numpy as np

        at = np.repeat(origins, self.horizon)
        ahead = np.tile(np.arange(1, self.horizon + 1), len(origins))
        features, anchor = _features(self.series, at, ahead, self.season, self.fading, self.weekly)
        scale = self.scale[ahead - 1]
        found = np.stack([anchor + scale * model.predict(features) for model in self.models], axis=1)
        return np.sort(found, axis=1).reshape(len(origins), self.horizon, len(self.models))


def fit(series: Series, known: int, horizon: int, season: int, quantiles: tuple[float, ...]) -> QuantileBoosting:
    """Fit to the first `known` values only; later ones serve as features of later origins."""
    import numpy as np
    from sklearn.ensemble import HistGradientBoostingRegressor

    origins = np.arange(lookback(season), known)
    at = np.repeat(origins, horizon)
    ahead = np.tile(np.arange(1, horizon + 1), len(origins))
    whole = at + ahead <= known
    at, ahead = at[whole], ahead[whole]
    if len(at) > _MOST_ROWS:
        drawn = np.sort(np.random.default_rng(_SEED).choice(len(at), _MOST_ROWS, replace=False))
        at, ahead = at[drawn], ahead[drawn]
    fading = _decay(series.values[:known], season)
    weekly = _week(series) < known - horizon
    features, anchor = _features(series, at, ahead, season, fading, weekly)
    rest = np.asarray(series.values)[at + ahead - 1] - anchor
    sums, counts = np.bincount(ahead, np.abs(rest)), np.bincount(ahead)
    scale = sums[1:] / counts[1:]
    scale[scale == 0] = 1.0  # an anchor that never errs
    models = (
        HistGradientBoostingRegressor(
            loss="quantile", quantile=quantile, learning_rate=0.05, max_iter=60, max_leaf_nodes=8,
            min_samples_leaf=150, l2_regularization=1.0, early_stopping=False, random_state=_SEED,
        ).fit(features, rest / scale[ahead - 1])
        for quantile in quantiles
    )  # fmt: skip
    return QuantileBoosting(series, horizon, season, fading, weekly, scale, tuple(models))


def _decay(values: Sequence[float], season: int) -> float:
    """The part of the baseline's error left a step later, 0 to 1: its autocorrelation about zero."""
    import numpy as np

    known = np.asarray(values)
    errors = known[season:] - known[:-season]
    power = float(np.sum(errors[:-1] ** 2))
    return min(max(float(np.sum(errors[1:] * errors[:-1])) / power, 0.0), 1.0) if power else 0.0


def _features(
    series: Series, at: "Integers", ahead: "Integers", season: int, fading: float, weekly: bool
) -> "tuple[Floats, Floats]":
    import numpy as np

    values = np.asarray(series.values, dtype=np.float64)
    target, last = at + ahead - 1, at - 1
    source = target - season * -(-ahead // season)
    base, now = values[source], values[last]
    # Cumulative sums make means over the last season cheap; later values change none of them.
    sums = np.concatenate([[0.0], np.cumsum(values)])
    changes = np.zeros_like(values)
    changes[season:] = values[season:] - values[:-season]
    change_sums, square_sums = (np.concatenate([[0.0], np.cumsum(each)]) for each in (changes, changes**2))
    mean = (sums[at] - sums[at - season]) / season
    change = (change_sums[at] - change_sums[at - season]) / season
    square = (square_sums[at] - square_sums[at - season]) / season
    seconds = series.start.timestamp() + target.astype(np.float64) * series.step.total_seconds()
    rows = [
        ahead.astype(np.float64),
        seconds % _DAY_SEC / 3600,
        (seconds // _DAY_SEC + _THURSDAY) % _WEEK_DAYS,
        changes[last],  # by how much the baseline errs now
        change,
        np.sqrt(np.maximum(square - change**2, 0.0)),
        now - values[at - 2],
        now - base,
        mean - base,
        changes[source],
    ]
    if weekly:
        # The latest known value whole weeks before the target; unknown in the series' first week.
        steps = int(_week(series))
        before = target - steps * -(-(target + 1 - at) // steps)
        rows.append(np.where(before >= 0, values[np.maximum(before, 0)], np.nan) - base)
    anchor: Floats = base + changes[last] * np.power(fading, ahead.astype(np.float64))
    return np.stack(rows, axis=1), anchor


def _week(series: Series) -> float:
    """Steps in a week; infinite if not whole."""
    week, rest = divmod(_WEEK_DAYS * _DAY_SEC, series.step.total_seconds())
    return week if week and not rest else inf
