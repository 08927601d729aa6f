"""Whether forecasts err otherwise than they did: a two-sided CUSUM (Page, Biometrika, 1954) on normalised errors, with
the rate of its false alarms as the input.

Errors are ranked among those of a reference time and turned into normal scores, so that neither their unit nor heavy
tails matter; what follows each other errs alike, so they are told in the long-run deviation of the reference (Newey,
West, Econometrica, 1987). Where nothing has changed, an alarm then comes at most about once in `false_alarm_every`
forecasts (Siegmund's approximation, 1985).
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from operator import mul
from statistics import NormalDist, fmean

__all__ = [
    "FALSE_ALARM_EVERY",
    "FEWEST",
    "Drift",
    "detect",
    "deviates",
    "mean_run_length",
    "normal_scores",
    "threshold_for",
]

FALSE_ALARM_EVERY = 1000.0
FEWEST = 20
"""So many errors of the reference are needed to rank others among them."""
_SLACK = 0.5
"""In standard deviations: a shift of twice that is found soonest."""
_OVERSHOOT = 1.166
"""How far the sum of normal steps passes the threshold on average (Siegmund)."""


@dataclass(frozen=True)
class Drift:
    """What was found.

    Attributes:
        alarm: number of the error with which the sum passed its threshold; None for never.
        began: number of the error after which the sum was last zero: where the shift is likely to have begun.
        upward: whether truths lie above the forecasts since.
        threshold: of the sum, in standard deviations.
        seen: how many errors were looked at.
    """

    alarm: int | None
    began: int | None
    upward: bool
    threshold: float
    seen: int


def mean_run_length(threshold: float) -> float:
    """Errors from one false alarm of the two sums to the next, where nothing has changed."""
    reach = threshold + _OVERSHOOT
    return (math.exp(2 * _SLACK * reach) - 2 * _SLACK * reach - 1) / (2 * _SLACK**2) / 2


def threshold_for(false_alarm_every: float) -> float:
    """The threshold with that mean run length."""
    low, high = 0.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if mean_run_length(middle) < false_alarm_every else (low, middle)
    return high


def normal_scores(errors: Sequence[float], reference: Sequence[float]) -> list[float]:
    """Each error as a normal deviate, by its rank among the reference; ties take the middle of theirs."""
    ordered, normal = sorted(reference), NormalDist()
    share = 1 / (len(ordered) + 1)
    ranks = ((bisect_left(ordered, error) + bisect_right(ordered, error) + 1) / 2 for error in errors)
    return [normal.inv_cdf(min(max(rank, 0.5) * share, 1 - 0.5 * share)) for rank in ranks]


def deviates(errors: Sequence[float], reference: Sequence[float]) -> list[float]:
    """Errors (truth - forecast) as normal deviates. `reference`: those right before them, in order, FEWEST at least, of
    the same model and made without knowing their truth either.
    """
    assert len(reference) >= FEWEST, "whoever has fewer does not ask"
    unit = _long_run_deviation(normal_scores(reference, reference))
    margin = 1 / len(reference) ** 0.5  # by so much the reference's own middle may be wrong
    scores = (score / unit for score in normal_scores(errors, reference))
    return [math.copysign(max(abs(score) - margin, 0.0), score) for score in scores]


def _long_run_deviation(scores: Sequence[float]) -> float:
    """What a sum of such scores deviates by, for each root of one: 1 where they are independent, and at least that."""
    number = len(scores)
    lags = round(number**0.5)
    middle = fmean(scores)
    centred = [score - middle for score in scores]
    power = fsum(score * score for score in centred)
    if not power:
        return 1.0
    kept = (fsum(map(mul, centred[lag:], centred)) / power for lag in range(1, lags + 1))
    inflation = 1 + 2 * fsum((1 - lag / (lags + 1)) * each for lag, each in enumerate(kept, 1))
    return math.sqrt(max(inflation, 1.0))


def detect(found: Sequence[float], false_alarm_every: float = FALSE_ALARM_EVERY) -> Drift:
    """Looks at deviates one after the other, up to the first alarm."""
    threshold = threshold_for(false_alarm_every)
    above = below = 0.0
    since_above = since_below = 0
    for index, deviate in enumerate(found):
        above, below = max(0.0, above + deviate - _SLACK), max(0.0, below - deviate - _SLACK)
        since_above = since_above if above else index + 1
        since_below = since_below if below else index + 1
        if max(above, below) > threshold:
            upward = above > below
            return Drift(index, since_above if upward else since_below, upward, threshold, index + 1)
    return Drift(None, None, False, threshold, len(found))
