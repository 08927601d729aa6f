"""Numbers, units and times as the report prints them, and files that appear whole."""

import math

import pytest

from gangway.render.rendering import Sources, duration, kimg_text, moment, number


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "", "0"),
        (1797, "", "1,797"),
        (1234567.8, "J", "1,234,568"),
        (11.902, "", "11.90"),
        (1.15, "", "1.15"),
        (0.012345, "", "0.0123"),
        (2.5e-7, "", "2.50 \N{MULTIPLICATION SIGN} 10⁻⁷"),
        (-3.2, "", "\N{MINUS SIGN}3.2"),
        (110.1, "USD/h", "110.10"),
        (0.04384, "USD", "0.0438"),
        (math.nan, "", "not a number"),
        (math.inf, "", "infinite"),
    ],
)
def test_numbers_read_well(value: float, unit: str, text: str) -> None:
    assert number(value, unit) == text


def test_units_and_times_read_well() -> None:
    assert [duration(seconds) for seconds in (12.34, 252.3, 7265)] == ["12.3 s", "4 min 12 s", "2 h 1 min"]
    assert moment("2026-03-01T08:15:00.125+00:00") == "2026-03-01 08:15:00 UTC"
    assert moment("2026-03-01") == "2026-03-01"
    assert [kimg_text(images) for images in (150_016, 64_400)] == ["150", "64.4"]
    cell = Sources().cell(3.6e6, "J", "measured", "meter")
    assert (cell.hint, cell.footnote) == ("1 kWh", 1)
