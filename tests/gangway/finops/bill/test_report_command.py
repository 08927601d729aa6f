"""`gangway report` as a person types it: records, figures, FOCUS as CSV and Parquet, and one run's page."""

import csv
import io
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner, Result

from gangway.cli.main import app
from gangway.components.core.findings import InputError
from gangway.finops.bill.focus import Version, exported_columns
from gangway.finops.bill.reader import Bills
from gangway.trainer.records.run_record import RunRecord, SessionRecord

parquet = pytest.importorskip("pyarrow.parquet")
Gangway = Callable[..., Result]


@pytest.fixture
def gangway() -> Gangway:
    """Runs a command; a mistake is raised as it is."""

    def call(*words: object) -> Result:
        result = CliRunner().invoke(app, ["report", *(str(word) for word in words)])
        if isinstance(result.exception, InputError):
            raise result.exception
        return result

    return call


@pytest.fixture
def two_runs(run_dir: Path, get_record: Callable[..., RunRecord], session_of: Callable[..., SessionRecord]) -> Path:
    """A folder of run-1 and of one that has no meter."""
    other = run_dir.parent / "run-2"
    other.mkdir()
    get_record([session_of(20, 21, "spot", joules=None)], "run-2").write(other / "run.json")
    return run_dir.parent


def test_records(gangway: Gangway, two_runs: Path) -> None:
    records = json.loads(gangway(two_runs, "--format", "json").stdout)["runs"]
    assert [RunRecord.model_validate(record).id for record in records] == ["run-1", "run-2"]


def test_figures(gangway: Gangway, two_runs: Path) -> None:
    first, second = csv.DictReader(io.StringIO(gangway(two_runs, "--format", "csv").stdout))
    assert (first["run_id"], first["provider"], first["sessions"]) == ("run-1", "aws", "1")
    assert [float(first[name]) for name in ("usd", "facility_kwh", "gco2e")] == pytest.approx([160.86, 1.25, 500])
    assert (first["usd_provenance"], first["it_kwh_provenance"]) == ("estimated", "measured")
    assert float(first["sci_g_per_kimg"]) == pytest.approx(500 + 7 * 8 * 575_000 / 35_040)
    assert second["run_id"] == "run-2"


def test_focus_as_csv(gangway: Gangway, two_runs: Path, tmp_path: Path) -> None:
    done = gangway(two_runs, "--format", "focus", "--billing-account", "1234", "--out", tmp_path / "focus.csv")
    assert done.exit_code == 0
    assert f"wrote {tmp_path / 'focus.csv'}" in done.stderr
    with (tmp_path / "focus.csv").open(newline="") as file:
        reader = csv.DictReader(file)
        rows = list(reader)
    assert tuple(reader.fieldnames or ()) == exported_columns()
    assert [(row["x_run_id"], row["x_energy_kwh"], row["x_gco2e"]) for row in rows] == [
        ("run-1", "1.25", "500.0"),
        ("run-2", "", ""),
    ]
    with pytest.raises(InputError, match="is not a bill: `gangway report` wrote it"):
        list(Bills([tmp_path / "focus.csv"]).charges())


def test_focus_as_parquet(gangway: Gangway, two_runs: Path, tmp_path: Path) -> None:
    gangway(two_runs, "--format", "focus", "--billing-account", "1234", "--out", tmp_path / "focus.parquet")
    table = parquet.read_table(tmp_path / "focus.parquet")
    assert tuple(table.column_names) == exported_columns()
    first, second = table.to_pylist()
    assert first["ChargePeriodStart"] == datetime(2026, 10, 5, 10, tzinfo=UTC)
    assert first["EffectiveCost"] == 0
    assert first["x_cost_usd"] == pytest.approx(160.86)
    assert first["x_energy_kwh"] == 1.25
    assert (second["x_energy_kwh"], second["ChargeClass"]) == (None, None)


def test_focus_of_an_older_version(gangway: Gangway, run_dir: Path) -> None:
    done = gangway(run_dir, "--format", "focus-1.2", "--billing-account", "1234")
    reader = csv.DictReader(io.StringIO(done.stdout))
    (row,) = reader
    assert tuple(reader.fieldnames or ()) == exported_columns(Version.V1_2)
    assert (row["ProviderName"], row["PublisherName"]) == ("AWS", "AWS")


def test_without_an_account_the_stack_stands_in_and_that_is_said(gangway: Gangway, run_dir: Path) -> None:
    done = gangway(run_dir, "--format", "focus")
    (row,) = csv.DictReader(io.StringIO(done.stdout))
    assert row["BillingAccountId"] == "aws-p5-spot"
    assert "run-1: no --billing-account: BillingAccountId is the stack's name" in done.stderr


def test_a_run_without_dollars_has_no_row_and_that_is_said(gangway: Gangway, run_dir: Path, run_1: RunRecord) -> None:
    older = run_1.model_copy(update={"cost": run_1.cost.model_copy(update={"uses": ()})})
    older.write(run_dir / "run.json")
    done = gangway(run_dir, "--format", "focus")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "run-1: no row: recorded by an older version" in done.stderr


def test_parquet_needs_pyarrow(
    gangway: Gangway, run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match="pip install 'pyarrow>=22'"):
        gangway(run_dir, "--format", "focus", "--out", tmp_path / "focus.parquet")
    assert list(tmp_path.glob("focus*")) == []


@pytest.mark.slow
def test_a_page_with_its_plan(gangway: Gangway, run_dir: Path, report_samples: ModuleType, tmp_path: Path) -> None:
    report = report_samples
    (run_dir / "plan.json").write_text(json.dumps(report.build_plan()))
    (run_dir / "stats.jsonl").write_text("".join(json.dumps(line) + "\n" for line in report.build_stats()))
    (run_dir / "samples.png").write_bytes(report.build_inputs(tmp_path)["samples_png"].read_bytes())
    done = gangway(run_dir, "--format", "html", "--out", tmp_path / "page")
    assert f"wrote {tmp_path / 'page' / 'report.html'}" in done.stderr
    assert "run-1" in (tmp_path / "page" / "report.html").read_text()
    (run_dir / "plan.json").write_text(json.dumps({**report.build_plan(), "energy": {"source": "x", "it_kwh": 1}}))
    with pytest.raises(InputError, match=r"plan.json: lacks 'pue'(.|\n)*gangway plan aws-p5-spot"):
        gangway(run_dir, "--format", "html")


@pytest.mark.slow
def test_a_page_with_its_plan_names_the_line_that_cannot_be_drawn_and_the_record_without_digest(
    gangway: Gangway, run_dir: Path, report_samples: ModuleType, tmp_path: Path
) -> None:
    report, page = report_samples, tmp_path / "page" / "report.html"
    lines = report.build_stats()
    place = next(number for number, line in enumerate(lines) if "event" not in line)
    (run_dir / "plan.json").write_text(json.dumps(report.build_plan()))
    (run_dir / "samples.png").write_bytes(report.build_inputs(tmp_path)["samples_png"].read_bytes())
    (run_dir / "stats.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    gangway(run_dir, "--format", "html", "--out", page.parent)
    assert "not sealed" not in page.read_text()
    record = json.loads((run_dir / "run.json").read_text())
    (run_dir / "run.json").write_text(json.dumps({**record, "digest": ""}))
    gangway(run_dir, "--format", "html", "--out", page.parent)
    assert "run run-1</a>: not sealed: its run.json has no digest" in page.read_text()
    del lines[place]["grad_norm_d"]
    (run_dir / "stats.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(InputError, match=rf"line {place + 1}: is not a line of a run: missing grad_norm_d"):
        gangway(run_dir, "--format", "html", "--out", tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--format", "csv", "--billing-account", "1"), "--billing-account: has no effect with --format csv"),
        (("--format", "json", "--usd-per-hour", "3"), "--usd-per-hour: has no effect with --format json"),
        (("--format", "focus", "--usd-per-hour", "-3"), "--usd-per-hour: out of range"),
        (("--format", "json", "--out", "nowhere/at/all.json"), "nowhere/at/all.json: cannot be written"),
    ],
)
def test_mistakes_are_named(gangway: Gangway, run_dir: Path, words: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        gangway(run_dir, *words)


@pytest.mark.slow
def test_a_page_of_runs_without_a_plan(gangway: Gangway, two_runs: Path, tmp_path: Path) -> None:
    for runs in (two_runs, two_runs / "run-1"):
        done = gangway(runs, "--format", "html", "--out", tmp_path / "page")
        assert f"wrote {tmp_path / 'page' / 'report.html'}" in done.stderr
        assert "run-1" in (tmp_path / "page" / "report.html").read_text()


@pytest.mark.slow
def test_a_page_is_not_written_among_other_files(gangway: Gangway, two_runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "report.html").write_text("<html>my own", "utf-8")
    with pytest.raises(InputError, match=r"--out: the folder has other files: report.html(.|\n)*/mine-1"):
        gangway(two_runs, "--out", folder)
    assert [path.read_text("utf-8") for path in folder.iterdir()] == ["<html>my own"]
    (folder / "report.html").unlink()
    for _ in range(2):  # into an empty folder, then over its own page
        assert gangway(two_runs, "--out", folder).exit_code == 0
    assert gangway(two_runs, "--out", two_runs).exit_code == 0, "among runs"


@pytest.mark.parametrize("words", [("md",), ("json",), ("csv",), ("focus", "--billing-account", "1")])
def test_a_file_that_is_there_is_kept_unless_it_may_go(
    gangway: Gangway, run_dir: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    out = tmp_path / "my table.txt"
    out.write_text("mine", "utf-8")
    with pytest.raises(InputError, match=r"--out: already exists(.|\n)*--out '.*/my table-1.txt'"):
        gangway(run_dir, "--format", *words, "--out", out)
    assert out.read_text("utf-8") == "mine"
    assert gangway(run_dir, "--format", *words, "--out", out, "--overwrite").exit_code == 0
    assert out.read_text("utf-8") != "mine"
