"""Conformal intervals: how much wider (or narrower) a model's interval has to be for the share of truths it promises.

Split conformal for quantiles (CQR: Romano, Patterson, Candes, NeurIPS 2019): the score of an earlier forecast is how
far its truth lay outside the interval, negative inside; the next interval grows by a high quantile of these scores. On
exchangeable data it then holds at least `level` of the truths. Series are not exchangeable, so the level that is aimed
at follows what was missed (adaptive conformal inference: Gibbs, Candes, NeurIPS 2021).
"""

import math
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["ADAPTATION", "Adaptive", "fewest_scores", "get_offset", "score"]

ADAPTATION = 0.02
"""How much the level aimed at moves after each truth; 0: plain split conformal."""


def score(low: float, high: float, truth: float) -> float:
    """How far outside the interval the truth was; negative: inside, by so much."""
    return max(low - truth, truth - high)


def fewest_scores(level: float) -> int:
    """So many earlier forecasts at least are needed to promise the level.

    >>> fewest_scores(0.9), fewest_scores(0.95)
    (9, 19)
    """
    return math.ceil(level / (1 - level) - 1e-9)


def get_offset(scores: Sequence[float], level: float) -> float:
    """What to add on both sides. `scores`: in ascending order. The widest seen, where the level asks for more than the
    scores can tell: the promise then is as good as their number allows.
    """
    rank = math.ceil((len(scores) + 1) * level - 1e-9)
    return scores[min(max(rank, 1), len(scores)) - 1]


@dataclass(frozen=True)
class Adaptive:
    """Offsets of one step ahead over time.

    Attributes:
        level: the share of truths that intervals are to hold.
        adaptation: how much the level aimed at moves after each truth.
    """

    level: float
    adaptation: float = ADAPTATION

    def offsets(self, scores: Sequence[float], delay: int) -> list[float]:
        """What to add for each forecast, from the scores of those whose truth was known by then; infinite for those
        before any was.

        Args:
            scores: of the forecasts in the order in which they were made; of the last ones, whose truth is not known
                yet, anything.
            delay: how many forecasts are made from one to its truth, at least 1; a forecast's own score is not used.
        """
        missed, aimed = 1 - self.level, 1 - self.level
        known: list[float] = []
        offsets: list[float] = []
        for index in range(len(scores)):
            told = index - delay
            if told >= 0:
                outside = scores[told] > offsets[told]
                if math.isfinite(offsets[told]):
                    aimed = min(max(aimed + self.adaptation * (missed - outside), 0.0), 1.0)
                insort(known, scores[told])
            offsets.append(get_offset(known, 1 - aimed) if known else math.inf)
        return offsets
