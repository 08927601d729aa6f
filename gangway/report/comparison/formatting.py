"""Formats measured spreads: as many digits as the spread allows, and words for missing values."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from gangway.components.estimate.statistics import FEWEST_PAIRS
from gangway.render.rendering import duration, number, unit_text
from gangway.report.comparison.measures import Measure
from gangway.report.comparison.series import Spread
from gangway.report.comparison.tables import PUBLISHED

_MINUS = "\N{MINUS SIGN}"
_DIGITS_OF_SPREAD, _ALL_DIGITS = 2, 17
_MOST_DIGITS = 6
"""Of a mean: a smaller spread is numerical noise."""
_CENTS = 2
_SMALL, _LARGE = 1e-4, 1e15
"""As in `number`: beyond these, use a power of ten."""
_ARROWS: Mapping[str, str] = {"lower": "↓", "higher": "↑", "": ""}
_NOTHING = "–"  # noqa: RUF001 - a dash in a table's empty field


class CellText(NamedTuple):
    """A number that links to its source and shows it on hover or focus."""

    text: str
    unit: str
    spread: str
    provenance: str
    told: str
    footnote: int


def printer(mean: float, spread: float, unit: str = "") -> Callable[[float], str]:
    """Return a formatter for a mean, its spread, and values beside it: at most two significant digits of the spread.

    Args:
        mean: of the values.
        spread: their deviation or the width of their range, above zero.
        unit: dollars from 1 USD upwards stop at cents.

    >>> show = printer(29.0312, 4.181)
    >>> show(29.0312), show(4.181)
    ('29.0', '4.2')
    >>> [printer(29012.0, spread)(29012.0) for spread in (4181.0, 41.8, 0.4181)]
    ['29,000', '29,012', '29,012.0']
    """
    size = max(abs(mean), spread)
    small_or_large = size < _SMALL or size >= _LARGE
    power = max(-300, _exponent(size, _ALL_DIGITS)) if small_or_large else 0
    of_spread = _DIGITS_OF_SPREAD - 1 - _exponent(spread, _DIGITS_OF_SPREAD)
    of_mean = _MOST_DIGITS - 1 - _exponent(size, _ALL_DIGITS)
    decimals = min(of_spread, of_mean) + power
    if unit.startswith("USD") and size >= 1:
        decimals = min(decimals, _CENTS)

    def show(value: float) -> str:
        # A rounded negative zero has no sign.
        rounded = round(value / 10.0**power, decimals) + 0.0
        text = f"{rounded:,.{max(0, decimals)}f}".replace("-", _MINUS)
        return f"{text}{number(10.0**power).removeprefix('1.00')}" if power else text

    return show


def _exponent(value: float, digits: int) -> int:
    """The power of ten of the first digit after rounding to `digits`."""
    return int(f"{value:.{digits - 1}e}".partition("e")[2])


class CellWords(NamedTuple):
    """`text`: the number, `absent`, or a dash; `unit`: if not the column's; `values`: each run's."""

    text: str
    unit: str = ""
    spread: str = ""
    values: str = ""
    hint: str = ""


def format_cell(cell: Spread | None, column: Measure, *, relative: bool = False) -> CellWords:
    """Format a cell. `cell`: None if a paper has none; `relative`: a change, with its sign and always its unit."""
    if cell is None:
        return CellWords(_NOTHING)
    if cell.value is None:
        return CellWords("absent")
    unit = "" if cell.unit == column.unit and not relative else unit_text(cell.unit)
    if relative and not unit:
        unit = "difference"
    # Papers have their own numbers of decimals.
    ours = cell.provenance != PUBLISHED
    print_it: Callable[[float], str] = partial(number, unit=cell.unit)
    if relative:
        print_it = partial(_per_cent, decimals=1 if ours else 0) if cell.unit == "%" else _difference
    text, spread = _mean_and_spread(cell, print_it, relative=relative)
    return CellWords(text, unit, spread, _values(cell, print_it), _hint(cell.value, cell.unit))


def _per_cent(change: float, decimals: int) -> str:
    text = f"{change:+.{decimals}f}"
    return text[1:] if float(text) == 0 else text.replace("-", "\N{MINUS SIGN}")


def _difference(change: float) -> str:
    return f"+{number(change)}" if change > 0 else number(change)


def _mean_and_spread(cell: Spread, print_it: Callable[[float], str], *, relative: bool) -> tuple[str, str]:
    """A mean and its spread with equal decimals; for a change with enough pairs, its interval and claim."""
    low, high, compared, claim, kind = cell.low, cell.high, cell.compared, "", ""
    if compared is not None and compared.fewest >= FEWEST_PAIRS:
        claim = compared.verdict()
        if compared.low is not None and compared.high is not None:
            scale, kind = (100 if compared.is_relative else 1), "95 %: "
            low, high = scale * compared.low, scale * compared.high
    text, spread = _spread(cell, print_it, low, high, relative=relative)
    return text, ", ".join(part for part in (spread and f"{kind}{spread}", claim) if part)


def _spread(
    cell: Spread, print_it: Callable[[float], str], low: float | None, high: float | None, *, relative: bool
) -> tuple[str, str]:
    mean, std = cell.value, cell.std
    assert mean is not None, "an absent cell has its own words"
    if low is None or high is None or print_it(low) == print_it(high) or not math.isfinite(high - low):
        return print_it(mean), ""
    show = printer(mean, high - low if std is None else std, cell.unit)
    if (show(low) == show(high)) if std is None else (show(std) == show(0.0)):
        return print_it(mean), ""
    sign = _signed if relative else str
    text = sign(show(mean))
    return text, f"{sign(show(low))} to {sign(show(high))}" if std is None else f"± {show(std)}"


def _signed(text: str) -> str:
    zero = not text.partition(" ")[0].strip("0.")
    return text if zero or text[0] == "\N{MINUS SIGN}" else f"+{text}"


def _hint(value: float, unit: str) -> str:
    if unit == "h" and math.isfinite(value):
        return duration(value * 3600)
    if unit == "kWh" and value < 1:
        return f"{number(value * 1000)} Wh"
    return ""


def _values(cell: Spread, print_it: Callable[[float], str]) -> str:
    if len(cell.values) < 2:
        return ""
    kind = "mean ± sample standard deviation" if cell.std is not None else "mean, and from the lowest to the highest"
    if cell.compared is not None and cell.compared.fewest >= FEWEST_PAIRS:
        kind = "mean and its 95 % interval"
    each = ", ".join(
        f"{name}: {'none' if value is None else print_it(value)}" for name, value in cell.values
    )  # fmt: skip
    return f"{kind} of {len(cell.known)} ({each})"


def heading(column: Measure) -> str:
    """Label, unit, and an arrow in the better direction."""
    unit = f", {unit_text(column.unit)}" if column.unit else ""
    return f"{column.label}{unit} {_ARROWS[column.better]}".strip()
