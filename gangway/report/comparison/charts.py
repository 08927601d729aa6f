"""Drawings of several runs: curves over images, cost or energy against time, the timeline of interruptions."""

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet
from matplotlib.lines import Line2D

from gangway.render.drawing import BAR, PANEL_INCHES, ROW_INCHES, Drawing, Theme, legend_size, name_rows
from gangway.render.rendering import number
from gangway.report.comparison.groups import Group, Member
from gangway.report.comparison.measures import HOLDS, MEASURES
from gangway.report.comparison.series import (
    METERED,
    Curve,
    Points,
    Range,
    Spread,
    column,
    find_clear_dominator,
    find_curve,
    find_dominators,
    get_spread,
    meters_note,
    quality_points,
    watts,
)

DASHES: Final = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (9, 2)), (0, (3, 1, 1, 1, 1, 1)))
"""Rows differ in dashes too, for readers who cannot tell the colours apart."""
MARKERS: Final = ("o", "s", "^", "D", "v", "P")

_BANDS = "Line: mean over the seeds; band: from the lowest to the highest."
_LABEL_WIDTH = 48


class _Panel(NamedTuple):
    title: str
    curves: tuple[Curve, ...]


def curve_drawings(groups: Sequence[Group]) -> tuple[list[Drawing], list[str]]:
    """Drawings over progress, and a sentence for each that no run has data for."""
    metrics = dict.fromkeys(
        point.name
        for group in groups
        for member in group.members
        if member.record.quality_in_training
        for point in member.record.quality_in_training.points
    )
    meters = sorted({method for group in groups for member in group.members for method in _meters(member)})
    candidates = (
        ("losses", "Losses", [("Loss of the generator", _of("loss_g")), ("Loss of the discriminator", _of("loss_d"))],
         "measured: stats.jsonl of the runs"),
        ("quality", "Quality over images", [(name, partial(quality_points, name=name)) for name in metrics],
         "measured while training: records of the runs"),
        ("throughput", "Throughput", [("Images per second", _of("images_per_sec"))],
         "measured: stats.jsonl of the runs, without the time of quality metrics"),
        ("use", "Use of the machines",
         [("GPU, share of time", _of("gpu_utilisation")), ("CPU, share of cores", _of("cpu_utilisation")),
          ("Memory in use on all nodes, GiB", _of("host_memory_gib"))],
         "measured: stats.jsonl of the runs (NVML for GPUs, process clocks, /proc/meminfo)"),
        ("power", "Power", [("Power of all devices, W", watts)], "; ".join(meters) or "no meter"),
    )  # fmt: skip
    found, lacking = [], []
    for name, title, panels, source in candidates:
        filled = [panel for head, of in panels if (panel := _panel(head, groups, of)).curves]
        empty = [head for head, _ in panels if head not in [panel.title for panel in filled]]
        if filled:
            found.append(_drawing(name, title, filled, groups, source, empty))
        else:
            lacking.append(f"{title}: no run has a line of statistics with it.")
    return found, lacking


def _of(key: str) -> Callable[[Member], Points]:
    return lambda member: column(member, key)


def _meters(member: Member) -> set[str]:
    entries = (line["energy"] for line in reversed(member.ticks) if line.get("energy"))
    last: Mapping[str, tuple[float | None, str, str]] = next(entries, {})
    return {f"{provenance}: {method}" for joules, provenance, method in last.values() if joules is not None}


def _panel(title: str, groups: Sequence[Group], of: Callable[[Member], Points]) -> _Panel:
    return _Panel(title, tuple(curve for group in groups if (curve := find_curve(group, of)) is not None))


def _drawing(
    name: str, title: str, panels: Sequence[_Panel], groups: Sequence[Group], source: str, empty: Sequence[str]
) -> Drawing:
    labels = [group.label for group in groups]

    def paint(sheet: Sheet, axes: Sequence[Axes], theme: Theme) -> None:
        for each, panel in zip(axes, panels, strict=True):
            for curve in panel.curves:
                _draw_curve(each, curve, labels.index(curve.label), theme)
            _dress(each, panel, theme)
        legend(sheet, labels, theme)

    spoken = ". ".join(
        f"{panel.title} at the end: " + ", ".join(f"{curve.label} {number(curve.mean[-1])}" for curve in panel.curves)
        for panel in panels
    )
    several = any(len(group.members) > 1 for group in groups)
    left_out = f" Not drawn, for no line has it: {', '.join(empty)}." if empty else ""
    return Drawing(
        name,
        title,
        f"{title}, over thousands of images. {spoken}.",
        f"{title} over thousands of real images shown (kimg). {_BANDS if several else 'One run a line.'} "
        f"Source: {source}.{left_out}",
        len(panels),
        PANEL_INCHES,
        paint,
        legend_inches(labels),
    )


def look(place: int, theme: Theme) -> tuple[str, object, str]:
    """Colour, dashes and marker of a row; colours repeat with other dashes."""
    count = len(theme.series)
    return theme.series[place % count], DASHES[(place + place // count) % len(DASHES)], MARKERS[place % len(MARKERS)]


def _draw_curve(axes: Axes, curve: Curve, place: int, theme: Theme) -> None:
    colour, dashes, marker = look(place, theme)
    if curve.low != curve.high:
        axes.fill_between(curve.kimg, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0)
    few = len(curve.kimg) <= 12
    axes.plot(
        curve.kimg, curve.mean, color=colour, linestyle=dashes, linewidth=1.6, marker=marker if few else "",
        markersize=4.5,
    )  # fmt: skip


def _dress(axes: Axes, panel: _Panel, theme: Theme) -> None:
    axes.set_title(panel.title, color=theme.ink, pad=8)
    axes.set_xlabel("kimg", color=theme.quiet)
    lowest = min(min(curve.low) for curve in panel.curves)
    highest = max(max(curve.high) for curve in panel.curves)
    # From zero where amounts are compared; a nearly constant quantity still looks constant.
    if lowest >= 0:
        axes.set_ylim(0, highest * 1.08 if highest > 0 and math.isfinite(highest) else 1.0)
    axes.set_xlim(left=0)


def legend(sheet: Sheet, labels: Sequence[str], theme: Theme) -> None:
    """Row names above the panels with colour and dashes; none for a single row."""
    if len(labels) < 2:
        return
    handles = []
    for place, label in enumerate(_wrapped(labels)):
        colour, dashes, marker = look(place, theme)
        handles.append(
            Line2D([], [], color=colour, linestyle=dashes, marker=marker, markersize=4.5, linewidth=1.6, label=label)  # type: ignore[arg-type]
        )
    columns, _ = legend_size(_wrapped(labels))
    sheet.legend(handles=handles, loc="outside upper left", ncols=columns, labelcolor=theme.ink)


def legend_inches(labels: Sequence[str]) -> float:
    """Height of `legend`."""
    return legend_size(_wrapped(labels))[1] if len(labels) > 1 else 0.0


def _wrapped(labels: Sequence[str]) -> list[str]:
    return ["\n".join(textwrap.wrap(label, _LABEL_WIDTH)) or label for label in labels]


_MOST_RUNS = 24
_MOST_LABELS = 12


def front_drawing(groups: Sequence[Group], key: str) -> Drawing | str:
    """Draw the measure `key` against time with the Pareto front, or return why it cannot be drawn."""
    measure = MEASURES[key]
    if key in METERED and (note := meters_note(groups)):
        return f"{measure.label} against time: {note}."
    cells = {group.label: (_cell(group, "total_h"), _cell(group, key)) for group in groups}
    points = {
        label: (time.value, price.value)
        for label, (time, price) in cells.items()
        if time.value is not None and price.value is not None
    }
    lacking = {label: price.source for label, (_, price) in cells.items() if label not in points}
    if not points:
        return f"{measure.label} against time: {'; '.join(dict.fromkeys(lacking.values()))}."
    dominators = find_dominators(points)
    ranges = {label: (_range(cells[label][0]), _range(cells[label][1])) for label in points}
    clear_dominators = {
        label: find_clear_dominator(label, ranges) for label, by in dominators.items() if by is not None
    }
    dominated = _verdicts(dominators, clear_dominators)
    front = [label for label, by in dominators.items() if by is None]
    without = "".join(f" No point for {label}: {reason}." for label, reason in lacking.items())
    alone = "; ".join(group.label for group in groups if len(group.members) == 1)
    by_chance = f" One run alone has no range, and its place may be chance: {alone}." if alone else ""
    provenance = sorted({cells[label][1].provenance for label in points})
    labels = [group.label for group in groups]
    spoken = "; ".join(
        f"{label} {number(x)} h and {number(y, measure.unit)} {measure.unit}" for label, (x, y) in points.items()
    )
    return Drawing(
        f"{key.replace('_', '-')}-time",
        f"{measure.label} against time",
        f"{measure.label} against time. {spoken}. {dominated}",
        f"{measure.label} ({', '.join(provenance).replace('-', ' ')}) against the time of a run (measured), means over "
        "seeds with their range. "
        f"Filled: by means nobody is both faster and {'cheaper' if key == 'usd' else 'more frugal'}: "
        f"{'; '.join(front)}. "
        f"{dominated}{by_chance}{without} {HOLDS}",
        1,
        PANEL_INCHES,
        lambda sheet, axes, theme: _paint_front(sheet, axes, theme, labels, cells, dominators, clear_dominators, key),
        legend_inches(labels),
    )  # fmt: skip


def _verdicts(dominators: Mapping[str, str | None], clear_dominators: Mapping[str, str | None]) -> str:
    """Rows behind with every run, and rows behind by overlapping means: observations, not claims."""
    clear = [f"{label} (by {by})" for label, by in clear_dominators.items() if by is not None]
    close = [f"{label} (behind {dominators[label]})" for label, by in clear_dominators.items() if by is None]
    sentences = [f"Open, behind in both with every run: {'; '.join(clear)}."] if clear else []
    if close:
        sentences.append(f"Half open, behind by means, but runs overlap or are equal: {'; '.join(close)}.")
    return " ".join(sentences) or "Nobody is behind in both."


def _range(cell: Spread) -> Range:
    value = cell.value or 0.0
    return value if cell.low is None else cell.low, value if cell.high is None else cell.high


def _cell(group: Group, key: str) -> Spread:
    return get_spread({member.name: MEASURES[key].of(member) for member in group.members})


def _paint_front(
    sheet: Sheet, axes: Sequence[Axes], theme: Theme, labels: Sequence[str],
    cells: Mapping[str, tuple[Spread, Spread]], dominators: Mapping[str, str | None],
    clear_dominators: Mapping[str, str | None], key: str,
) -> None:  # fmt: skip
    panel = axes[0]
    front = sorted(
        (time.value or 0.0, price.value or 0.0)
        for label, (time, price) in cells.items()
        if label in dominators and dominators[label] is None
    )
    # Stairs: between points of the front nothing is known.
    panel.step(*zip(*front, strict=True), where="post", color=theme.quiet, linewidth=1, linestyle=(0, (4, 2)), zorder=1)
    for label, by in dominators.items():
        time, price = cells[label]
        colour, _, marker = look(labels.index(label), theme)
        x, y = time.value or 0.0, price.value or 0.0
        panel.errorbar(
            [x], [y], xerr=_reach(time), yerr=_reach(price), color=colour, marker=marker, markersize=7.5, capsize=2.5,
            linewidth=1, markerfacecoloralt="none",
            markerfacecolor="none" if clear_dominators.get(label) is not None else colour,
            fillstyle="left" if by is not None and clear_dominators[label] is None else "full", zorder=2,
        )  # fmt: skip
    panel.set_xlabel("time of a run, h", color=theme.quiet)
    panel.set_title(f"{MEASURES[key].label}, {MEASURES[key].unit}", color=theme.ink, pad=8)
    points = [cells[label] for label in dominators]
    panel.set_xlim(0, 1.1 * max(time.high or 0.0 for time, _ in points))
    panel.set_ylim(0, 1.15 * max(price.high or 0.0 for _, price in points) or 1.0)
    legend(sheet, labels, theme)


def _reach(cell: Spread) -> list[list[float]]:
    value, (low, high) = cell.value or 0.0, _range(cell)
    return [[value - low], [high - value]]


def timeline_drawing(groups: Sequence[Group]) -> Drawing:
    """When each run trained and was stopped, since its start."""
    names = {member.name: f"{group.label}, seed {member.record.seed}" for group in groups for member in group.members}
    members = [member for group in groups for member in group.members]
    stopped_first = sorted(members, key=lambda member: not member.record.interruptions)
    drawn = stopped_first[:_MOST_RUNS]
    stops = sum(len(member.record.interruptions) for member in members)
    unit, per = _unit(drawn)
    left_out = f" {len(members) - len(drawn)} more runs are not drawn." if len(members) > len(drawn) else ""

    def paint(sheet: Sheet, axes: Sequence[Axes], theme: Theme) -> None:
        _paint_timeline(axes[0], theme, drawn, names, per, unit, label=stops <= _MOST_LABELS)

    spoken = "; ".join(
        f"{names[member.name]}: {stop.cause} at {number(_hours(member, stop.at))} h"
        for member in drawn
        for stop in member.record.interruptions
    )
    return Drawing(
        "timeline",
        "Interruptions",
        f"Timeline of {len(drawn)} runs, {stops} interruption(s). {spoken or 'None was interrupted'}.",
        f"Bars: sessions, from the first step to the last line. Crosses: interruptions, {stops} in all. "
        f"Source: the sessions in records of the runs, measured.{left_out}",
        1,
        0.6 + ROW_INCHES * len(drawn),
        paint,
    )


def _unit(members: Sequence[Member]) -> tuple[str, float]:
    longest = max(_hours(member, member.record.sessions[-1].end) for member in members)
    return ("h", 1.0) if longest >= 2 else ("min", 60.0) if longest * 60 >= 2 else ("s", 3600.0)


def _hours(member: Member, at: str) -> float:
    began = datetime.fromisoformat(member.record.sessions[0].start)
    return (datetime.fromisoformat(at) - began).total_seconds() / 3600


def _paint_timeline(
    panel: Axes,
    theme: Theme,
    members: Sequence[Member],
    names: Mapping[str, str],
    per: float,
    unit: str,
    *,
    label: bool,
) -> None:
    rows = []
    for row, member in enumerate(members):
        spans = [
            (_hours(member, one.start) * per, (_hours(member, one.end) - _hours(member, one.start)) * per)
            for one in member.record.sessions
        ]
        panel.broken_barh(spans, (row, BAR), facecolors=theme.series[0], linewidth=0)
        for stop in member.record.interruptions:
            at = _hours(member, stop.at) * per
            panel.plot(
                [at],
                [row + BAR / 2],
                marker="X",
                color=theme.series[1],
                markersize=8,
                markeredgecolor=theme.paper,
                zorder=3,
            )
        causes = ", ".join(stop.cause for stop in member.record.interruptions) if label else ""
        rows.append((names[member.name], causes))
    name_rows(panel, theme, rows)
    panel.grid(visible=False, axis="y")
    panel.grid(axis="x", color=theme.grid, linewidth=0.8)
    panel.set_xlabel(f"{unit} since the run began", color=theme.quiet)
    panel.set_xlim(left=0)
