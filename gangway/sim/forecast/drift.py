"""Drift of forecast errors: a two-sided CUSUM (Page, Biometrika, 1954) on normalised errors, set by its false-alarm
rate.

Errors become normal scores by their rank in a reference period, which removes unit and heavy tails. Successive errors
are correlated, so scores are divided by the reference's long-run deviation (Newey, West, Econometrica, 1987). Without a
change, an alarm comes at most about once in `false_alarm_every` forecasts (Siegmund's approximation, 1985).
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
"""The least number of reference errors to rank others."""
_SLACK = 0.5
"""In standard deviations: a shift of twice that is found soonest."""
_OVERSHOOT = 1.166
"""Mean excess of a sum of normal steps over the threshold (Siegmund)."""


@dataclass(frozen=True)
class Drift:
    """The result. `alarm`: number of the error whose sum passed the threshold, None for never; `began`: number of the
    error after which the sum was last zero: the likely start of the shift; `upward`: whether truths lie above the
    forecasts since; `threshold`: of the sum, in standard deviations.
    """

    alarm: int | None
    began: int | None
    upward: bool
    threshold: float
    seen: int


def mean_run_length(threshold: float) -> float:
    """Errors between false alarms of the two sums."""
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
    """Each error as a normal deviate by its rank in the reference; ties take their middle rank."""
    ordered, normal = sorted(reference), NormalDist()
    share = 1 / (len(ordered) + 1)
    ranks = ((bisect_left(ordered, error) + bisect_right(ordered, error) + 1) / 2 for error in errors)
    return [normal.inv_cdf(min(max(rank, 0.5) * share, 1 - 0.5 * share)) for rank in ranks]


def deviates(errors: Sequence[float], reference: Sequence[float]) -> list[float]:
    """Errors (truth - forecast) as normal deviates. `reference`: the preceding errors in order, at least FEWEST, of the
    same model and also out of sample.
    """
    assert len(reference) >= FEWEST, "whoever has fewer does not ask"
    unit = _long_run_deviation(normal_scores(reference, reference))
    margin = 1 / len(reference) ** 0.5  # by so much the reference's own middle may be wrong
    scores = (score / unit for score in normal_scores(errors, reference))
    return [math.copysign(max(abs(score) - margin, 0.0), score) for score in scores]


def _long_run_deviation(scores: Sequence[float]) -> float:
    """The deviation of a sum of scores per root of their number: 1 if independent, and at least 1."""
    number = len(scores)
    lags = round(number**0.5)
    middle = fmean(scores)
    centred = [score - middle for score in scores]
    power = fsum(score * score for score in centred)
    if not power:
        return 1.0
    autocorrelations = (fsum(map(mul, centred[lag:], centred)) / power for lag in range(1, lags + 1))
    inflation = 1 + 2 * fsum((1 - lag / (lags + 1)) * each for lag, each in enumerate(autocorrelations, 1))
    return math.sqrt(max(inflation, 1.0))


def detect(found: Sequence[float], false_alarm_every: float = FALSE_ALARM_EVERY) -> Drift:
    """Examine deviates in order up to the first alarm."""
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
