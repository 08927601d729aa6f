"""The plot of `gangway bench scaling`: measured efficiencies with spread and fit, projections apart."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter, ScalarFormatter

from gangway.bench.scaling import Mode, Study
from gangway.render.drawing import LIGHT, PANEL_INCHES, draw, legend_size

_MARKS = {"weak": "o", "strong": "s"}
_BELOW: Mapping[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0, -0.2), "borderaxespad": 0}
"""Legends are below the axes, where they cover no points."""


def fit_curve(study: Study, mode: Mode, number: int = 65) -> list[tuple[float, float]]:
    """Points of the fitted curve: workers (1 to the most measured, log-spaced) and efficiency. `mode`: weak or strong;
    `number`: at least two. Empty with a single process, or for weak scaling without timed all-reduces.
    """
    points = sorted((one for one in study.measured if one.mode == mode), key=lambda one: one.workers)
    largest = points[-1].workers if points else 1
    if largest == 1 or (mode == "weak" and study.untimed):
        return []
    counts = [one.workers for one in points]
    waits = [one.all_reduce_sec or 0.0 for one in points]
    alone = points[0].step_sec.median
    curve = []
    for n in (largest ** (index / (number - 1)) for index in range(number)):
        wait = float(np.interp(n, counts, waits))
        if mode == "weak":
            curve.append((n, alone / (alone + wait)))
        elif study.fit is not None:
            curve.append((n, alone / (n * study.fit.step_sec(n, wait))))
    return curve


def draw_scaling(study: Study, kind: Literal["png", "svg"]) -> bytes:
    """Draw the plot as bytes of a file of that kind."""
    panels = 2 if study.projections else 1

    def paint(_: object, sheets: Sequence[Axes]) -> None:
        for axes in sheets:
            axes.spines["left"].set(visible=True, color=LIGHT.grid)
            axes.grid(color=LIGHT.grid, linewidth=0.8)
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(ScalarFormatter())
            axes.yaxis.set_major_formatter(PercentFormatter(1))
            axes.axhline(1, color=LIGHT.quiet, linewidth=0.8)
            axes.set_ylim(0, 1.15)
        _draw_measured(sheets[0], study)
        for axes in sheets[1:]:
            _draw_projected(axes, study)

    legends = [_measured_labels(study).values(), _projected_labels(study)][:panels]
    inches = PANEL_INCHES + max(legend_size(list(labels))[1] for labels in legends)
    return draw(paint, kind, LIGHT, inches=inches, panels=panels)


def _draw_measured(axes: Axes, study: Study) -> None:
    axes.set_title(f"measured here ({study.device})")
    axes.set_xlabel("processes")
    axes.set_ylabel("efficiency of a worker")
    labels = _measured_labels(study)
    for index, mode in enumerate(dict.fromkeys(one.mode for one in study.measured)):
        points = [one for one in study.measured if one.mode == mode]
        counts, medians = [one.workers for one in points], [one.efficiency.median for one in points]
        below = [one.efficiency.median - one.efficiency.low for one in points]
        above = [one.efficiency.high - one.efficiency.median for one in points]
        axes.errorbar(
            counts,
            medians,
            [below, above],
            color=LIGHT.series[index],
            fmt=_MARKS[mode],
            capsize=4,
            label=labels[mode, "measured"],
            zorder=3,
        )
        if curve := fit_curve(study, mode):
            axes.plot(
                *zip(*curve, strict=True),
                color=LIGHT.series[index],
                linewidth=1.4,
                alpha=0.75,
                label=labels[mode, "fit"],
            )
    axes.set_xticks(sorted({one.workers for one in study.measured}))
    axes.legend(**_BELOW)


def _measured_labels(study: Study) -> dict[tuple[Mode, str], str]:
    found: dict[tuple[Mode, str], str] = {}
    for mode in dict.fromkeys(one.mode for one in study.measured):
        found[mode, "measured"] = f"{mode}, measured: median, lowest to highest"
        found[mode, "fit"] = f"{mode}, fit: one alone + all-reduce"
        if mode == "strong" and study.fit is not None:
            beside = "" if study.untimed else " + all-reduce"
            found[mode, "fit"] = f"strong, fit: serial share {study.fit.serial_share:.1%}{beside}"
    return found


def _projected_labels(study: Study) -> list[str]:
    return [f"{one.machine_type}, {one.mode}" for one in study.projections]


def _draw_projected(axes: Axes, study: Study) -> None:
    axes.set_title("projected by the model: not measured", color=LIGHT.quiet)
    axes.set_xlabel("accelerators")
    modes = list(dict.fromkeys(one.mode for one in study.projections))
    machines = list(dict.fromkeys(one.machine_type for one in study.projections))
    labels = _projected_labels(study)
    for one, label in zip(study.projections, labels, strict=True):
        counts, _, efficiencies = zip(*one.points, strict=True)
        colour = LIGHT.series[machines.index(one.machine_type) % len(LIGHT.series)]
        style = ("--", ":")[modes.index(one.mode)]
        axes.plot(counts, efficiencies, style, color=colour, label=label)
    axes.legend(ncols=legend_size(labels)[0], **_BELOW)
