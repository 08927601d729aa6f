"""How good forecasts were, once their truth is known: error, pinball loss, coverage, and skill against the baseline,
with an interval.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from statistics import NormalDist
from typing import Final

__all__ = ["FEWEST_BLOCKS", "RESAMPLES", "Accuracy", "Judged", "Skill", "accuracy", "pinball", "skill"]

RESAMPLES: Final = 1000
FEWEST_BLOCKS: Final = 5
"""Of forecasts, for an interval around a skill."""
_SEED: Final = 20260101
_LEVEL: Final = 0.95
"""Of the interval around a skill."""


@dataclass(frozen=True)
class Judged:
    """One forecast of several steps beside what came; all of one length."""

    low: tuple[float, ...]
    middle: tuple[float, ...]
    high: tuple[float, ...]
    truth: tuple[float, ...]

    def absolute_error(self) -> float:
        """Its mean over the steps."""
        return _mean([abs(truth - middle) for truth, middle in zip(self.truth, self.middle, strict=True)])


@dataclass(frozen=True)
class Accuracy:
    """Means over all steps of all forecasts.

    Attributes:
        forecasts: how many.
        mae: mean absolute error of the middle.
        pinball: mean pinball loss of low, middle and high, at their quantiles: lower is better, and only the true
            quantiles make it least.
        coverage: share of truths within the interval.
        width: mean width of the interval.
    """

    forecasts: int
    mae: float
    pinball: float
    coverage: float
    width: float


@dataclass(frozen=True)
class Skill:
    """1 - error / error of the baseline: above 0 is better than it, 1 is perfect.

    Attributes:
        value: of the forecasts that there are.
        low: end of its 95 % interval; None where they are too few for one.
        high: the other end; None where `low` is.
    """

    value: float
    low: float | None
    high: float | None

    @property
    def verdict(self) -> str:
        """What may be said of it."""
        if self.low is None or self.high is None:
            return "too few to tell"
        if self.low > 0:
            return "better"
        return "worse" if self.high < 0 else "within noise"


def pinball(quantile: float, forecast: float, truth: float) -> float:
    """The loss that the true quantile makes least.

    >>> pinball(0.9, 10, 12), pinball(0.9, 12, 10)
    (1.8, 0.19999999999999996)
    """
    return (truth - forecast) * quantile if truth >= forecast else (forecast - truth) * (1 - quantile)


def accuracy(judged: Sequence[Judged], level: float) -> Accuracy:
    """Over at least one forecast. `level`: the share that the intervals promise."""
    tail = (1 - level) / 2
    rows = [row for each in judged for row in zip(each.low, each.middle, each.high, each.truth, strict=True)]
    losses = [
        (pinball(tail, low, truth) + pinball(0.5, middle, truth) + pinball(1 - tail, high, truth)) / 3
        for low, middle, high, truth in rows
    ]
    return Accuracy(
        forecasts=len(judged),
        mae=_mean([abs(truth - middle) for _, middle, _, truth in rows]),
        pinball=_mean(losses),
        coverage=sum(low <= truth <= high for low, _, high, truth in rows) / len(rows),
        width=_mean([high - low for low, _, high, _ in rows]),
    )


def skill(judged: Sequence[Judged], baseline: Sequence[Judged], overlapping: int) -> Skill | None:
    """Of the absolute error; None where the baseline never errs. Forecasts of both are of the same origins, in order;
    so many in a row are about times that the first of them is about, too: 1 where none overlap.

    The resamples are paired (the same origins of both) and of blocks of neighbours, since what overlaps or follows errs
    alike; a block is n^(1/3) forecasts long (Hall, Horowitz, Jing, Biometrika, 1995), or as long as they overlap if
    that is longer. The interval is as much wider than the resamples' as their few blocks miss (`_widening`).

    Two equally good models are told apart 3 to 7 times in 100 (measured: 10, 20 and 60 forecasts that do not overlap,
    40 to 105 that overlap by 8, 120 and 200 by 24; 1,000 trials each). Fewer than FEWEST_BLOCKS blocks have no
    interval: resamples of one block are all of the same errors.
    """
    errors = [(a.absolute_error(), b.absolute_error()) for a, b in zip(judged, baseline, strict=True)]
    of_baseline = fsum(error for _, error in errors)
    if not of_baseline:
        return None
    value, number = _ratio_skill(errors), len(errors)
    block = max(overlapping, round(number ** (1 / 3)))
    if number < FEWEST_BLOCKS * block:
        return Skill(value, None, None)
    generator = random.Random(_SEED)
    found: list[float] = []
    for _ in range(RESAMPLES):
        starts = [generator.randrange(number) for _ in range(-(-number // block))]
        drawn = [errors[(start + further) % number] for start in starts for further in range(block)][:number]
        found.append(_ratio_skill(drawn))
    found.sort()
    tail, wider = round((1 - _LEVEL) / 2 * RESAMPLES), _widening(number / block, block, overlapping)
    low, high = (value + wider * (end - value) for end in (found[tail], found[-1 - tail]))
    return Skill(value, low, min(high, 1.0))


def _widening(blocks: float, block: int, overlapping: int) -> float:
    """By which a resampled interval is too narrow: for Student's quantile beside the normal one and a variance about
    the blocks' own mean, and for the covariance between blocks, which of moving means of `overlapping` is known.
    """
    apart = range(1 - overlapping, overlapping)
    within = fsum((1 - abs(each) / block) * (1 - abs(each) / overlapping) for each in apart) / overlapping
    normal = NormalDist().inv_cdf((1 + _LEVEL) / 2)
    return _student(normal, blocks - 1) / normal * sqrt(blocks / (blocks - 1) / within)


def _student(normal: float, freedom: float) -> float:
    """Its quantile from the normal one, to half a per cent from 4 degrees of freedom on (Abramowitz, Stegun, 26.7.5).

    >>> round(_student(1.959964, 4), 2), round(_student(1.959964, 20), 3)
    (2.77, 2.086)
    """
    first = (normal**3 + normal) / 4
    second = (5 * normal**5 + 16 * normal**3 + 3 * normal) / 96
    third = (3 * normal**7 + 19 * normal**5 + 17 * normal**3 - 15 * normal) / 384
    return normal + first / freedom + second / freedom**2 + third / freedom**3


def _ratio_skill(errors: Sequence[tuple[float, float]]) -> float:
    own, other = fsum(error for error, _ in errors), fsum(error for _, error in errors)
    # A resample in which the baseline never errs says nothing, unless the model errs there.
    return 1 - own / other if other else (0.0 if not own else float("-inf"))


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values)
