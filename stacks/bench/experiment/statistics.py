"""What pairs of runs say: change against the control, its bootstrap interval, whether it is noise."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Pair = tuple[float, float]
"""Control and treatment of one seed."""
_DRAWS = 4000
_TAIL = 0.025


@dataclass(frozen=True)
class Change:
    """Of a sum over pairs, treatment against control, in per cent of the control's.

    Attributes:
        percent: below zero where the treatment needs less.
        low: end of the 95 % bootstrap interval over pairs; None where a scenario has one pair, of whose
            spread nothing is known.
        high: the other end.
        pairs: how many there are.
    """

    percent: float
    low: float | None
    high: float | None
    pairs: int

    @property
    def is_noise(self) -> bool:
        """Whether no difference is shown: no interval, or one with zero in it."""
        return self.low is None or self.high is None or self.low <= 0 <= self.high

    @property
    def short(self) -> str:
        """The change as a cell of a table has it."""
        interval = "" if self.low is None or self.high is None else f" [{self.low:+.1f}, {self.high:+.1f}]"
        return f"{self.percent:+.1f} %{interval}"

    @property
    def words(self) -> str:
        """The change as a sentence has it."""
        if self.low is None or self.high is None:
            lone = "one pair" if self.pairs == 1 else f"{self.pairs} pairs, a scenario has one alone"
            return f"{self.short} ({lone}: no interval)"
        few = ": a rough interval" if self.pairs < 5 else ""
        return f"{self.short}, {self.pairs} pairs{few}{'; within noise' if self.is_noise else ''}"


def change_of(groups: Mapping[str, Sequence[Pair]], seed: int = 0) -> Change | None:
    """The change over all groups (scenarios), by a bootstrap that draws pairs inside each group; None where there is no
    pair, or the control's sum is zero.
    """
    chosen = [list(pairs) for pairs in groups.values() if pairs]
    base = math.fsum(control for pairs in chosen for control, _ in pairs)
    if not chosen or base == 0:
        return None
    count = sum(map(len, chosen))
    if any(len(pairs) < 2 for pairs in chosen):
        return Change(_percent(chosen), None, None, count)
    draw = random.Random(seed)
    found = sorted(_percent([draw.choices(pairs, k=len(pairs)) for pairs in chosen]) for _ in range(_DRAWS))
    return Change(_percent(chosen), found[round(_TAIL * (_DRAWS - 1))], found[round((1 - _TAIL) * (_DRAWS - 1))], count)


def _percent(groups: Sequence[Sequence[Pair]]) -> float:
    """Of means of each group, summed: a scenario weighs as its control's time, however many pairs it has."""
    control = math.fsum(math.fsum(one for one, _ in pairs) / len(pairs) for pairs in groups)
    treatment = math.fsum(math.fsum(other for _, other in pairs) / len(pairs) for pairs in groups)
    return 100 * (treatment / control - 1) if control else 0.0
