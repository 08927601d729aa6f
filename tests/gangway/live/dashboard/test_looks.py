"""Charts as SVG, contrast of the colours in both schemes, and the vendored script."""

import hashlib
import re
from pathlib import Path

import pytest

from gangway.live.dashboard import app
from gangway.live.dashboard.charts import Series, get_ticks, line_chart
from gangway.live.dashboard.figures import thin

STATIC = Path(app.__file__).parent / "static"
CSS = (Path(app.__file__).parents[2] / "render" / "report.css").read_text("utf-8") + (
    STATIC / "dashboard.css"
).read_text("utf-8")
TEXTS = [
    *((ink, paper) for ink in ("ink", "quiet", "accent", "wrong", "good", "warn") for paper in ("paper", "card")),
    ("accent", "tint"),
]
LINES = [(f"series-{number}", "card") for number in range(1, 7)]


def colours(scheme: str) -> dict[str, str]:
    """The variables of :root, the dark ones over the light ones."""
    dark = re.findall(r"prefers-color-scheme: dark\) \{\s*:root \{([^}]*)\}", CSS)
    light = re.sub(r"@media[^{]*\{\s*:root \{[^}]*\}\s*\}", "", CSS)
    blocks = re.findall(r":root \{([^}]*)\}", light) + (dark if scheme == "dark" else [])
    return dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", " ".join(blocks)))


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, two: str) -> float:
    bright, dark = sorted((luminance(one), luminance(two)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def test_contrast_is_computed_as_wcag_does() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("ink", "paper"), [*TEXTS, *LINES])
def test_texts_and_lines_have_the_contrast_of_wcag_aa(scheme: str, ink: str, paper: str) -> None:
    found = colours(scheme)
    least = 3.0 if ink.startswith("series") else 4.5
    assert contrast(found[ink], found[paper]) >= least, (found[ink], found[paper])


def test_every_colour_that_carries_text_is_checked() -> None:
    used = set(
        re.findall(r"(?<![-a-z])(?:color|fill): var\(--([a-z0-9-]+)\)", (STATIC / "dashboard.css").read_text("utf-8"))
    )
    assert used <= {ink for ink, _ in TEXTS}


def test_the_script_is_the_published_one() -> None:
    digest = hashlib.sha256((STATIC / "htmx.min.js").read_bytes()).hexdigest()
    assert f"sha256 {digest}\n" in (STATIC / "htmx.txt").read_text("utf-8")


def test_ticks_are_round_and_cover_the_values() -> None:
    for low, high in ((0.0, 1e-9), (-3.7, 4.1), (1e6, 1.0000001e6), (0.0, 0.0), (1e30, 9e30)):
        ticks = get_ticks(low, high)
        assert ticks[0] <= low <= high <= ticks[-1]
        assert 2 <= len(ticks) <= 7


def test_a_chart_says_its_ends_and_leaves_gaps() -> None:
    points = [(0.0, 1.0), (1.0, None), (2.0, 3.0), (3.0, float("nan")), (4.0, 2.0)]
    chart = line_chart("Loss", "", [Series('<a"', points), Series("empty", []), Series("b", [(4.0, 5.0)])], "log")
    assert chart.svg.count("<path") == 2
    assert re.findall(r'd="([^"]*)"', chart.svg)[0].count("M") == 3
    assert "&lt;a&#34;: 2; b: 5." in chart.svg
    assert [place for place, _ in chart.legend] == [1, 3], "colours stay with their run"
    assert line_chart("Loss", "", [Series("a", [(1.0, None)])], "log").empty == "no values yet"


def test_fewer_points_keep_the_last() -> None:
    points = [(float(number), 1.0) for number in range(1001)]
    found = thin(points)
    assert len(found) <= 150
    assert found[-1] == points[-1]
    assert list(thin([])) == []
