"""HTML reports from Jinja2 templates, and numbers with units and significant digits."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from gangway.trainer.records.quantity import Quantity

_MINUS = "\N{MINUS SIGN}"
_TIMES = "\N{MULTIPLICATION SIGN}"
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_PROVENANCE_WORDS = {"list-price": "list price"}
_JOULES_PER_KWH = 3.6e6
_LONG_SEC = 90

_HERE = Path(__file__).parent


def render_template(name: str, styles: tuple[str, ...], filters: Mapping[str, Any], context: Mapping[str, Any]) -> str:
    """Render a self-contained HTML file. `styles`: CSS files, joined as `style`."""
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(filters)
    style = Markup("\n".join((_HERE / style).read_text("utf-8") for style in styles))  # our own files
    html = environment.get_template(name).render(style=style, **context)
    return f"{html.strip()}\n"


class Source(NamedTuple):
    """A footnote: where figures come from. Figures with equal sources share it."""

    provenance: str
    source: str
    as_of: str
    note: str

    @property
    def text(self) -> str:
        """As a sentence, for a tooltip."""
        as_of = f"as of {self.as_of}" if self.as_of else ""
        return "; ".join(part for part in (f"{self.provenance}: {self.source}", as_of, self.note) if part)


class Cell(NamedTuple):
    """A figure on the page. `text`: the number, `unknown`, or `absent`; `footnote`: of its source, from 1."""

    text: str
    unit: str
    hint: str
    reason: str
    footnote: int
    source: Source


class Sources:
    """Collects and numbers the sources in the page's order."""

    def __init__(self) -> None:
        self._numbers: dict[Source, int] = {}

    def figure(self, figure: Quantity) -> Cell:
        """A figure of the run record."""
        return self.cell(figure.value, figure.unit, figure.provenance, figure.source, figure.as_of, figure.note)

    def cell(
        self,
        value: float | None,
        unit: str,
        provenance: str,
        source: str,
        as_of: str | None = None,
        note: str = "",
        reason: str = "",
    ) -> Cell:
        """A value with its provenance. `value`: None if unknown: see `reason`, or else `source`."""
        line = Source(_PROVENANCE_WORDS.get(provenance, provenance), source, as_of or "", note)
        footnote = self._numbers.setdefault(line, len(self._numbers) + 1)
        if value is None:
            text = "absent" if provenance == "absent" else "unknown"
            return Cell(text, "", "", reason or source, footnote, line)
        return Cell(number(value, unit), unit_text(unit), _hint(value, unit), "", footnote, line)

    def lines(self) -> Iterable[tuple[int, Source]]:
        """Footnote numbers and sources, ascending."""
        return ((footnote, line) for line, footnote in self._numbers.items())


def number(value: float, unit: str = "") -> str:
    """Four significant digits (three below 1), thousands in full, cents for dollars from 1 USD upwards.

    Rounding may leave trailing zeros; shorter values get none.

    >>> number(110.1, "USD/h"), number(1234567.8), number(0.012345), number(1.15), number(11.902), number(-4.0)
    ('110.10', '1,234,568', '0.0123', '1.15', '11.90', '\N{MINUS SIGN}4')
    """
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "infinite"
    size = abs(value)
    if unit.startswith("USD") and size >= 1:
        text = f"{value:,.2f}"
    elif value == 0 or (value == int(value) and size < 1e15):
        text = f"{int(value):,}"
    elif size < 1e-4 or size >= 1e15:
        mantissa, power = f"{value:.2e}".split("e")
        text = f"{mantissa} {_TIMES} 10{str(int(power)).translate(_SUPERSCRIPT)}"
    else:
        exponent = math.floor(math.log10(size))
        text = f"{value:,.{max(0, (3 if size >= 1 else 2) - exponent)}f}"
        if float(text.replace(",", "")) == value:
            text = text.rstrip("0")
    return text.replace("-", _MINUS)


def kimg_text(images: int) -> str:
    """Thousands of images to one decimal: 150 for 150 016."""
    return f"{images / 1000:,.1f}".removesuffix(".0")


def unit_text(unit: str) -> str:
    """The unit with subscripts, gCO₂e for gCO2e; empty for 1, a pure number."""
    return "" if unit == "1" else unit.replace("CO2", "CO₂")


def duration(seconds: float) -> str:
    """Seconds in readable units.

    >>> duration(252.3), duration(7265), duration(12.34)
    ('4 min 12 s', '2 h 1 min', '12.3 s')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def moment(iso: str) -> str:
    """An ISO 8601 time without fractions: 2026-01-31 08:00:00 UTC."""
    day, _, rest = iso.partition("T")
    zone = "UTC" if rest.endswith(("Z", "+00:00")) else ""
    return " ".join(part for part in (day, rest[:8], zone) if part)


def _hint(value: float, unit: str) -> str:
    if unit == "s" and math.isfinite(value) and value >= _LONG_SEC:
        return duration(value)
    if unit == "J":
        return f"{number(value / _JOULES_PER_KWH)} kWh"
    return ""
