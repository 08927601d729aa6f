"""Mean and spread of one quantity over the runs of a row, with the provenance of what went into it.

Pure arithmetic on figures. A run that has no value is left out and counted; it is never a zero.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trainer.record import Figure

__all__ = ["Spread", "change", "spread_of"]

_MEASURED_FIRST = ("measured", "list-price", "estimated", "assumed")
"""A mean is as good as the weakest value in it."""
_FEW = 3
"""Below that many values a standard deviation says less than the values themselves: their range is told."""
_MOST_SOURCES = 3


@dataclass(frozen=True)
class Spread:
    """One quantity over the runs of a row.

    Attributes:
        value: mean of the runs that have it; None when none has.
        unit: of all of them.
        provenance: the weakest of those of the values; absent when there is none.
        source: behind the values; for an absent one, why there is none.
        as_of: the oldest date of a source; empty without one.
        note: what a reader must know before comparing it.
        low: the least value.
        high: the greatest.
        std: sample standard deviation (n - 1) of three values or more, else None.
        values: of each run, in the row's order: its name and its value.
    """

    value: float | None
    unit: str
    provenance: str
    source: str
    as_of: str = ""
    note: str = ""
    low: float | None = None
    high: float | None = None
    std: float | None = None
    values: tuple[tuple[str, float | None], ...] = ()

    @property
    def known(self) -> tuple[float, ...]:
        """The values there are."""
        return tuple(value for _, value in self.values if value is not None)

    @classmethod
    def absent(cls, unit: str, why: str) -> "Spread":
        """A quantity that no run of the row has."""
        return cls(None, unit, "absent", why)


def spread_of(figures: Mapping[str, Figure]) -> Spread:
    """Mean and spread over runs.

    Args:
        figures: by the run's name, at least one; all in one unit.

    >>> spread = spread_of({"a": Figure.measured(1, "h", "clock"), "b": Figure.measured(3, "h", "clock")})
    >>> spread.value, spread.low, spread.high, spread.std
    (2.0, 1.0, 3.0, None)
    """
    given = list(figures.values())
    unit = given[0].unit
    values = tuple((name, figure.value) for name, figure in figures.items())
    with_value = [figure for figure in given if figure.value is not None]
    if not with_value:
        return Spread(None, unit, "absent", _joined(figure.source for figure in given), values=values)
    known = [float(figure.value) for figure in with_value if figure.value is not None]
    missing = len(given) - len(with_value)
    lacking = f"{missing} of {len(given)} runs have no value: {_joined(_reasons(given))}" if missing else ""
    notes = [note for note in dict.fromkeys(figure.note for figure in with_value) if note]
    return Spread(
        value=_mean(known),
        unit=unit,
        provenance=max((figure.provenance for figure in with_value), key=_MEASURED_FIRST.index),
        source=_joined(figure.source for figure in with_value),
        as_of=min((figure.as_of for figure in with_value if figure.as_of), default=""),
        note="; ".join([*([lacking] if lacking else []), *([_joined(notes)] if notes else [])]),
        low=min(known),
        high=max(known),
        std=_std(known),
        values=values,
    )


def change(control: Spread, treatment: Spread, seeds: Mapping[str, int], *, signed: bool = False) -> Spread:
    """By how much the treatment differs from the control: in per cent of it, or as a difference.

    Each seed that both have is compared with itself, and the spread is that over these seeds; where they share none, or
    one occurs twice, the means are compared, and there is no spread.

    Args:
        control: of a quantity.
        treatment: of the same.
        seeds: of each run, by its name.
        signed: whether it may be zero or less: the change is then a difference in its own unit, of per cent in points.
    """
    unit = ("points" if control.unit == "%" else control.unit) if signed else "%"
    if control.value is None or treatment.value is None:
        whose = control if control.value is None else treatment
        return Spread.absent(unit, whose.source)
    before, after = _by_seed(control, seeds), _by_seed(treatment, seeds)
    shared = sorted(before.keys() & after.keys()) if before is not None and after is not None else []
    if before is not None and after is not None and shared:
        compared = [(f"seed {seed}", before[seed], after[seed]) for seed in shared]
        how = "each seed's run against the control's of the same seed"
        left = sorted({seeds[name] for name, _ in (*control.values, *treatment.values)} - set(shared))
        note = f"seed {', '.join(map(str, left))} left out: not in both rows with a value" if left else ""
    else:
        why = "a seed stands in a row more than once" if before is None or after is None else "no seed is in both rows"
        compared, how, note = [("", control.value, treatment.value)], f"mean against mean: {why}", ""
    if not signed and any(old <= 0 for _, old, _ in compared):
        return Spread.absent(unit, "the control's is zero or less, of which nothing is a per cent")
    pairs = tuple((name, new - old if signed else 100 * (new / old - 1)) for name, old, new in compared)
    changes = [value for _, value in pairs]
    return Spread(
        value=_mean(changes),
        unit=unit,
        provenance=max(control.provenance, treatment.provenance, key=_MEASURED_FIRST.index),
        source=f"difference, {how}" if signed else how,
        note=note,
        low=min(changes),
        high=max(changes),
        std=_std(changes),
        values=pairs if shared else (),
    )


def _by_seed(spread: Spread, seeds: Mapping[str, int]) -> dict[int, float] | None:
    """Values by seed, of the runs that have one; None where a seed occurs twice."""
    known = [(seeds[name], value) for name, value in spread.values if value is not None]
    found = dict(known)
    return found if len(found) == len(known) else None


def _mean(values: Sequence[float]) -> float:
    """Between the least and the greatest whatever rounding does: means of equal values are that value."""
    return min(max(math.fsum(values) / len(values), min(values)), max(values))


def _std(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) >= _FEW else None


def _reasons(figures: Sequence[Figure]) -> list[str]:
    return [figure.source for figure in figures if figure.value is None]


def _joined(texts: Iterable[str]) -> str:
    """Different texts in their order, the first few of them."""
    different = list(dict.fromkeys(texts))
    more = len(different) - _MOST_SOURCES
    return "; ".join([*different[:_MOST_SOURCES], *([f"and {more} more"] if more > 0 else [])])
