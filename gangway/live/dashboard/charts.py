"""Small line charts as inline SVG: no scripts and no style attributes; colours and dashes are classes of the CSS."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from gangway.render.rendering import number

_WIDTH, _HEIGHT = 560, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 12, 12, 28
_TICKS = 4
MOST_SERIES = 6
"""As many colours and dashes as the CSS has."""


class Series(NamedTuple):
    """A line: (kimg, value) with gaps where a value is None."""

    label: str
    points: Sequence[tuple[float, float | None]]

    @property
    def known(self) -> list[tuple[float, float]]:
        """Points with a value."""
        return [(kimg, value) for kimg, value in self.points if value is not None and math.isfinite(value)]


class Chart(NamedTuple):
    """A figure of a page. `empty`: why there is nothing to draw; `legend`: (class number, label)."""

    title: str
    svg: Markup
    empty: str
    legend: tuple[tuple[int, str], ...]
    source: str


def get_ticks(low: float, high: float) -> list[float]:
    """Round values from at most `low` to at least `high`.

    >>> get_ticks(0, 93), get_ticks(2.5, 2.5)
    ([0.0, 50.0, 100.0], [2.0, 2.5, 3.0])
    """
    if high <= low:
        step = (abs(low) or 1.0) / 5
        low, high = low - step, high + step
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(place * step, 12) for place in range(first, last + 1)]


def line_chart(title: str, unit: str, lines: Sequence[Series], source: str, *, from_zero: bool = False) -> Chart:
    """All lines on one axis of thousands of images. `from_zero`: the axis begins at 0."""
    shown = [(place, line) for place, line in enumerate(lines[:MOST_SERIES], 1) if line.known]
    legend = tuple((place, line.label) for place, line in shown)
    if not shown:
        return Chart(title, Markup(""), "no values yet", (), source)
    every = [point for _, line in shown for point in line.known]
    ticks = get_ticks(0.0 if from_zero else min(value for _, value in every), max(value for _, value in every))
    most_kimg = max(kimg for kimg, _ in every) or 1.0
    ends = "; ".join(f"{line.label}: {number(line.known[-1][1], unit)} {unit}".strip() for _, line in shown)
    words = f"Line chart: {title} over thousands of images, up to {number(most_kimg)} kimg. At the end {ends}."

    def place_x(kimg: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * kimg / most_kimg

    def place_y(value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * (value - ticks[0]) / (ticks[-1] - ticks[0])

    parts = [Markup('<svg role="img" viewBox="0 0 {} {}" aria-label="{}">').format(_WIDTH, _HEIGHT, words)]
    for tick in ticks:
        at = f"{place_y(tick):.1f}"
        parts.append(Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(_LEFT, _WIDTH, at, at))
        parts.append(Markup('<text class="y" x="{}" y="{}" dy="4">{}</text>').format(_LEFT - 8, at, number(tick)))
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        kimg = most_kimg * share
        at = f"{place_x(kimg):.1f}"
        text = f"{number(float(f'{kimg:.3g}'))}{' kimg' if share == 1 else ''}"
        parts.append(Markup('<text text-anchor="{}" x="{}" y="{}">{}</text>').format(anchor, at, _HEIGHT - 8, text))
    for place, line in shown:
        path = _path([(place_x(kimg), None if value is None else place_y(value)) for kimg, value in line.points])
        parts.append(Markup('<path class="line s{}" d="{}"/>').format(place, path))
    return Chart(title, Markup("").join([*parts, Markup("</svg>")]), "", legend, source)


def _path(points: Sequence[tuple[float, float | None]]) -> str:
    """A gap begins a new part; a point between gaps is a short line, so that it is seen."""
    commands, is_open = list[str](), False
    for x, y in points:
        if y is None or not math.isfinite(y):
            is_open = False
            continue
        commands.append(f"{'L' if is_open else 'M'}{x:.1f} {y:.1f}" + ("" if is_open else "h.1"))
        is_open = True
    return "".join(commands)
