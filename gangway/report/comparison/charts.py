"""Drawings of several runs: losses, quality, throughput, use, power, cost against time."""

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet

from gangway.render.drawing import PANEL_INCHES, Drawing, Theme, legend_size
from gangway.render.rendering import number
from gangway.report.comparison.groups import Group, Member
from gangway.report.comparison.series import Curve, Points, column, find_curve, quality_points, watts

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
    """How the run's power is known, by its last line that says so."""
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
    from matplotlib.lines import Line2D

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
