"""The page in a real headless browser: drawn by day and by night, no error in its console, reachable by keyboard."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from PIL import Image, ImageStat

from gangway.report.comparison.write import comparison_report
from gangway.runs.run_folders import find_runs

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
    *("--enable-logging=stderr", "--window-size=1280,2000"),
)
DARK = "--blink-settings=preferredColorScheme=0"
REPORT_BACK = """<script>
const focusable = [...document.querySelectorAll('a[href], summary, [tabindex], button, input')]
  .filter(element => element.tabIndex >= 0);
const tips = [...document.querySelectorAll('a.told')].map(element => {
  element.focus({focusVisible: true});
  const tip = getComputedStyle(element, '::after');
  return [document.activeElement === element, tip.content, tip.position];
});
document.activeElement.blur();
const quiet = getComputedStyle(document.querySelector('a.told'), '::after').content;
const answer = {
  order: focusable.map(element => [element.tagName, element.getAttribute('href') || '', element.tabIndex]),
  tips, quiet, width: document.documentElement.scrollWidth,
  drawings: [...document.querySelectorAll('figure svg')].map(svg => svg.getBoundingClientRect().height),
  tables: [...document.querySelectorAll('table')].map(table => [table.caption.textContent, table.rows.length]),
};
const told = document.createElement('script');
told.type = 'application/json'; told.id = 'answer'; told.textContent = JSON.stringify(answer);
document.body.append(told);
</script></body>"""


class Visit(NamedTuple):
    """What a browser printed."""

    out: str
    console: list[str]


Browse = Callable[..., Visit]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not any(shutil.which(name) for name in BROWSERS),
        reason=f"needs a browser on PATH: one of {', '.join(BROWSERS)}",
    ),
]


@pytest.fixture(scope="module")
def browse(tmp_path_factory: pytest.TempPathFactory) -> Browse:
    """Opens a file in a browser of its own, with no profile."""
    browser = next(found for name in BROWSERS if (found := shutil.which(name)))

    def visit(page: Path, *flags: str) -> Visit:
        profile = tmp_path_factory.mktemp("profile")
        command = [browser, *FLAGS, f"--user-data-dir={profile}", *flags, page.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
        return Visit(done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line])

    return visit


@pytest.fixture(scope="module")
def report(suite_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return comparison_report(find_runs([suite_folder]), None).write_page(tmp_path_factory.mktemp("browser"))


def test_day_and_night_are_both_drawn_and_differ(browse: Browse, report: Path, tmp_path: Path) -> None:
    light, dark = tmp_path / "light.png", tmp_path / "dark.png"
    for path, flags in ((light, ()), (dark, (DARK,))):
        visit = browse(report, f"--screenshot={path}", *flags)
        assert visit.console == []
    by_day, by_night = (Image.open(path).convert("L") for path in (light, dark))
    assert by_day.size == by_night.size == (1280, 2000)
    assert ImageStat.Stat(by_day).mean[0] > 200
    assert ImageStat.Stat(by_night).mean[0] < 60
    for image in (by_day, by_night):
        assert ImageStat.Stat(image).stddev[0] > 8, "nothing is drawn"
        assert len(image.getcolors(256) or []) > 100
        low, high = image.getextrema()
        assert isinstance(low, int)
        assert isinstance(high, int)
        assert high - low > 150, "text that can hardly be read"


def test_an_error_in_the_console_would_be_seen(browse: Browse, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text("<!DOCTYPE html><script>console.error('on purpose')</script>")
    assert any("on purpose" in line for line in browse(page, "--dump-dom").console)


def test_tables_drawings_and_numbers_are_there_for_eyes_and_keyboard(
    browse: Browse, report: Path, tmp_path: Path
) -> None:
    # The page forbids scripts; a copy without that rule may say what the browser made of it.
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", report.read_text())
    page = tmp_path / "asked.html"
    page.write_text(text.replace("</body>", REPORT_BACK))
    visit = browse(page, "--dump-dom")
    assert visit.console == []
    found = re.search(r'<script type="application/json" id="answer">(.*?)</script>', visit.out, re.DOTALL)
    assert found is not None
    answer = json.loads(found.group(1))
    assert [rows for caption, rows in answer["tables"] if caption.startswith("Table P2")] == [9]
    assert len(answer["drawings"]) == 8
    assert min(answer["drawings"]) > 100
    assert answer["width"] <= 1280, "the page itself scrolls sideways"
    assert answer["order"][0] == ["A", "#main", 0], "the first stop leads past the contents"
    assert {index for _, _, index in answer["order"]} == {0}, "the order of the keyboard is that of the page"
    assert len(answer["tips"]) == sum(1 for tag, href, _ in answer["order"] if href.startswith("#source-")) - 9
    assert answer["quiet"] == "none"
    for reached, told, position in answer["tips"]:
        assert reached
        assert position == "fixed"
        assert re.search(r"(measured|estimated|list price|assumed|absent|published): ", told)


def test_without_the_rule_taken_away_no_script_would_run(browse: Browse, report: Path, tmp_path: Path) -> None:
    page = tmp_path / "hostile.html"
    page.write_text(report.read_text().replace("</body>", "<script>document.title = 'owned'</script></body>"))
    visit = browse(page, "--dump-dom")
    assert "<title>owned" not in visit.out
    assert any("Content Security Policy" in line for line in visit.console)
