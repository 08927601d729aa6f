"""Curves over a run and over its seeds, as numbers: what the drawings draw. Pure, no plotting here.

Progress is thousands of images. Seeds are averaged where they have values; the band is from the lowest to the highest.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from stacks.report.several.groups import Group
from stacks.report.several.members import Member

__all__ = ["Curve", "Points", "Range", "apart_from", "column", "curve_of", "dominated_by", "quality_points", "watts"]

Points = Sequence[tuple[float, float]]
"""Progress and value, ascending."""
Range = tuple[float, float]
"""The least and the greatest of a row's runs."""
_MOST_POINTS = 240
"""More than a page is wide would be drawn over each other."""


class Curve(NamedTuple):
    """Mean and band of a row's runs.

    Attributes:
        label: the row's.
        kimg: thousands of images, ascending.
        mean: over the runs that reach so far.
        low: the least of them.
        high: the greatest.
    """

    label: str
    kimg: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def column(member: Member, key: str) -> Points:
    """A column of a run's statistics. Of images that were shown twice, after an interruption, the later line counts."""
    return _points((line["kimg"], line.get(key)) for line in member.ticks)


def quality_points(member: Member, name: str) -> Points:
    """A quality metric as it was computed while training."""
    history = member.record.quality_in_training
    found = [] if history is None else [(one.kimg, one.value) for one in history.points if one.name == name]
    return _points(found)


def watts(member: Member) -> Points:
    """Mean power of all devices from one line to the next, W."""
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


def curve_of(group: Group, of: Callable[[Member], Points]) -> Curve | None:
    """The row's curve; None where no run has a value."""
    runs = [points for member in group.members if (points := of(member))]
    if not runs:
        return None
    places = _thinned(sorted({kimg for points in runs for kimg, _ in points}))
    rows = []
    for kimg in places:
        values = [value for points in runs if (value := _at(points, kimg)) is not None]
        rows.append((kimg, math.fsum(values) / len(values), min(values), max(values)))
    return Curve(group.label, *(tuple(numbers) for numbers in zip(*rows, strict=True)))


def _thinned(places: Sequence[float]) -> Sequence[float]:
    """At most so many, the first and the last among them."""
    if len(places) <= _MOST_POINTS:
        return places
    step = (len(places) - 1) / (_MOST_POINTS - 1)
    return [places[round(index * step)] for index in range(_MOST_POINTS)]


def _at(points: Points, kimg: float) -> float | None:
    """A run's value there, on the line between its neighbours; None outside of what it covers."""
    if not points[0][0] <= kimg <= points[-1][0]:
        return None
    place = bisect_left(points, (kimg, -math.inf))
    (right, above) = points[place]
    if right == kimg or place == 0:
        return above
    left, below = points[place - 1]
    return below + (above - below) * (kimg - left) / (right - left)


def dominated_by(points: Mapping[str, tuple[float, float]]) -> dict[str, str | None]:
    """Who is beaten by whom: at least as good in both costs, and better in one. None for those on the front.

    Args:
        points: two costs by name, both better when lower.

    >>> dominated_by({"a": (1, 3), "b": (2, 2), "c": (2, 4)})
    {'a': None, 'b': None, 'c': 'a'}
    """

    def better(one: tuple[float, float], other: tuple[float, float]) -> bool:
        return one != other and one[0] <= other[0] and one[1] <= other[1]

    front = {name for name, point in points.items() if not any(better(other, point) for other in points.values())}
    return {
        name: None if name in front else min(other for other in front if better(points[other], point))
        for name, point in points.items()
    }


def apart_from(name: str, ranges: Mapping[str, tuple[Range, Range]]) -> str | None:
    """Who beats a row in both costs so that no run of the one reaches into the runs of the other; None for nobody.

    Args:
        name: of the row.
        ranges: of two costs by name, both better when lower.

    >>> ranges = {"a": ((1, 3), (1, 1)), "b": ((4, 5), (2, 2)), "c": ((2, 5), (3, 3))}
    >>> apart_from("b", ranges), apart_from("c", ranges)
    ('a', None)
    """
    clear = [
        other
        for other, costs in ranges.items()
        if all(high < low for (_, high), (low, _) in zip(costs, ranges[name], strict=True))
    ]
    return min(clear, default=None)
