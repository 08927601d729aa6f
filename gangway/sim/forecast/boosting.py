"""Quantiles by gradient boosting on lags and calendar, relative to an anchor: the baseline plus its error at the
origin, which decays with each step as it did in the past (a seasonal AR(1)).

One model per quantile serves all steps, with the step as a feature: a row is a pair of origin (number of known values)
and step. Trees cannot extrapolate, so all features are differences; targets are scaled by the mean error of their step,
or the far steps would dominate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final

from gangway.sim.forecast.series import Series

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Integers = npt.NDArray[np.int64]

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
