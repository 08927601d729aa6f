"""The plot of `gangway bench scaling`: measured efficiencies with their spread and fit, projections apart from them."""

import io
from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Sheet
from matplotlib.ticker import PercentFormatter, ScalarFormatter

from stacks.bench.scaling import Mode, Study


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


# Okabe and Ito's, which colour-blind readers can tell apart.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_QUIET = "#555555"
_MARKS = {"weak": "o", "strong": "s"}
_BELOW: Mapping[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "fontsize": 8, "frameon": False}
"""Legends stand below the axes: inside, they would lie on points."""


def draw_scaling(study: Study, kind: str) -> bytes:
    """The plot as bytes of a file of that kind, png or svg."""
    panels = 2 if study.projections else 1
    sheet = Sheet(figsize=(5.5 * panels, 5.4), facecolor="white", layout="constrained")
    FigureCanvasAgg(sheet)
    left, *right = sheet.subplots(1, panels, sharey=True, squeeze=False)[0]
    for axes in (left, *right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#dddddd", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        axes.axhline(1, color=_QUIET, linewidth=0.8)
    _measured(left, study)
    for axes in right:
        _projected(axes, study)
    left.set_ylim(0, 1.15)
    out = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "gangway"}):
        sheet.savefig(out, format=kind, dpi=130, metadata={"Date": None} if kind == "svg" else {"Software": None})
    return out.getvalue()


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
            counts, medians, [below, above], color=_COLOURS[index], fmt=_MARKS[mode], capsize=4, label=label, zorder=3
        )
        if curve := fitted(study, mode):
            axes.plot(*zip(*curve, strict=True), color=_COLOURS[index], linewidth=1.4, alpha=0.75, label=labels[mode])
    axes.set_xticks(sorted({one.workers for one in study.measured}))
    axes.legend(**_BELOW)


def _projected(axes: Axes, study: Study) -> None:
    axes.set_title("projected by the model: not measured", fontsize=10, color=_QUIET)
    axes.set_xlabel("accelerators")
    modes = list(dict.fromkeys(one.mode for one in study.projections))
    machines = list(dict.fromkeys(one.machine_type for one in study.projections))
    for one in study.projections:
        counts, _, efficiencies = zip(*one.points, strict=True)
        colour = _COLOURS[machines.index(one.machine_type) % len(_COLOURS)]
        style = ("--", ":")[modes.index(one.mode)]
        axes.plot(counts, efficiencies, style, color=colour, label=f"{one.machine_type}, {one.mode}, projected")
    axes.legend(ncols=2, **_BELOW)
