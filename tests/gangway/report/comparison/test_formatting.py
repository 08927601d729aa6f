"""A mean and its spread have the same decimals, chosen by the spread's size, in every unit and size of number."""

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.report.comparison.formatting import format_cell, printer
from gangway.report.comparison.measures import MEASURES
from gangway.report.comparison.series import Spread, change, get_spread
from gangway.trainer.records.quantity import Quantity

MINUS = "\N{MINUS SIGN}"
SIZES = st.floats(min_value=1e-12, max_value=1e18)


def of(values: Sequence[float], unit: str = "h") -> Spread:
    return get_spread({f"run-{place}": Quantity.measured(value, unit, "clock") for place, value in enumerate(values)})


def told(values: Sequence[float], unit: str = "h") -> tuple[str, str]:
    said = format_cell(of(values, unit), replace(MEASURES["total_h"], unit=unit))
    return said.text, said.spread


def changed(values: Sequence[float]) -> tuple[str, str]:
    """Of changes in per cent, each against a control of 100."""
    seeds = {f"run-{place}": place for place in range(len(values))}
    made = change(of([100.0] * len(values)), of([100.0 + value for value in values]), seeds)
    said = format_cell(made, MEASURES["total_h"], relative=True)
    return said.text, said.spread


@pytest.mark.parametrize(
    ("values", "unit", "expected"),
    [
        # The deviation of 24.86, 29.04 and 33.1 is 4.12.
        ((24.86, 29.04, 33.1), "h", ("29.0", "± 4.1")),
        ((0.01, 0.02, 0.033), "h", ("0.021", "± 0.012")),
        ((5000.0, 29012.0, 52000.0), "h", ("29,000", "± 24,000")),
        # 0.0996 has one digit more before the point once it is rounded.
        ((1.0, 1.0996, 1.1992), "h", ("1.10", "± 0.10")),
        ((1.0, 1.05, 1.1), "USD", ("1.05", "± 0.05")),
        ((2e-6, 3e-6, 4e-6), "h", ("3.0 \N{MULTIPLICATION SIGN} 10⁻⁶", "± 1.0 \N{MULTIPLICATION SIGN} 10⁻⁶")),
        # Two runs tell their range, with as many decimals.
        ((25.0, 33.1), "h", ("29.1", "25.0 to 33.1")),
        ((-0.4, 0.5), "h", ("0.05", f"{MINUS}0.40 to 0.50")),
        # Nothing to be seen: one run, equal ones, and cents that are the same.
        ((29.0312,), "h", ("29.03", "")),
        ((29.0312, 29.0312, 29.0312), "h", ("29.03", "")),
        ((2.101, 2.104, 2.106), "USD", ("2.10", "")),
    ],
)
def test_a_mean_has_the_decimals_of_its_spread(values: tuple[float, ...], unit: str, expected: tuple[str, str]) -> None:
    assert told(values, unit) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((24.86, 29.04, 33.1), ("+29.0", "+24.9 to +33.1")),
        ((-20.0, -21.0, -20.5, -20.1, -20.4, -20.6), (f"{MINUS}20.43", f"95 %: {MINUS}20.81 to {MINUS}20.05, lower")),
        ((2.0, -1.0, 0.0, 0.5, -1.5, 0.3), ("0.0", f"95 %: {MINUS}1.2 to +1.3, no difference shown")),
        ((-20.0,) * 6, (f"{MINUS}20.0", "lower")),
        ((-20.0, -21.0), (f"{MINUS}20.5", f"{MINUS}21.0 to {MINUS}20.0")),
        ((-0.5, 0.5), ("0.0", f"{MINUS}0.5 to +0.5")),
        ((-20.0, -20.0), (f"{MINUS}20.0", "")),
    ],
)
def test_changes_keep_their_sign(values: tuple[float, ...], expected: tuple[str, str]) -> None:
    assert changed(values) == expected


@given(SIZES, SIZES)
def test_both_have_as_many_decimals_and_the_spread_two_digits_at_most(mean: float, spread: float) -> None:
    show = printer(mean, spread)
    decimals = {len(show(value).partition(" ")[0].partition(".")[2]) for value in (mean, spread)}
    assert len(decimals) == 1
    assert {show(value).partition(" ")[2] for value in (mean, spread)} == {show(mean).partition(" ")[2]}
    digits = re.sub(r"[^0-9]", "", show(spread).partition(" ")[0]).lstrip("0")
    assert len(digits.rstrip("0")) <= 2, "two significant digits of the spread at most"


@given(st.floats(min_value=1e-3, max_value=1e9), st.floats(min_value=1e-6, max_value=1e9))
def test_what_is_printed_is_the_mean_to_a_tenth_of_the_spread(mean: float, spread: float) -> None:
    shown = float(printer(mean, spread)(mean).replace(",", ""))
    # Half a unit of the last digit, which is a tenth of the spread's first two digits; those may have been rounded up.
    assert abs(shown - mean) <= max(spread / 10, abs(mean) * 1e-5) * 0.53
