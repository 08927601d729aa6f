"""Accuracy of forecasts (error, pinball loss, coverage, skill against the baseline), and drift of their errors."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import fsum
from operator import mul
from statistics import NormalDist, fmean
from typing import Final

from gangway.components.estimate.statistics import Comparison, compare_pairs

_MOST_BLOCKS: Final = 20
"""Longer blocks reduce the effect of correlated errors; more than 20 blocks narrow the interval by 4 % at most."""


@dataclass(frozen=True)
class Judged:
    """A forecast of several steps and its truth, of equal length."""

    low: tuple[float, ...]
    middle: tuple[float, ...]
    high: tuple[float, ...]
    truth: tuple[float, ...]

    def absolute_error(self) -> float:
        """Mean over the steps."""
        return fmean([abs(truth - middle) for truth, middle in zip(self.truth, self.middle, strict=True)])


@dataclass(frozen=True)
class Accuracy:
    """Means over all steps of all forecasts. `coverage`: share of truths within the interval."""

    forecasts: int
    mae: float
    pinball: float
    coverage: float
    width: float


@dataclass(frozen=True)
class Skill:
    """1 - error / error of the baseline: above 0 beats it, 1 is perfect. `compared`: errors of blocks of forecasts."""

    value: float
    compared: Comparison

    @property
    def low(self) -> float | None:
        """Lower end of the 95 % interval; None with too few blocks."""
        return None if self.compared.high is None else -self.compared.high

    @property
    def high(self) -> float | None:
        """Upper end."""
        return None if self.compared.low is None else min(-self.compared.low, 1.0)

    @property
    def verdict(self) -> str:
        """The claim the interval supports."""
        return self.compared.verdict("better", "worse", "blocks of forecasts")


def pinball(quantile: float, forecast: float, truth: float) -> float:
    """The loss that the true quantile minimises.

    >>> pinball(0.9, 10, 12), pinball(0.9, 12, 10)
    (1.8, 0.19999999999999996)
    """
    return (truth - forecast) * quantile if truth >= forecast else (forecast - truth) * (1 - quantile)


def accuracy(judged: Sequence[Judged], level: float) -> Accuracy:
    """The accuracy of one or more forecasts. `level`: the nominal coverage."""
    tail = (1 - level) / 2
    rows = [row for each in judged for row in zip(each.low, each.middle, each.high, each.truth, strict=True)]
    losses = [
        (pinball(tail, low, truth) + pinball(0.5, middle, truth) + pinball(1 - tail, high, truth)) / 3
        for low, middle, high, truth in rows
    ]
    return Accuracy(
        forecasts=len(judged),
        mae=fmean([abs(truth - middle) for _, middle, _, truth in rows]),
        pinball=fmean(losses),
        coverage=sum(low <= truth <= high for low, _, high, truth in rows) / len(rows),
        width=fmean([high - low for low, _, high, _ in rows]),
    )


def skill(judged: Sequence[Judged], baseline: Sequence[Judged], overlapping: int) -> Skill | None:
    """Skill in absolute error; None if the baseline never errs or no error is finite. Both lists have the same origins
    in order. `overlapping`: how many consecutive forecasts cover times of the first; 1 if none overlap.

    Neighbouring forecasts have correlated errors, so the pairs are means of blocks (batch means): at most 20 blocks,
    each twice as long as the overlap. Compares differences of errors (Diebold, Mariano, 1995). Equally good models are
    told apart 4 to 7 times in 100 (simulated: 6, 20 and 60 forecasts without overlap, 96 and 105 that overlap by 8, 288
    by 24).
    """
    errors = [(b.absolute_error(), a.absolute_error()) for a, b in zip(judged, baseline, strict=True)]
    mean = fmean([error for error, _ in errors]) if errors else 0.0
    if not mean:
        return None
    number = len(errors)
    blocks = max(1, min(_MOST_BLOCKS, number // (2 * overlapping if overlapping > 1 else 1)))
    ends = [number * place // blocks for place in range(blocks + 1)]
    # Sums times blocks / number: the mean over blocks equals that over all forecasts if lengths differ by one.
    share = blocks / number / mean
    pairs = [
        (share * fsum(theirs for theirs, _ in block), share * fsum(ours for _, ours in block))
        for block in (errors[first:last] for first, last in pairwise(ends))
    ]
    compared = compare_pairs([pairs], as_difference=True)
    return None if compared is None else Skill(1 - fmean([error for _, error in errors]) / mean, compared)


FALSE_ALARM_EVERY = 1000.0
FEWEST = 20
"""The least number of reference errors to rank others."""
_SLACK = 0.5
"""In standard deviations: a shift of twice that is found soonest."""
_OVERSHOOT = 1.166
"""Mean excess of a sum of normal steps over the threshold (Siegmund)."""


@dataclass(frozen=True)
class Drift:
    """`alarm`: error whose sum passed the threshold; `began`: the likely start; `upward`: truths lie above the
    forecasts.
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
    """Errors as normal deviates. `reference`: the preceding ones of the same model, out of sample, at least FEWEST."""
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
