"""Shared drawing style: matplotlib objects on the Agg canvas (never pyplot and its global state), quiet frames, colours
distinguishable with colour blindness (after Okabe and Ito), and deterministic bytes.

All sizes are here. A sheet has a paper's wide column width and stacked panels; all text has one size, readable on a
phone: scaled to 400 pixels, letters have 11.
"""

import html
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure as Sheet

WIDTH_INCHES: Final = 5.0
TEXT_POINTS: Final = 10.0
PANEL_INCHES: Final = 2.6
"""Height of a panel with axes."""
ROW_INCHES: Final = 0.44
"""Height of a bar with its name above."""
BAR: Final = 0.3
"""Height of a bar as a share of its row."""
ROW_CHARACTERS: Final = 56
"""Characters per line of a sheet."""
_HANDLE_CHARACTERS: Final = 7
"""Width of a legend's line with gaps."""
_LINE_SPACING: Final = 1.6
_DOTS_PER_INCH: Final = 220
_TEXT_SIZES: Final = (
    *("font.size", "axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize"),
    *("legend.fontsize", "figure.titlesize"),
)
Paint = Callable[[Sheet, Sequence[Axes]], None]
"""Draws on a sheet with prepared panels."""


@dataclass(frozen=True)
class Theme:
    """Colours of a picture. `quiet`: for secondary marks; `paper`: the background."""

    ink: str
    quiet: str
    grid: str
    paper: str
    series: tuple[str, ...]


LIGHT: Final = Theme(
    "#1c2733", "#5b6875", "#e4e8ec", "#ffffff", ("#0072b2", "#d55e00", "#007a59", "#a8477f", "#8a6100", "#5b6875")
)
DARK: Final = Theme("#e6eaee", "#9aa7b4", "#2b333c", "#171c22", ("#56b4e9", "#e69f00"))

PAGE: Final = Theme(
    "#0a0b01", "#0a0b02", "#0a0b03", "#0a0b04", ("#0a0c01", "#0a0c02", "#0a0c03", "#0a0c04", "#0a0c05", "#0a0c06")
)
"""Placeholders for a page's light and dark colours; `Drawing.for_page` replaces them."""
_VARIABLES: Final = {
    PAGE.ink: "var(--ink)",
    PAGE.quiet: "var(--quiet)",
    PAGE.grid: "var(--line)",
    PAGE.paper: "var(--card)",
    **{colour: f"var(--series-{place})" for place, colour in enumerate(PAGE.series, 1)},
}


def draw(
    paint: Paint,
    kind: Literal["png", "svg", "pdf"],
    theme: Theme,
    *,
    inches: float = PANEL_INCHES,
    panels: int = 1,
    legend_inches: float = 0.0,
    salt: str = "gangway",
    svg_fonts: Literal["path", "none"] = "path",
    transparent: bool = False,
) -> bytes:
    """The file's content: `panels` of `inches` each below a legend. `salt`: prefix of an SVG's ids."""
    buffer = io.BytesIO()
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}[kind]
    with mpl.rc_context(
        {
            "text.parse_math": False,  # a dollar sign in a name is a dollar sign
            **dict.fromkeys(_TEXT_SIZES, TEXT_POINTS),
            "axes.titlelocation": "left",
            "legend.columnspacing": 1.2,
            "legend.frameon": False,
            "pdf.fonttype": 42,
            "svg.hashsalt": salt,
            "svg.fonttype": svg_fonts,
        }
    ):
        size = (WIDTH_INCHES, panels * inches + legend_inches)
        sheet = Sheet(figsize=size, facecolor="none" if transparent else theme.paper, layout="constrained")
        FigureCanvasAgg(sheet)
        axes = list(sheet.subplots(panels, 1, squeeze=False)[:, 0])
        for each in axes:
            each.set_facecolor("none")
            each.tick_params(colors=theme.quiet, length=0, pad=6)
            each.spines[["top", "right", "left"]].set_visible(False)
            each.spines["bottom"].set_color(theme.grid)
            each.set_axisbelow(True)
        paint(sheet, axes)
        sheet.savefig(buffer, format=kind, dpi=_DOTS_PER_INCH, metadata=undated)
    return buffer.getvalue()


def legend_size(labels: Sequence[str]) -> tuple[int, float]:
    """Columns of a sheet-wide legend, and its height in inches; labels may have several lines."""
    longest = max(len(line) for label in labels for line in label.splitlines())
    columns = max(1, min(len(labels), ROW_CHARACTERS // (longest + _HANDLE_CHARACTERS)))
    lines = max(label.count("\n") + 1 for label in labels) * -(-len(labels) // columns)
    return columns, lines * _LINE_SPACING * TEXT_POINTS / 72


def as_days(times: Iterable[datetime]) -> list[float]:
    """Matplotlib's date numbers."""
    return [float(date2num(time)) for time in times]  # type: ignore[no-untyped-call]  # matplotlib's has none


def date_axis(axes: Axes) -> None:
    """A few UTC times below; the data spans the whole width."""
    locator = AutoDateLocator(tz=UTC, minticks=3, maxticks=7)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
    axes.margins(x=0)


def name_rows(axes: Axes, theme: Theme, rows: Sequence[tuple[str, str]]) -> None:
    """Rows at 0, 1, ... with names above, the first on top. Names are cut to fit, values never."""
    for place, (name, value) in enumerate(rows):
        room = ROW_CHARACTERS - len(value)
        short = name if len(name) <= room else f"{name[: room - 3]}..."
        text = f"{short}: {value}" if value else short
        axes.annotate(
            text,
            (0, place - 0.08),
            xycoords=("axes fraction", "data"),
            va="bottom",
            color=theme.ink,
            annotation_clip=False,
        )
    axes.set_yticks([])
    axes.set_ylim(len(rows) - 0.6, -0.6)


@dataclass(frozen=True)
class Drawing:
    """For the page or a file. `name`: of its files, unique on the page; `alt`: its content in words and values."""

    name: str
    title: str
    alt: str
    caption: str
    panels: int
    inches: float
    paint: Callable[[Sheet, Sequence[Axes], Theme], None]
    legend_inches: float = 0.0

    def for_page(self) -> str:
        """An `<svg>` element in the page's colours and fonts; its ids begin with the drawing's name."""
        text = self._drawn(PAGE, "svg", "none").decode()
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
        return self._drawn(LIGHT, kind, "path")

    def _drawn(self, theme: Theme, kind: Literal["pdf", "svg"], fonts: Literal["path", "none"]) -> bytes:
        def paint(sheet: Sheet, axes: Sequence[Axes]) -> None:
            for each in axes:
                each.grid(axis="y", color=theme.grid, linewidth=0.8)
            self.paint(sheet, axes, theme)

        return draw(
            paint, kind, theme, inches=self.inches, panels=self.panels, legend_inches=self.legend_inches,
            salt=self.name, svg_fonts=fonts, transparent=theme is PAGE,
        )  # fmt: skip
