"""A drawing of several rows: as SVG inside the page, in its colours by day and by night, and as PDF and SVG files.

The page's SVG is drawn in stand-in colours, which become the page's own CSS variables, and its text stays text. Files
are drawn in light colours, their text as embedded fonts or outlines. matplotlib's objects only: pyplot's global state
is never touched, and equal input gives equal bytes.
"""

import html
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Sheet

__all__ = ["DASHES", "MARKERS", "Drawing", "Inks", "Paint"]

DASHES: Final = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (9, 2)), (0, (3, 1, 1, 1, 1, 1)))
"""Rows differ by their dashes as well: colour alone tells not everybody."""
MARKERS: Final = ("o", "s", "^", "D", "v", "P")


@dataclass(frozen=True)
class Inks:
    """Colours of a drawing. `series` are told apart by every kind of eye (after Okabe and Ito)."""

    ink: str
    quiet: str
    grid: str
    paper: str
    series: tuple[str, ...]


FILES: Final = Inks(
    "#1c2733", "#5b6875", "#e4e8ec", "#ffffff", ("#0072b2", "#d55e00", "#007a59", "#a8477f", "#8a6100", "#5b6875")
)
PAGE: Final = Inks(
    "#0a0b01", "#0a0b02", "#0a0b03", "#0a0b04", ("#0a0c01", "#0a0c02", "#0a0c03", "#0a0c04", "#0a0c05", "#0a0c06")
)
_VARIABLES: Final = {
    PAGE.ink: "var(--ink)",
    PAGE.quiet: "var(--quiet)",
    PAGE.grid: "var(--line)",
    PAGE.paper: "var(--card)",
    **{colour: f"var(--series-{place})" for place, colour in enumerate(PAGE.series, 1)},
}
_WIDTH_INCHES = 9.0
_PAGE_INCHES = 12.5
"""A page is wider than a column of a paper, at the same size of letters."""
Paint = Callable[[Sheet, Sequence[Axes], Inks], None]
"""Draws on a sheet whose panels are ready."""


@dataclass(frozen=True)
class Drawing:
    """A drawing that can be made for the page or as a file.

    Attributes:
        name: of its files, without the ending; unlike all others of the page.
        title: above it.
        alt: what it shows, in words and values, for those who cannot see it.
        caption: the sentences under it, with the source of its numbers.
        panels: side by side.
        height_inches: of the sheet, which is nine inches wide.
        paint: draws it.
    """

    name: str
    title: str
    alt: str
    caption: str
    panels: int
    height_inches: float
    paint: Paint

    def for_page(self) -> str:
        """An `<svg>` element that takes the page's colours and fonts; its ids begin with the drawing's name."""
        text = self._saved(PAGE, "svg", "none").decode()
        svg = text[text.index("<svg") :]
        svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
        tag, rest = svg[: svg.index(">")], svg[svg.index(">") :]
        svg = re.sub(r'\s(?:xmlns(?::\w+)?|version|width|height)="[^"]*"', "", tag) + rest
        svg = svg.replace("xlink:href", "href")
        for start in (' id="', "url(#", ' href="#'):
            svg = svg.replace(start, f"{start}{self.name}-")
        for colour, variable in _VARIABLES.items():
            svg = svg.replace(colour, variable)
        return svg.replace("<svg", f'<svg role="img" aria-label="{html.escape(self.alt)}"', 1)

    def as_file(self, kind: Literal["pdf", "svg"]) -> bytes:
        """The content of a file."""
        return self._saved(FILES, kind, "path")

    def _saved(self, inks: Inks, kind: str, fonts: str) -> bytes:
        buffer = io.BytesIO()
        # No date, and ids salted with a constant: the same runs give the same bytes.
        undated = {"Date": None} if kind == "svg" else {"CreationDate": None}
        with mpl.rc_context(
            {
                "text.parse_math": False,
                "pdf.fonttype": 42,
                "font.size": 9.0,
                "svg.hashsalt": self.name,
                "svg.fonttype": fonts,
            }
        ):
            width = _PAGE_INCHES if inks is PAGE else _WIDTH_INCHES
            sheet = Sheet(figsize=(width, self.height_inches), layout="constrained")
            sheet.set_facecolor("none" if inks is PAGE else inks.paper)
            FigureCanvasAgg(sheet)
            axes = list(sheet.subplots(1, self.panels, squeeze=False)[0])
            for each in axes:
                _quiet_frame(each, inks)
            self.paint(sheet, axes, inks)
            sheet.savefig(buffer, format=kind, metadata=undated)
        return buffer.getvalue()


def _quiet_frame(axes: Axes, inks: Inks) -> None:
    axes.set_facecolor("none")
    axes.tick_params(colors=inks.quiet, labelsize=8.5, length=0, pad=5)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(inks.grid)
    axes.grid(axis="y", color=inks.grid, linewidth=0.8)
    axes.set_axisbelow(True)
