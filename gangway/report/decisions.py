"""A controller's decisions on the pages of one run, several runs and an experiment: a drawing and a table."""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from types import MappingProxyType
from typing import Any, NamedTuple

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet
from matplotlib.lines import Line2D

from gangway.render.drawing import PANEL_INCHES, Drawing, Theme, legend_size
from gangway.render.rendering import kimg_text, moment, number
from gangway.trainer.records.decisions import CONTROLLER, DecisionRecord, Fate
from gangway.trainer.records.run_record import RunRecord

_CLOCK_SEC = 0.001
"""Records have times to a millisecond, lines of statistics finer ones."""
_ROWS = 2
"""Rows of numbers above the line, against overlaps."""


class _Look(NamedTuple):
    """Of a mark. `series`: index of its colour in the theme; None for the ink's."""

    words: str
    series: int | None
    marker: str


_LOOKS: Mapping[Fate, _Look] = MappingProxyType(
    {
        "kept": _Look("kept", 2, "o"),
        "undone": _Look("undone", 1, "X"),
        "failed": _Look("failed", 3, "^"),
        "observed": _Look("observed, not done", 4, "D"),
        "dropped": _Look("dropped with its session", 5, "v"),
        "unjudged": _Look("not judged", 5, "s"),
        "undoing": _Look("undoes another", None, "<"),
    }
)


class Pace(NamedTuple):
    """A run over its training. `images_per_sec`: NaN leaves a gap; `places`: the line before each decision."""

    label: str
    seconds: Sequence[float]
    images_per_sec: Sequence[float]
    places: Sequence[int]
    decisions: Sequence[DecisionRecord]
    neighbour_sec: Sequence[Sequence[float]] = ()


class DecisionRow(NamedTuple):
    """A line of the table; `fate` in one word, `words` the details."""

    number: int
    at: str
    kimg: str
    knob: str
    change: str
    policy: str
    reason: str
    expected: str
    fate: str
    words: str


@dataclass(frozen=True)
class Decided:
    """A controller on a page. `name`: of its ids, unique on the page; `drawing`: None without lines of statistics."""

    name: str
    choice: str
    rows: tuple[DecisionRow, ...]
    drawing: Drawing | None

    @property
    def svg(self) -> Markup:
        """The drawing inline; matplotlib has escaped its text."""
        return Markup("" if self.drawing is None else self.drawing.for_page())


def find_decided(record: RunRecord, stats: Sequence[Mapping[str, Any]], name: str) -> Decided | None:
    """A run's controller with the lines of its stats.jsonl; None without one."""
    if not record.has_controller:
        return None
    pace = find_pace(record, stats)
    drawing = None if pace is None else decisions_drawing(name, f"Run {record.id}", (pace,))
    return Decided(name, record.choices.get(CONTROLLER, ""), get_rows(record.decisions), drawing)


def get_rows(decisions: Sequence[DecisionRecord]) -> tuple[DecisionRow, ...]:
    """The rows of the table."""
    return tuple(
        DecisionRow(
            place,
            moment(one.at),
            kimg_text(one.images),
            one.knob,
            f"{one.was} → {one.value}",
            one.policy,
            one.reason,
            f"{one.expected_gain:+.0%}",
            _LOOKS[one.fate].words,
            one.brought or one.why,
        )
        for place, one in enumerate(decisions, 1)
    )


def counted(decisions: Sequence[DecisionRecord]) -> str:
    """Counts by outcome as text."""
    counts = Counter(one.fate for one in decisions)
    parts = [f"{counts[fate]} {look.words}" for fate, look in _LOOKS.items() if counts[fate]]
    return f"{len(decisions)} decision{'' if len(decisions) == 1 else 's'}{': ' * bool(parts)}{', '.join(parts)}"


def decisions_drawing(name: str, whose: str, paces: Sequence[Pace]) -> Drawing:
    """Images per second over training, the controlled run last; decisions are numbered as in the table."""
    fates = [fate for fate in _LOOKS if any(one.fate == fate for pace in paces for one in pace.decisions)]
    labels = [*([pace.label for pace in paces] if len(paces) > 1 else []), *(_LOOKS[fate].words for fate in fates)]
    unit, divisor = _unit(paces)
    every = [one for pace in paces for one in pace.decisions]
    speeds = [value for pace in paces for value in pace.images_per_sec if math.isfinite(value)]

    def paint(sheet: Sheet, axes: Sequence[Axes], theme: Theme) -> None:
        _paint(axes[0], paces, divisor, theme)
        axes[0].set_xlabel(f"{unit} of training", color=theme.quiet)
        axes[0].set_title("Images per second", color=theme.ink, pad=8)
        if labels:
            lines = (
                Line2D([], [], label=pace.label, **_line_look(place, paces, theme))
                for place, pace in enumerate(paces if len(paces) > 1 else ())
            )
            handles = [*lines, *(_mark(fate, theme) for fate in fates)]
            sheet.legend(handles=handles, loc="outside upper left", ncols=legend_size(labels)[0], labelcolor=theme.ink)

    top = f", at most {number(max(speeds))}" if speeds else ""
    shaded = " Shaded, in the colour of its run: a neighbour took cores." if any(p.neighbour_sec for p in paces) else ""
    return Drawing(
        name,
        "Decisions over time",
        f"{whose}: images per second over {unit} of training{top}; {counted(every)}.",
        f"{whose}: images per second over {unit} of training, without quality metrics; {counted(every)}, numbered as "
        f"in the table.{shaded} Source: measured, stats.jsonl.",
        1,
        PANEL_INCHES,
        paint,
        legend_size(labels)[1] if labels else 0.0,
    )


def find_pace(record: RunRecord, stats: Sequence[Mapping[str, Any]]) -> Pace | None:
    """All sessions in a row; None without a line with a time."""
    ticks = [line for line in stats if "event" not in line]
    timed = [line for line in ticks if line.get("time") is not None and line.get("wall_sec") is not None]
    seconds, rates, times = list[float](), list[float](), list[float]()
    for _, lines in groupby(timed, key=lambda line: line["session"]):
        before, own = seconds[-1] if seconds else 0.0, list(lines)
        if seconds:  # A gap, so that nothing joins two sessions.
            seconds.append(before)
            rates.append(math.nan)
            times.append(own[0]["time"])
        seconds += [before + line["wall_sec"] - (line.get("metrics_sec") or 0.0) for line in own]
        rates += [math.nan if (speed := line.get("images_per_sec")) is None else speed for line in own]
        times += [line["time"] for line in own]
    if not seconds:
        return None
    moments = (datetime.fromisoformat(one.at).timestamp() + _CLOCK_SEC for one in record.decisions)
    places = [max(0, bisect_right(times, at) - 1) for at in moments]
    return Pace(record.id, seconds, rates, places, record.decisions)


def _unit(paces: Sequence[Pace]) -> tuple[str, float]:
    longest = max((sec for pace in paces for sec in pace.seconds if math.isfinite(sec)), default=0.0)
    return ("seconds", 1.0) if longest <= 180 else ("minutes", 60.0) if longest <= 3 * 3600 else ("hours", 3600.0)


def _line_look(place: int, paces: Sequence[Pace], theme: Theme) -> dict[str, Any]:
    last = place == len(paces) - 1
    return {"color": theme.series[0] if last else theme.quiet, "linestyle": "-" if last else "--", "linewidth": 1.6}


def _mark(fate: Fate, theme: Theme) -> Line2D:
    look = _LOOKS[fate]
    return Line2D([], [], linestyle="", marker=look.marker, markersize=6, color=_colour(look, theme), label=look.words)


def _colour(look: _Look, theme: Theme) -> str:
    return theme.ink if look.series is None else theme.series[look.series]


def _paint(axes: Axes, paces: Sequence[Pace], divisor: float, theme: Theme) -> None:
    speeds = [value for pace in paces for value in pace.images_per_sec if math.isfinite(value)]
    ends = [sec for pace in paces for sec in pace.seconds if math.isfinite(sec)]
    axes.set_xlim(0, (max(ends, default=0.0) / divisor or 1.0) * 1.02)
    axes.set_ylim(0, (max(speeds, default=0.0) or 1.0) * 1.45)
    row_ends, index = [-math.inf] * _ROWS, 0
    for place, pace in enumerate(paces):
        look = _line_look(place, paces, theme)
        axes.plot([sec / divisor for sec in pace.seconds], pace.images_per_sec, **look)
        for low, high in pace.neighbour_sec:
            axes.axvspan(low / divisor, high / divisor, color=look["color"], alpha=0.1, linewidth=0, zorder=0)
        for at, one in zip(pace.places, pace.decisions, strict=True):
            index += 1
            speed = pace.images_per_sec[at]
            colour = _colour(_LOOKS[one.fate], theme)
            point = pace.seconds[at] / divisor, speed if math.isfinite(speed) else 0.0
            axes.plot(*point, marker=_LOOKS[one.fate].marker, markersize=6, color=colour, zorder=4)
            _number(axes, point, index, row_ends, theme)


def _number(axes: Axes, point: tuple[float, float], index: int, row_ends: list[float], theme: Theme) -> None:
    """Number a mark in the first row with room, if any. `row_ends`: the right end of each row."""
    share = point[0] / axes.get_xlim()[1]
    row = next((row for row, until in enumerate(row_ends) if share >= until), None)
    if row is None:
        return
    row_ends[row] = share + 0.03 + 0.025 * len(str(index))
    height = 0.98 - 0.13 * row
    axes.text(
        point[0], height, str(index), transform=axes.get_xaxis_transform(), ha="center", va="top", color=theme.ink
    )
    foot = (height - 0.12) * axes.get_ylim()[1]
    axes.plot([point[0]] * 2, [point[1], foot], color=theme.quiet, linewidth=0.7, linestyle=":", zorder=1)
