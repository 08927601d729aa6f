"""The plot of `gangway bench scaling`: measured efficiencies with their spread, and projections apart from them.

Two panels for two things that must not be taken for one another: left what was measured, points and bars; right what
is projected, dashed and labelled so. PNG and SVG; equal input gives an equal file.
"""

import io

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Sheet
from matplotlib.ticker import PercentFormatter, ScalarFormatter

from stacks.bench.scaling import Study

__all__ = ["draw_scaling"]

# Okabe and Ito's, which colour-blind readers can tell apart.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_QUIET = "#555555"


def draw_scaling(study: Study, kind: str) -> bytes:
    """The plot as bytes of a file of that kind, png or svg."""
    sheet = Sheet(figsize=(11, 4.6), facecolor="white", layout="constrained")
    FigureCanvasAgg(sheet)
    left, right = sheet.subplots(1, 2, sharey=True)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#dddddd", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        axes.axhline(1, color=_QUIET, linewidth=0.8)
    _measured(left, study)
    _projected(right, study)
    left.set_ylim(0, 1.15)
    out = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "gangway"}):
        sheet.savefig(out, format=kind, dpi=130, metadata={"Date": None} if kind == "svg" else {"Software": None})
    return out.getvalue()


def _measured(axes: Axes, study: Study) -> None:
    axes.set_title(f"measured here ({study.device})", fontsize=10)
    axes.set_xlabel("processes")
    axes.set_ylabel("efficiency: images/s of each worker, against one alone")
    for index, mode in enumerate(dict.fromkeys(one.mode for one in study.measured)):
        points = [one for one in study.measured if one.mode == mode]
        counts, medians = [one.workers for one in points], [one.efficiency.median for one in points]
        below = [one.efficiency.median - one.efficiency.low for one in points]
        above = [one.efficiency.high - one.efficiency.median for one in points]
        label = f"{mode}, measured (median, lowest to highest round)"
        axes.errorbar(counts, medians, [below, above], color=_COLOURS[index], fmt="o-", capsize=4, label=label)
    axes.set_xticks(sorted({one.workers for one in study.measured}))
    axes.legend(fontsize=8, loc="lower left", frameon=False)


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
    axes.legend(fontsize=8, loc="lower left", frameon=False)
