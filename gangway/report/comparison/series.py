"""Figures of several runs: mean and spread over seeds, and series over time (losses, quality, meters)."""

import math
import statistics
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from gangway.components.estimate.statistics import Comparison, Pair, compare_pairs
from gangway.report.comparison.groups import Group, Member
from gangway.trainer.records.quantity import Quantity

_MEASURED_FIRST = ("measured", "list-price", "estimated", "assumed")
"""A mean is as good as its weakest value."""
_FEW = 3
"""Below that many values a range says more than a standard deviation."""
_MOST_SOURCES = 3
METERED = ("it_kwh", "it_wh", "gco2e")
"""Measures of metered energy."""
_NAMES: Mapping[str, str] = {"cpu": "CPU", "gpu": "GPU"}
_MOST_POINTS = 240
"""More would overlap at a page's width."""


@dataclass(frozen=True)
class Spread:
    """One quantity over the runs of a row. `provenance`: the weakest; `as_of`: the oldest; `std`: sample standard
    deviation of three values or more; `compared`: of a change, instead of `std`.
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
    compared: Comparison | None = None

    @property
    def known(self) -> tuple[float, ...]:
        """The known values."""
        return tuple(value for _, value in self.values if value is not None)

    @classmethod
    def absent(cls, unit: str, why: str) -> "Spread":
        """A quantity that no run of the row has."""
        return cls(None, unit, "absent", why)


def get_spread(figures: Mapping[str, Quantity]) -> Spread:
    """Mean and spread over runs. `figures`: by the run's name, at least one, in one unit.

    >>> spread = get_spread({"a": Quantity.measured(1, "h", "clock"), "b": Quantity.measured(3, "h", "clock")})
    >>> spread.value, spread.low, spread.high, spread.std
    (2.0, 1.0, 3.0, None)
    """
    quantities = list(figures.values())
    unit = quantities[0].unit
    values = tuple((name, figure.value) for name, figure in figures.items())
    with_value = [figure for figure in quantities if figure.value is not None]
    if not with_value:
        return Spread(None, unit, "absent", _join_distinct(figure.source for figure in quantities), values=values)
    known = [float(figure.value) for figure in with_value if figure.value is not None]
    missing = len(quantities) - len(with_value)
    reasons = _join_distinct(figure.source for figure in quantities if figure.value is None)
    lacking = f"{missing} of {len(quantities)} runs have no value: {reasons}" if missing else ""
    notes = [note for note in dict.fromkeys(figure.note for figure in with_value) if note]
    return Spread(
        value=_mean(known),
        unit=unit,
        provenance=max((figure.provenance for figure in with_value), key=_MEASURED_FIRST.index),
        source=_join_distinct(figure.source for figure in with_value),
        as_of=min((figure.as_of for figure in with_value if figure.as_of), default=""),
        note="; ".join([*([lacking] if lacking else []), *([_join_distinct(notes)] if notes else [])]),
        low=min(known),
        high=max(known),
        std=statistics.stdev(known) if len(known) >= _FEW else None,
        values=values,
    )


def change(control: Spread, treatment: Spread, seeds: Mapping[str, int], *, signed: bool = False) -> Spread:
    """The treatment's change, in per cent or as a difference (`signed`): by common seeds, else mean against mean."""
    if control.value is None or treatment.value is None:
        absent = control if control.value is None else treatment
        return Spread.absent(control.unit if signed else "%", absent.source)
    before, after = _by_seed(control, seeds), _by_seed(treatment, seeds)
    shared = sorted(before.keys() & after.keys()) if before is not None and after is not None else []
    if before is not None and after is not None and shared:
        pairs: list[Pair] = [(before[seed], after[seed]) for seed in shared]
        how = "each seed's run against the control's of the same seed"
        unpaired = sorted({seeds[name] for name, _ in (*control.values, *treatment.values)} - set(shared))
        note = f"seed {', '.join(map(str, unpaired))} left out: not in both rows with a value" if unpaired else ""
    else:
        reason = (
            "a seed stands in a row more than once" if before is None or after is None else "no seed is in both rows"
        )
        pairs, how, note = [(control.value, treatment.value)], f"mean against mean: {reason}", ""
    compared = compare_pairs([pairs], as_difference=signed)
    if compared is None:
        return Spread.absent(control.unit if signed else "%", "not finite in any pair")
    each = [compare_pairs([[pair]], as_difference=not compared.is_relative) for pair in pairs]
    scale = 100 if compared.is_relative else 1
    unit = "%" if compared.is_relative else "points" if control.unit == "%" else control.unit
    return Spread(
        value=scale * compared.change,
        unit=unit,
        provenance=max(control.provenance, treatment.provenance, key=_MEASURED_FIRST.index),
        source=how if compared.is_relative else f"difference, {how}",
        note=note,
        low=scale * compared.least,
        high=scale * compared.greatest,
        values=tuple(
            (f"seed {seed}", None if one is None else scale * one.change)
            for seed, one in zip(shared, each, strict=False)
        ),
        compared=compared,
    )


def _by_seed(spread: Spread, seeds: Mapping[str, int]) -> dict[int, float] | None:
    known = [(seeds[name], value) for name, value in spread.values if value is not None]
    found = dict(known)
    return found if len(found) == len(known) else None


def _mean(values: Sequence[float]) -> float:
    """Clamped to the values' range against rounding: the mean of equal values is that value."""
    return min(max(math.fsum(values) / len(values), min(values)), max(values))


def _join_distinct(texts: Iterable[str]) -> str:
    different = list(dict.fromkeys(texts))
    more = len(different) - _MOST_SOURCES
    return "; ".join([*different[:_MOST_SOURCES], *([f"and {more} more"] if more > 0 else [])])


_KINDS = (
    ("RAPL package counters", "RAPL counters"),
    ("NVML total energy counter", "NVML counters"),
    ("model: CPU seconds", "CPU seconds x an assumed power"),
    ("model: time x", "time x the launcher's power, whatever the load"),
)
"""Prefixes of the trainer's meter descriptions: the number of sockets or watts does not change the method."""


def meters_note(groups: Sequence[Group]) -> str:
    """A caveat on energy across rows; empty if all was metered alike."""
    differing = _method_conflicts([(group.label, member) for group in groups for member in group.members])
    return f"metered in different ways, so not to be compared: {differing}" if differing else ""


def check_meters(key: str, cell: Spread, members: Iterable[Member]) -> Spread:
    """The cell, or an absent one if it mixes metering methods. `key`: of the measure; `members`: behind the cell."""
    differing = _method_conflicts([(member.name, member) for member in members]) if key in METERED else ""
    if not differing or cell.value is None:
        return cell
    reason = f"metered in different ways by these runs, so not to be put together: {differing}"
    return replace(Spread.absent(cell.unit, reason), values=cell.values)


def add_note(key: str, cell: Spread, note: str) -> Spread:
    """The cell with the note of `meters_note` if it depends on a meter."""
    if not note or key not in METERED or cell.value is None:
        return cell
    return replace(cell, note="; ".join(part for part in (cell.note, note) if part))


def _method_conflicts(named: Sequence[tuple[str, Member]]) -> str:
    found: dict[str, dict[str, list[str]]] = {}
    for name, member in named:
        for device, ways in _metering_methods(member).items():
            for way in ways:
                found.setdefault(device, {}).setdefault(way, []).append(name)
    return "; ".join(
        f"{_NAMES.get(device, device)} by "
        + " and ".join(f"{way} ({', '.join(dict.fromkeys(names))})" for way, names in ways.items())
        for device, ways in found.items()
        if len(ways) > 1
    )


def _metering_methods(member: Member) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for device, figure in member.record.energy.devices.items():
        if figure.value is not None:
            kind = device.rpartition("/")[2].rstrip("0123456789")
            methods = [method for beginning, method in _KINDS if beginning in figure.source] or [figure.source]
            found.setdefault(kind, []).extend(methods)
    return found


Points = Sequence[tuple[float, float]]
"""Progress and value, ascending."""
Range = tuple[float, float]
"""The least and the greatest of a row's runs."""


class Curve(NamedTuple):
    """Mean and band of a row's runs. `kimg`: thousands, ascending; `mean`: over the runs that reach so far."""

    label: str
    kimg: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def column(member: Member, key: str) -> Points:
    """A column of a run's statistics; later lines count for images repeated after an interruption."""
    return _points((line["kimg"], line.get(key)) for line in member.ticks)


def quality_points(member: Member, name: str) -> Points:
    """A quality metric over training."""
    history = member.record.quality_in_training
    found = [] if history is None else [(one.kimg, one.value) for one in history.points if one.name == name]
    return _points(found)


def watts(member: Member) -> Points:
    """Mean power of all devices between lines, W."""
    before: dict[int, tuple[float, float]] = {}
    found: list[tuple[float, float | None]] = []
    for line in member.ticks:
        joules, seconds = line.get("energy_joules"), line.get("wall_sec")
        if joules is None or seconds is None:
            continue
        earlier_sec, earlier_joules = before.get(line["session"], (0.0, 0.0))
        before[line["session"]] = (seconds, joules)
        if seconds > earlier_sec:
            found.append((line["kimg"], (joules - earlier_joules) / (seconds - earlier_sec)))
    return _points(found)


def _points(pairs: "Sequence[tuple[float, float | None]] | Any") -> Points:
    known = {float(kimg): float(value) for kimg, value in pairs if value is not None and math.isfinite(value)}
    return sorted(known.items())


def find_curve(group: Group, of: Callable[[Member], Points]) -> Curve | None:
    """The row's curve, if any run has a value."""
    runs = [points for member in group.members if (points := of(member))]
    if not runs:
        return None
    places = _thin(sorted({kimg for points in runs for kimg, _ in points}))
    rows = []
    for kimg in places:
        values = [value for points in runs if (value := _interpolate(points, kimg)) is not None]
        rows.append((kimg, math.fsum(values) / len(values), min(values), max(values)))
    return Curve(group.label, *(tuple(numbers) for numbers in zip(*rows, strict=True)))


def _thin(places: Sequence[float]) -> Sequence[float]:
    if len(places) <= _MOST_POINTS:
        return places
    step = (len(places) - 1) / (_MOST_POINTS - 1)
    return [places[round(index * step)] for index in range(_MOST_POINTS)]


def _interpolate(points: Points, kimg: float) -> float | None:
    """A run's value there by linear interpolation; None outside its range."""
    if not points[0][0] <= kimg <= points[-1][0]:
        return None
    place = bisect_left(points, (kimg, -math.inf))
    (right_kimg, above) = points[place]
    if right_kimg == kimg or place == 0:
        return above
    left_kimg, below = points[place - 1]
    return below + (above - below) * (kimg - left_kimg) / (right_kimg - left_kimg)


def find_dominators(points: Mapping[str, tuple[float, float]]) -> dict[str, str | None]:
    """A dominating row for each: at least as good in both costs, and better in one. None on the front. `points`: two
    costs by name, lower is better.

    >>> find_dominators({"a": (1, 3), "b": (2, 2), "c": (2, 4)})
    {'a': None, 'b': None, 'c': 'a'}
    """

    def better(one: tuple[float, float], other: tuple[float, float]) -> bool:
        return one != other and one[0] <= other[0] and one[1] <= other[1]

    front = {name for name, point in points.items() if not any(better(other, point) for other in points.values())}
    return {
        name: None if name in front else min(other for other in front if better(points[other], point))
        for name, point in points.items()
    }


def find_clear_dominator(name: str, ranges: Mapping[str, tuple[Range, Range]]) -> str | None:
    """A row better in both costs without overlapping ranges, if any. `ranges`: of two costs by name, lower is better.

    >>> ranges = {"a": ((1, 3), (1, 1)), "b": ((4, 5), (2, 2)), "c": ((2, 5), (3, 3))}
    >>> find_clear_dominator("b", ranges), find_clear_dominator("c", ranges)
    ('a', None)
    """
    clear = [
        other
        for other, costs in ranges.items()
        if all(high < low for (_, high), (low, _) in zip(costs, ranges[name], strict=True))
    ]
    return min(clear, default=None)
