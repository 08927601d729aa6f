"""Forecasts a history with intervals, beside the baseline, and back-tests both from what was known at earlier times.

Forecast and back-test share one code path, so the back-test judges what is published.
"""

import math
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import inf
from typing import TYPE_CHECKING, Final

from gangway.components.core.findings import InputError
from gangway.sim.forecast.accuracy import FEWEST, Accuracy, Drift, Judged, Skill, accuracy, detect, deviates, skill
from gangway.sim.forecast.boosting import fit, lookback
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
