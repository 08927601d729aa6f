"""How good forecasts were, once their truth is known: error, pinball loss, coverage, and skill against the baseline,
with an interval.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Final

__all__ = ["RESAMPLES", "Accuracy", "Judged", "Skill", "accuracy", "pinball", "skill"]

RESAMPLES: Final = 1000
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
    """1 - error / error of the baseline: above 0 is better than it, 1 is perfect. Of paired resamples, 95 % lie from
    `low` to `high`.
    """

    value: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """What may be said of it."""
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
    that is longer.
    """
    errors = [(a.absolute_error(), b.absolute_error()) for a, b in zip(judged, baseline, strict=True)]
    of_baseline = fsum(error for _, error in errors)
    if not of_baseline:
        return None
    generator, number = random.Random(_SEED), len(errors)
    block = min(number, max(overlapping, round(number ** (1 / 3))))
    found: list[float] = []
    for _ in range(RESAMPLES):
        starts = [generator.randrange(number) for _ in range(-(-number // block))]
        drawn = [errors[(start + further) % number] for start in starts for further in range(block)][:number]
        found.append(_ratio_skill(drawn))
    found.sort()
    tail = round((1 - _LEVEL) / 2 * RESAMPLES)
    return Skill(_ratio_skill(errors), found[tail], found[-1 - tail])


def _ratio_skill(errors: Sequence[tuple[float, float]]) -> float:
    own, other = fsum(error for error, _ in errors), fsum(error for _, error in errors)
    # A resample in which the baseline never errs says nothing, unless the model errs there.
    return 1 - own / other if other else (0.0 if not own else float("-inf"))


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values)
