"""The plot of `gangway tco`: both bills month by month, and the break-even month by use. PNG and SVG.

Drawn with matplotlib's objects on its Agg canvas, as the report's charts are, in their colours. Equal input gives an
equal file.
"""

import io
import math
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Sheet
from matplotlib.ticker import MultipleLocator

from components.cost import HOURS_PER_MONTH
from components.findings import InputError
from components.tco import RULE_MONTHS, RULE_UTILISATION, break_even_months, cloud_usd, onprem_usd
from stacks.quotes.tco_tables import Tco
from stacks.report.plots import LIGHT

__all__ = ["draw_plot", "write_plot"]

_KINDS = ("png", "svg")


def write_plot(answer: Tco, out: Path) -> list[Path]:
    """Writes `out` with the endings .png and .svg; an ending that is there already is replaced.

    Raises:
        InputError: the files cannot be written.
    """
    if not out.name:
        place, fix = "a path that ends with a name", "write --out tco"
        raise InputError("--out", "names no file", value=str(out), allowed=place, fix=fix)
    stem = out.with_suffix("") if out.suffix.lstrip(".") in _KINDS else out
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in _KINDS]
    # All is drawn before anything is written.
    drawn = {path: draw_plot(answer, kind) for path, kind in zip(paths, _KINDS, strict=True)}
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        for path, content in drawn.items():
            path.write_bytes(content)
    except OSError as error:
        raise InputError(
            "--out", f"cannot be written: {error.strerror}", value=str(out), fix="name a file in a folder of yours"
        ) from None
    return paths


def draw_plot(answer: Tco, kind: str) -> bytes:
    """The plot as bytes of a file of that kind."""
    sheet = Sheet(figsize=(11, 4.4), facecolor=LIGHT.paper, layout="constrained")
    FigureCanvasAgg(sheet)
    left, right = sheet.subplots(1, 2)
    for axes in (left, right):
        axes.set_facecolor(LIGHT.paper)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=LIGHT.quiet, labelsize=9)
        axes.grid(color=LIGHT.grid, linewidth=0.8)
        axes.set_axisbelow(True)
    _draw_bills(left, answer)
    _draw_break_even(right, answer)
    buffer = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "gangway"}):
        sheet.savefig(buffer, format=kind, dpi=120, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()


def _draw_bills(axes: Axes, answer: Tco) -> None:
    """What has been paid by each month, in millions; what owning costs is net of the resale."""
    inputs = answer.inputs
    end = inputs.hours / HOURS_PER_MONTH
    months = [0.0, end]
    million = inputs.num_nodes / 1e6
    rented = [cloud_usd(inputs.cloud, month * HOURS_PER_MONTH) * million for month in months]
    owned = [onprem_usd(inputs.onprem, month * HOURS_PER_MONTH) * million for month in months]
    use = inputs.value("utilisation")
    axes.plot(months, rented, color=LIGHT.first, linewidth=2, label=f"rented on demand, {use:.0%} used")
    axes.plot(months, owned, color=LIGHT.second, linewidth=2, label="owned, net of resale")
    for each in answer.reserved[:1]:
        axes.plot(
            months,
            [0.0, each.usd / 1e6],
            color=LIGHT.first,
            linestyle="--",
            label=f"{each.short}, paid in any case",
        )
    if answer.months <= end:
        paid = onprem_usd(inputs.onprem, answer.months * HOURS_PER_MONTH) * million
        axes.plot([answer.months], [paid], "o", color=LIGHT.ink)
        axes.annotate(
            f"month {answer.months:.1f}",
            (answer.months, paid),
            (8, -14),
            textcoords="offset points",
            color=LIGHT.ink,
            fontsize=10,
        )
    nodes = f"{inputs.num_nodes} x {inputs.accelerator}"
    axes.set_title(f"{nodes}: paid so far", loc="left", fontsize=11, color=LIGHT.ink)
    axes.set_xlabel("months", color=LIGHT.quiet)
    axes.set_ylabel("million USD", color=LIGHT.quiet)
    axes.set_xlim(0, end)
    axes.xaxis.set_major_locator(MultipleLocator(6 if end <= 60 else 24))
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=9, labelcolor=LIGHT.ink, loc="upper left")


def _draw_break_even(axes: Axes, answer: Tco) -> None:
    """The month from which on owning is cheaper, by use, with the rule of thumb as a box."""
    inputs = answer.inputs
    top = max(48.0, inputs.years * 12)
    shares = [share / 200 for share in range(10, 201)]
    points = [(share, break_even_months(inputs.cloud.at(share), inputs.onprem)) for share in shares]
    shown = [(share * 100, month) for share, month in points if not math.isinf(month)]
    axes.plot([use for use, _ in shown], [month for _, month in shown], color=LIGHT.second, linewidth=2)
    (low, high), (first, last) = RULE_UTILISATION, RULE_MONTHS
    axes.fill_between([low * 100, high * 100], first, last, color=LIGHT.first, alpha=0.18, linewidth=0)
    axes.annotate(
        "rule of thumb", ((low + high) * 50, last), (0, 4), textcoords="offset points", ha="center", fontsize=9,
        color=LIGHT.first,
    )  # fmt: skip
    if 0 < answer.utilisation <= 1:
        use, month = answer.utilisation * 100, inputs.years * 12
        axes.plot([use], [month], "o", color=LIGHT.ink)
        axes.annotate(
            f"{use:.0f} % over {inputs.years:g} years", (use, month), (8, 4), textcoords="offset points", fontsize=10,
            color=LIGHT.ink,
        )  # fmt: skip
    axes.set_title("owning is cheaper above the line", loc="left", fontsize=11, color=LIGHT.ink)
    axes.set_xlabel("utilisation, %", color=LIGHT.quiet)
    axes.set_ylabel("months", color=LIGHT.quiet)
    axes.set_xlim(0, 100)
    axes.set_ylim(0, top)
