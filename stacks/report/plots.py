"""Charts as bytes: a light and a dark PNG for the page, an SVG for papers. Here: the frame, cost bars, quality.

Figures are made with matplotlib's objects on its Agg canvas; pyplot and its global state are never touched. Curves
over the run are in `stacks.report.curves`. Colours are two of Okabe and Ito's, told apart by every kind of eye.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Sheet

from stacks.report.rendering import number, unit_text
from trainer.records.quality import QualityRecord

_WIDTH_INCHES = 9.0
_DOTS_PER_INCH = 160


@dataclass(frozen=True)
class Theme:
    """Colours of a chart. `first` is the page's accent."""

    paper: str
    ink: str
    quiet: str
    grid: str
    first: str
    second: str


LIGHT: Final = Theme("#ffffff", "#1c2733", "#5b6875", "#e4e8ec", "#0072b2", "#d55e00")
DARK: Final = Theme("#171c22", "#e6eaee", "#9aa7b4", "#2b333c", "#56b4e9", "#e69f00")


@dataclass(frozen=True)
class Chart:
    """A finished chart.

    Attributes:
        name: of its files, without the ending.
        alt: what it shows, in words and values, for those who cannot see it.
        caption: the sentence under it.
    """

    name: str
    alt: str
    caption: str
    light: bytes
    dark: bytes
    svg: bytes


def render(name: str, alt: str, caption: str, height_inches: float, draw: Callable[[Axes, Theme], None]) -> Chart:
    """Draws a chart once for each use of it."""

    def save(theme: Theme, kind: str) -> bytes:
        sheet = Sheet(figsize=(_WIDTH_INCHES, height_inches), facecolor=theme.paper, layout="constrained")
        FigureCanvasAgg(sheet)
        axes = sheet.add_subplot()
        _quiet_frame(axes, theme)
        draw(axes, theme)
        buffer = io.BytesIO()
        # Equal input gives an equal file: no date, and ids salted with a constant.
        with mpl.rc_context({"svg.hashsalt": "gangway"}):
            sheet.savefig(buffer, format=kind, dpi=_DOTS_PER_INCH, metadata={"Date": None} if kind == "svg" else None)
        return buffer.getvalue()

    return Chart(name, alt, caption, save(LIGHT, "png"), save(DARK, "png"), save(LIGHT, "svg"))


def _quiet_frame(axes: Axes, theme: Theme) -> None:
    axes.set_facecolor(theme.paper)
    axes.tick_params(colors=theme.quiet, labelsize=9, length=0, pad=6)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(theme.grid)
    axes.set_axisbelow(True)


def cost_chart(components: Sequence[Mapping[str, Any]], currency: str) -> Chart | None:
    """Hourly cost by component, dearest first, components without a price last; None when there is nothing to draw.

    Args:
        components: as in the plan's JSON: name, hourly (None when unknown), standby (optional).
        currency: such as USD.
    """
    if not components:
        return None
    rows = sorted(components, key=lambda row: -1.0 if row["hourly"] is None else row["hourly"], reverse=True)
    top = max((row["hourly"] or 0.0 for row in rows), default=0.0) or 1.0

    def draw(axes: Axes, theme: Theme) -> None:
        for place, row in enumerate(rows):
            standby = bool(row.get("standby"))
            axes.barh(
                place,
                row["hourly"] or 0.0,
                height=0.62,
                color="none" if standby else theme.first,
                edgecolor=theme.first,
                linewidth=1,
                linestyle="--" if standby else "-",
            )
            label = "unknown" if row["hourly"] is None else number(row["hourly"], currency)
            _label_bar(axes, theme, row["hourly"] or 0.0, place, f"{label}, standby" if standby else label)
        _name_bars(axes, theme, [str(row["name"]) for row in rows])
        axes.set_xlim(0, top * 1.2)

    spoken = "; ".join(f"{row['name']}: {_hourly_text(row['hourly'], currency)}" for row in rows)
    return render(
        "cost-hourly",
        f"Bar chart of hourly cost in {currency} by component. {spoken}.",
        f"Hourly cost by component, {currency} per hour. Dashed: standby, billed only when a fallback steps in.",
        0.3 + 0.36 * len(rows),
        draw,
    )


def _hourly_text(hourly: float | None, currency: str) -> str:
    return "unknown" if hourly is None else number(hourly, currency)


def _label_bar(axes: Axes, theme: Theme, end: float, place: int, label: str) -> None:
    axes.annotate(label, (end, place), (6, 0), textcoords="offset points", va="center", fontsize=9, color=theme.ink)


def _name_bars(axes: Axes, theme: Theme, names: Sequence[str]) -> None:
    """Names on the left, dearest on top, no axis for what is written beside each bar."""
    # A dollar sign in a name is a dollar sign, not mathematics.
    axes.set_yticks(range(len(names)), names, color=theme.ink, fontsize=9, parse_math=False)
    axes.invert_yaxis()
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)


def quality_chart(quality: QualityRecord) -> Chart | None:
    """The three values of a quality metric on one line; None when one of them is absent."""
    named = [
        ("untrained", quality.untrained),
        ("trained", quality.trained),
        ("real against real", quality.real_vs_real),
    ]
    values = [(label, figure.value) for label, figure in named if figure.value is not None]
    if len(values) < len(named):
        return None

    def draw(axes: Axes, theme: Theme) -> None:
        colours = (theme.quiet, theme.first, theme.quiet)
        top = max(value for _, value in values) or 1.0
        for place, ((_, value), colour) in enumerate(zip(values, colours, strict=True)):
            axes.barh(place, value, height=0.5, color=colour)
            _label_bar(axes, theme, value, place, number(value))
        _name_bars(axes, theme, [label for label, _ in values])
        axes.set_xlim(0, top * 1.1)

    spoken = ", ".join(f"{label} {number(value)}" for label, value in values)
    unit = f", {unit_text(quality.trained.unit)}" if quality.trained.unit else ""
    return render(
        f"quality-{_slug(quality.name)}",
        f"Bar chart of {quality.name}: {spoken}. {quality.better.capitalize()} is better.",
        f"{quality.name}{unit}; {quality.better} is better.",
        1.4,
        draw,
    )


def _slug(text: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in text.lower())
