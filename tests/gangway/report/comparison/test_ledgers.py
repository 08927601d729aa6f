"""`gangway report --ledger`: the forecasts' figures on the page, in Markdown, JSON and CSV, and what is refused."""

import csv
import io
import json
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gangway.cli.main import app
from gangway.components.core.findings import InputError
from gangway.report.comparison.ledgers import ledger_drawings, read_ledgers
from gangway.sim.forecast.forecaster import Forecast, Setting
from gangway.sim.forecast.ledger import open_ledger
from gangway.sim.forecast.series import Series
from gangway.trainer.records.run_record import RunRecord

Parse = Callable[[str], Any]
Write = Callable[[Path, RunRecord], Path]
START = datetime(2026, 12, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def write_ledger(
    path: Path, name: str, *, steps: int, forecasts: int, known: int, every: int = 1, of: str = ""
) -> Path:
    """Forecasts that say 10 with an interval of 8 to 12, beside a baseline of 13; the truth is 11, and 20 at last."""
    setting = Setting(horizon=steps, season=24, level=0.9)
    series = Series(name, START, HOUR, (*[11.0] * (known - 1), 20.0), of=of)
    with open_ledger(path) as ledger:
        for origin in range(1, 1 + forecasts * every, every):
            model, naive = (
                Forecast(origin, (middle - 2.0,) * steps, (middle,) * steps, (middle + 2.0,) * steps)
                for middle in (10.0, 13.0)
            )
            ledger.add(series.until(origin), setting, model, naive, START)
        ledger.settle(series)
    return path


@pytest.fixture
def run_dir(write: Write, get_record: Callable[..., RunRecord], tmp_path: Path) -> Path:
    return write(tmp_path, get_record("a"))


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Two forecasts of two steps that are known whole, the last truth outside; one that waits."""
    return write_ledger(tmp_path / "grid.jsonl", "g_per_kwh", steps=2, forecasts=3, known=5, every=2)


def report(*words: object) -> Result:
    result = CliRunner().invoke(app, ["report", *map(str, words)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_json_and_csv_have_the_same_figures(run_dir: Path, ledger: Path) -> None:
    (one,) = json.loads(report(run_dir, "--ledger", ledger, "--format", "json").stdout)["forecasts"]
    assert (one["series"], one["level"], one["scored"], one["waiting"]) == ("g_per_kwh", 0.9, 2, 1)
    assert (one["model"]["mae"], one["baseline"]["mae"]) == ((3 * 1 + 10) / 4, (3 * 2 + 7) / 4)
    assert one["model"]["coverage"] == 0.75
    skill = one["skill"]
    assert (skill["value"], skill["low"], skill["high"], skill["p_value"]) == (0.0, None, None, None)
    assert skill["verdict"] == "too few blocks of forecasts for a claim: 2 of 6"
    assert one["drift"] is None
    (row,) = csv.DictReader(io.StringIO(report(run_dir, "--ledger", ledger, "--format", "csv").stdout))
    assert row["run_id"] == "a"
    assert float(row["forecast_1_mae"]) == one["model"]["mae"]
    assert float(row["forecast_1_baseline_mae"]) == one["baseline"]["mae"]
    assert float(row["forecast_1_coverage"]) == one["model"]["coverage"]
    assert row["forecast_1_drift"] == row["forecast_1_skill_low"] == row["forecast_1_skill_high"] == ""
    assert row["forecast_1_provenance"] == "measured"


@pytest.mark.slow
def test_without_a_ledger_there_is_no_trace_of_one(run_dir: Path, tmp_path: Path) -> None:
    assert json.loads(report(run_dir, "--format", "json").stdout)["forecasts"] == []
    assert "forecast_" not in report(run_dir, "--format", "csv").stdout
    assert "## Forecasts" not in report(run_dir, "--format", "md").stdout
    report(run_dir, "--out", tmp_path / "out")
    assert 'id="forecasts"' not in (tmp_path / "out/report.html").read_text()


@pytest.mark.slow
def test_the_page_has_a_row_and_a_picture_a_series_and_every_number_its_source(
    run_dir: Path, ledger: Path, tmp_path: Path, parse: Parse
) -> None:
    waiting = write_ledger(tmp_path / "new.jsonl", "jobs", steps=2, forecasts=1, known=1)
    words = [run_dir, "--ledger", ledger, "--ledger", waiting, "--ledger", ledger]
    report(*words, "--out", tmp_path / "out", "--figures", tmp_path / "figures")
    html = (tmp_path / "out/report.html").read_text()
    assert html.count('aria-label="g_per_kwh from 2026-12-01T01:00Z to 2026-12-01T04:00Z: 3 of 4 truths within') == 1
    page = parse(re.sub(r"<svg.*?</svg>", "", html, flags=re.DOTALL))
    (table,) = [element for element in page.find("table") if "Each series of a ledger" in element.text]
    assert "g_per_kwh" in table.text
    assert "75.0%" in table.text
    assert "of 90% promised" in table.text
    assert "too few blocks" in table.text
    assert table.text.count("none known yet") == 5
    lines = {element.attrs["id"]: element.text for element in page.find("li") if "id" in element.attrs}
    cells = [link for link in page.find("a") if "ledger grid.jsonl" in link.attrs.get("data-told", "")]
    assert len(cells) == 6
    assert all("ledger grid.jsonl" in lines[link.attrs["href"][1:]] for link in cells)
    assert "no truth of a whole one is known yet" in html
    assert (tmp_path / "figures/forecast-1.pdf").is_file()
    assert not (tmp_path / "figures/forecast-2.pdf").exists()


def test_markdown_has_the_table_with_footnotes(run_dir: Path, ledger: Path) -> None:
    told = report(run_dir, "--ledger", ledger, "--format", "md").stdout
    table = told[told.index("## Forecasts") :]
    assert re.search(r"^\| g\\_per\\_kwh, 90% \| 2 \(1 waiting", table, flags=re.MULTILINE)
    used = set(re.findall(r"\[\^(\d+)\](?!:)", told))
    assert used == set(re.findall(r"^\[\^(\d+)\]: ", told, flags=re.MULTILINE))


def test_series_of_one_name_in_one_ledger_are_rows_with_what_they_are_of(run_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "spot.jsonl"
    for of in ("p3.16xlarge/us-east-1b", "g4dn.8xlarge/us-east-1c"):
        write_ledger(path, "usd_per_hour", steps=2, forecasts=2, known=5, of=of)
    told = report(run_dir, "--ledger", path, "--format", "md").stdout
    assert len(re.findall(r"^\| usd\\_per\\_hour of (?:p3|g4dn)[^|]*, 90% \|", told, flags=re.MULTILINE)) == 2
    found = json.loads(report(run_dir, "--ledger", path, "--format", "json").stdout)["forecasts"]
    assert [(one["of"], one["scored"]) for one in found] == [
        ("p3.16xlarge/us-east-1b", 2), ("g4dn.8xlarge/us-east-1c", 2),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.attack("who writes a record", "a series' name that is markup or a formula")
def test_a_hostile_name_is_text_everywhere(run_dir: Path, tmp_path: Path, hostile: str) -> None:
    path = write_ledger(tmp_path / "l.jsonl", hostile, steps=2, forecasts=2, known=6)
    report(run_dir, "--ledger", path, "--out", tmp_path / "out")
    assert "<script" not in (tmp_path / "out/report.html").read_text()
    assert "<script" not in report(run_dir, "--ledger", path, "--format", "md").stdout
    formula = write_ledger(tmp_path / "f.jsonl", "=1+1", steps=2, forecasts=2, known=6)
    (row,) = csv.DictReader(io.StringIO(report(run_dir, "--ledger", formula, "--format", "csv").stdout))
    assert row["forecast_1_series"] == "'=1+1"


def test_a_ledger_that_cannot_be_used_is_refused(run_dir: Path, ledger: Path, tmp_path: Path) -> None:
    empty, damaged = tmp_path / "empty.jsonl", tmp_path / "damaged.jsonl"
    empty.touch()
    damaged.write_bytes(ledger.read_bytes() + b"{}\n")
    for path, why in ((empty, "without a forecast"), (damaged, "no line of a ledger"), (tmp_path / "no", "be read")):
        with pytest.raises(InputError, match=why) as refused:
            report(run_dir, "--ledger", path)
        assert refused.value.fix
    with pytest.raises(InputError, match="no effect with --format focus"):
        report(run_dir, "--ledger", ledger, "--format", "focus")


@pytest.mark.slow
@pytest.mark.usefixtures("faults")
@pytest.mark.parametrize(("steps", "every", "number"), [(1, 1, 300), (2, 1, 40), (24, 24, 20), (1, 3, 10), (300, 1, 2)])
def test_a_picture_has_forecasts_that_do_not_overlap_and_as_many_as_fit(
    tmp_path: Path, steps: int, every: int, number: int
) -> None:
    known = 1 + number * every + steps
    path = write_ledger(tmp_path / "l", "jobs", steps=steps, forecasts=number, known=known, every=every)
    (drawing,), lacking = ledger_drawings(read_ledgers([path]))
    assert not lacking
    apart = math.ceil(number * every / max(steps, every)) if every < steps else number
    fit = max(1, 200 // steps)
    assert f"The last {min(apart, fit)} of {number} published forecasts" in drawing.caption
    assert b"<svg" in drawing.as_file("svg")
