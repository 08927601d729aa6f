"""The accuracy of a ledger's published forecasts, by series."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from gangway.sim.forecast.accuracy import Accuracy, Skill, accuracy, skill
from gangway.sim.forecast.drift import FEWEST, Drift, detect, deviates
from gangway.sim.forecast.ledger import Entries, Scored, overlapping

__all__ = ["Standing", "standings"]


@dataclass(frozen=True)
class Standing:
    """One series at one level. `of`: subject of the series, empty in old ledgers; `waiting`: number of forecasts with
    unknown truth; `gain`: skill of the model, None without any, or if the baseline never errs; `drift`: of one-step
    errors, the later half against the earlier, None if too few.
    """

    series: str
    of: str
    level: float
    waiting: int
    scored: tuple[Scored, ...]
    model: Accuracy | None
    baseline: Accuracy | None
    gain: Skill | None
    drift: Drift | None

    def drifts_since(self) -> datetime | None:
        """The approximate start of the drift, if any."""
        if self.drift is None or self.drift.alarm is None or self.drift.began is None:
            return None
        return self.scored[_earlier(len(self.scored)) + min(self.drift.began, self.drift.alarm)].times[0]


def standings(entries: Entries) -> list[Standing]:
    """Evaluate every series, in the ledger's order."""
    return [_standing(entries, *kind) for kind in entries.kinds()]


def _standing(entries: Entries, name: str, level: float, of: str) -> Standing:
    scored = entries.scored(name, level, of)
    model, baseline = [each.model for each in scored], [each.baseline for each in scored]
    return Standing(
        series=name,
        of=of,
        level=level,
        waiting=entries.waiting(name, level, of),
        scored=tuple(scored),
        model=accuracy(model, level) if scored else None,
        baseline=accuracy(baseline, level) if scored else None,
        gain=skill(model, baseline, overlapping(scored)) if scored else None,
        drift=_drift([each.truth[0] - each.middle[0] for each in model]),
    )


def _drift(errors: Sequence[float]) -> Drift | None:
    earlier = _earlier(len(errors))
    return detect(deviates(errors[earlier:], errors[:earlier])) if len(errors) > earlier else None


def _earlier(number: int) -> int:
    """The number of reference errors: half of all, at least FEWEST."""
    return max(FEWEST, number // 2)
