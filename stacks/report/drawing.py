"""One way to draw for all pictures: matplotlib's objects on its Agg canvas (pyplot and its global state are never
touched), a quiet frame, colours told apart by every kind of eye (after Okabe and Ito), and equal bytes for equal input.
"""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Sheet

WIDTH_INCHES = 9.0
Paint = Callable[[Sheet, Sequence[Axes]], None]
"""Draws on a sheet whose panels are ready."""


@dataclass(frozen=True)
class Theme:
    """Colours of a picture: `series` in their order, `quiet` for what is beside the point, `paper` behind all."""

    ink: str
    quiet: str
    grid: str
    paper: str
    series: tuple[str, ...]


LIGHT: Final = Theme(
    "#1c2733", "#5b6875", "#e4e8ec", "#ffffff", ("#0072b2", "#d55e00", "#007a59", "#a8477f", "#8a6100", "#5b6875")
)
DARK: Final = Theme("#e6eaee", "#9aa7b4", "#2b333c", "#171c22", ("#56b4e9", "#e69f00"))


def draw(
    paint: Paint,
    kind: Literal["png", "svg", "pdf"],
    theme: Theme,
    inches: tuple[float, float],
    *,
    panels: int = 1,
    salt: str = "gangway",
    svg_fonts: Literal["path", "none"] = "path",
    transparent: bool = False,
    dots_per_inch: int = 160,
) -> bytes:
    """The file's content. `panels` stand side by side; `salt` begins the ids of an SVG, whose text stays text with
    `svg_fonts` none.
    """
    buffer = io.BytesIO()
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}[kind]
    with mpl.rc_context(
        {
            "text.parse_math": False,  # a dollar sign in a name is a dollar sign
            "font.size": 9.0,
            "pdf.fonttype": 42,
            "svg.hashsalt": salt,
            "svg.fonttype": svg_fonts,
        }
    ):
        sheet = Sheet(figsize=inches, facecolor="none" if transparent else theme.paper, layout="constrained")
        FigureCanvasAgg(sheet)
        axes = list(sheet.subplots(1, panels, squeeze=False)[0])
        for each in axes:
            each.set_facecolor("none")
            each.tick_params(colors=theme.quiet, labelsize=9, length=0, pad=6)
            each.spines[["top", "right", "left"]].set_visible(False)
            each.spines["bottom"].set_color(theme.grid)
            each.set_axisbelow(True)
        paint(sheet, axes)
        sheet.savefig(buffer, format=kind, dpi=dots_per_inch, metadata=undated)
    return buffer.getvalue()
