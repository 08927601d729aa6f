"""The plot of `gangway bench scaling`: measured efficiencies with their spread and fit, projections apart from them."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter, ScalarFormatter

from stacks.bench.scaling import Mode, Study
from stacks.report.drawing import LIGHT, draw

_MARKS = {"weak": "o", "strong": "s"}
_BELOW: Mapping[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "fontsize": 8, "frameon": False}
"""Legends stand below the axes: inside, they would lie on points."""


def fitted(study: Study, mode: Mode, number: int = 65) -> list[tuple[float, float]]:
    """Workers (1 up to the most measured, even on a logarithmic axis) and the efficiency that the fit says of them.
    `mode`: weak or strong; `number`: of points, two at least. Returns nothing where one process alone was measured, and
    of weak scaling where no all-reduce was timed.
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
    """The plot as bytes of a file of that kind, png or svg."""
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
        _measured(sheets[0], study)
        for axes in sheets[1:]:
            _projected(axes, study)

    return draw(paint, kind, LIGHT, (5.5 * panels, 5.4), panels=panels, dots_per_inch=130)


def _measured(axes: Axes, study: Study) -> None:
    axes.set_title(f"measured here ({study.device})", fontsize=10)
    axes.set_xlabel("processes")
    axes.set_ylabel("efficiency: images/s of each worker, against one alone")
    labels = {"weak": "weak, fit: one alone + all-reduce"}
    if study.fit is not None:
        beside = "" if study.untimed else " + all-reduce"
        labels["strong"] = f"strong, fit: serial share {study.fit.serial_share:.1%}{beside}"
    for index, mode in enumerate(dict.fromkeys(one.mode for one in study.measured)):
        points = [one for one in study.measured if one.mode == mode]
        counts, medians = [one.workers for one in points], [one.efficiency.median for one in points]
        below = [one.efficiency.median - one.efficiency.low for one in points]
        above = [one.efficiency.high - one.efficiency.median for one in points]
        label = f"{mode}, measured: median, lowest to highest round"
        axes.errorbar(
            counts,
            medians,
            [below, above],
            color=LIGHT.series[index],
            fmt=_MARKS[mode],
            capsize=4,
            label=label,
            zorder=3,
        )
        if curve := fitted(study, mode):
            axes.plot(
                *zip(*curve, strict=True), color=LIGHT.series[index], linewidth=1.4, alpha=0.75, label=labels[mode]
            )
    axes.set_xticks(sorted({one.workers for one in study.measured}))
    axes.legend(**_BELOW)


def _projected(axes: Axes, study: Study) -> None:
    axes.set_title("projected by the model: not measured", fontsize=10, color=LIGHT.quiet)
    axes.set_xlabel("accelerators")
    modes = list(dict.fromkeys(one.mode for one in study.projections))
    machines = list(dict.fromkeys(one.machine_type for one in study.projections))
    for one in study.projections:
        counts, _, efficiencies = zip(*one.points, strict=True)
        colour = LIGHT.series[machines.index(one.machine_type) % len(LIGHT.series)]
        style = ("--", ":")[modes.index(one.mode)]
        axes.plot(counts, efficiencies, style, color=colour, label=f"{one.machine_type}, {one.mode}, projected")
    axes.legend(ncols=2, **_BELOW)
