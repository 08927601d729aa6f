"""`gangway report` of runs that are broken, half done or without a record: what and where, before or after all else."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gangway.cli.main import app
from gangway.components.core.findings import InputError
from gangway.runs.run_folders import half_runs
from gangway.trainer.records.run_record import RunRecord

Gangway = Callable[..., Result]


@pytest.fixture
def gangway() -> Gangway:
    """Runs `gangway report`; a mistake is raised as it is."""

    def call(*words: object) -> Result:
        result = CliRunner().invoke(app, ["report", *(str(word) for word in words)])
        if isinstance(result.exception, InputError):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result

    return call


@pytest.fixture
def lines(stats: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(line) + "\n" for line in stats)


@pytest.fixture
def run_dir(tmp_path: Path, record: RunRecord, plan: dict[str, Any], lines: str) -> Path:
    """A run that is done, with its plan, without samples."""
    path = tmp_path / "runs" / "whole"
    path.mkdir(parents=True)
    record.write(path / "run.json")
    (path / "plan.json").write_text(json.dumps(plan))
    (path / "stats.jsonl").write_text(lines)
    return path


def test_a_run_that_is_alone_and_without_a_record_is_named_with_what_writes_one(
    gangway: Gangway, tmp_path: Path, lines: str
) -> None:
    half = tmp_path / "runs" / "a half"
    half.mkdir(parents=True)
    (half / "stats.jsonl").write_text(lines)
    for place in (half.parent, half):
        with pytest.raises(InputError) as caught:
            gangway(place, "--format", "html")
        assert f"contains no run.json, only stats.jsonl of a running or interrupted run in {half}" in str(caught.value)
        assert f"record --run-dir '{half}'" in str(caught.value)


@pytest.mark.parametrize("output", ["html", "md", "json", "csv"])
def test_beside_others_it_is_in_no_table_and_the_last_word(
    output: str, gangway: Gangway, run_dir: Path, lines: str, tmp_path: Path
) -> None:
    half = run_dir.parent / "half"
    half.mkdir()
    (half / "stats.jsonl").write_text(lines)
    assert half_runs([run_dir.parent, half]) == [half]
    done = gangway(run_dir.parent, "--format", output, "--out", tmp_path / "out")
    why = "half: no record: it has no run.json: it goes on, or was cut off; "
    last = [line for line in done.stderr.splitlines() if not line.startswith("wrote ")]
    assert [line for line in last if why in line]
    assert done.stderr.splitlines()[-len(last) :] == last, "warnings come last"
    if output == "html":
        page = (tmp_path / "out" / "report.html").read_text()
        assert page.index("it has no run.json: it goes on") < page.index('id="table"')
    if output == "md":
        text = (tmp_path / "out").read_text()
        assert text.index("## Not in the table: 1") < text.index("| Time, h")


@pytest.mark.slow
def test_a_run_that_goes_on_or_lacks_files_has_a_page_that_says_so_first(
    gangway: Gangway, run_dir: Path, record: RunRecord, parse: Callable[[str], Any]
) -> None:
    record.model_copy(update={"status": "interrupted", "images": 60_032}).write(run_dir / "run.json")
    done = gangway(run_dir, "--format", "html")
    page = parse((run_dir / "report" / "report.html").read_text())
    assert page.find("section")[0].attrs["aria-labelledby"] == "wrong"
    said = page.section("wrong")
    assert "3 errors, 0 warnings" in said
    first = (
        f"error: run {record.id}: is interrupted, at 60 of {record.config.kimg:g} kimg: every figure below is of a part"
    )
    assert first in said
    assert f"error: run {record.id}: has no samples.png" in said
    assert said.index("has no samples.png") < said.index("gangway:budget"), "the run's own come before its plan's"
    assert "The run has left no samples.png." in page.section("samples")
    assert f"warning: {record.id}: no samples.png" in done.stderr
    assert (
        done.stderr.splitlines()[-1] == f"warning: {record.id}: interrupted: at 60.032 of {record.config.kimg:g} kimg"
    )


@pytest.mark.slow
def test_what_is_wrong_with_plan_and_sandbox_stands_first_and_what_is_right_has_no_such_section(
    page: Any, page_of: Callable[[dict[str, Any]], Any], inputs: dict[str, Any], record: RunRecord, tmp_path: Path
) -> None:
    said = page.section("wrong")
    assert said.startswith("What is wrong 2 errors, 1 warning, in the run and its plan")
    assert "aws:budgets/budget:Budget was different in the sandbox moto drops the filter" in said
    assert "error: gangway:budget: " in said
    assert "capacity.rung" not in said, "what is only worth saying is wrong with nothing"
    assert said.index("error: gangway:budget") < said.index("warning: ")
    record.write(tmp_path / "run.json")
    inputs |= {"record": RunRecord.model_validate_json((tmp_path / "run.json").read_bytes()), "sandbox": []}
    inputs["plan"]["findings"] = []
    assert page_of(inputs).find("section", **{"aria-labelledby": "wrong"}) == []


@pytest.mark.parametrize("output", ["html", "md", "json", "csv"])
def test_a_broken_record_hides_no_other(output: str, gangway: Gangway, run_dir: Path, tmp_path: Path) -> None:
    cut = run_dir.parent / "cut"
    cut.mkdir()
    (cut / "run.json").write_text((run_dir / "run.json").read_text()[:300])
    done = gangway(run_dir.parent, "--format", output, "--out", tmp_path / "out")
    first = next(line for line in done.stderr.splitlines() if line.startswith("warning: "))
    assert first.startswith(f"warning: cut: broken record: {cut / 'run.json'} is damaged or was cut off")
    if output == "html":
        page = (tmp_path / "out" / "report.html").read_text()
        assert page.index("is damaged or was cut off") < page.index('id="table"')


def test_what_writes_a_record_anew_is_proposed_only_where_it_can(
    gangway: Gangway, run_dir: Path, lines: str, tmp_path: Path
) -> None:
    cut = tmp_path / "cut"
    cut.mkdir()
    (cut / "run.json").write_text((run_dir / "run.json").read_text()[:300])
    with pytest.raises(InputError, match="is damaged or was cut off") as caught:
        gangway(cut)
    assert "record --run-dir" not in caught.value.fix
    assert "without stats.jsonl its run.json cannot be rebuilt" in caught.value.fix
    (cut / "stats.jsonl").write_text(lines)
    with pytest.raises(InputError, match="is damaged or was cut off") as caught:
        gangway(cut)
    assert f"record --run-dir {cut}" in caught.value.fix
