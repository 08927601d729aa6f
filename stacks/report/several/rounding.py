"""A mean and what stands beside it, printed with the same decimals: as many as the size of the spread allows.

Pure text. A number that stands alone is `stacks.report.figures.number`'s.
"""

from collections.abc import Callable

from stacks.report.figures import number

__all__ = ["printer"]

_MINUS = "\N{MINUS SIGN}"
_DIGITS_OF_SPREAD, _ALL_DIGITS = 2, 17
_MOST_DIGITS = 6
"""Of a mean: where the spread is smaller still, it is noise of the arithmetic."""
_CENTS = 2
_SMALL, _LARGE = 1e-4, 1e15
"""As in `number`: outside of them a power of ten is taken out."""


def printer(mean: float, spread: float, unit: str = "") -> Callable[[float], str]:
    """How a mean, its spread, and values beside it are printed: two significant digits of the spread at most.

    Args:
        mean: of the values.
        spread: their deviation or the width of their range, above zero.
        unit: of dollars from 1 USD upwards the cents are the last decimals.

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
        # A zero that came of a small negative number has no sign.
        rounded = round(value / 10.0**power, decimals) + 0.0
        text = f"{rounded:,.{max(0, decimals)}f}".replace("-", _MINUS)
        return f"{text}{number(10.0**power).removeprefix('1.00')}" if power else text

    return show


def _exponent(value: float, digits: int) -> int:
    """The power of ten of the first digit, once the value is rounded to so many."""
    return int(f"{value:.{digits - 1}e}".partition("e")[2])
