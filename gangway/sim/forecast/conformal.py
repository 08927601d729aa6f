"""Conformal intervals: how much to widen (or narrow) a model's interval to reach its nominal coverage.

Split conformal for quantiles (CQR: Romano, Patterson, Candes, NeurIPS 2019): the score of an earlier forecast is the
truth's distance outside the interval, negative inside; the next interval grows by a high quantile of these scores. On
exchangeable data it then covers at least `level` of the truths. Series are not exchangeable, so the target level adapts
to the misses (adaptive conformal inference: Gibbs, Candes, NeurIPS 2021).
"""

import math
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["ADAPTATION", "Adaptive", "fewest_scores", "get_offset", "score"]

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


@dataclass(frozen=True)
class Adaptive:
    """Offsets of one step ahead over time. `adaptation`: change of the target level per truth."""

    level: float
    adaptation: float = ADAPTATION

    def offsets(self, scores: Sequence[float], delay: int) -> list[float]:
        """The offset of each forecast, from the scores known by then; infinite before the first.

        Args:
            scores: in the order of the forecasts; those with unknown truth may be anything.
            delay: forecasts from one to its truth, at least 1; a forecast's own score is not used.
        """
        missed, aimed = 1 - self.level, 1 - self.level
        known: list[float] = []
        offsets: list[float] = []
        for index in range(len(scores)):
            num_known = index - delay
            if num_known >= 0:
                outside = scores[num_known] > offsets[num_known]
                if math.isfinite(offsets[num_known]):
                    aimed = min(max(aimed + self.adaptation * (missed - outside), 0.0), 1.0)
                insort(known, scores[num_known])
            offsets.append(get_offset(known, 1 - aimed) if known else math.inf)
        return offsets
