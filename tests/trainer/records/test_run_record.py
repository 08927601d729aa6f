"""The record's schema is the committed one, figures cannot lie about absence, and contexts are validated."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gangway.trainer.core import errors
from gangway.trainer.core.errors import EXIT_INTERRUPTED, TrainerError
from gangway.trainer.core.host import code_sha256
from gangway.trainer.records.digest import with_digest
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import SCHEMA_FILE, RunContext, RunRecord, schema


def test_the_committed_schema_is_up_to_date() -> None:
    assert SCHEMA_FILE.read_text() == schema(), (
        "run `python -m gangway.trainer schema > trainer/records/run-record.schema.json`"
    )
    Draft202012Validator.check_schema(json.loads(schema()))


def test_a_figure_has_a_value_unless_it_is_absent() -> None:
    assert Quantity.measured(1.5, "J", "RAPL").provenance == "measured"
    assert Quantity.absent("USD", "no price").value is None
    for value, provenance in ((None, "measured"), (1.0, "absent")):
        with pytest.raises(ValueError, match="null exactly when"):
            Quantity.model_validate({"value": value, "unit": "J", "provenance": provenance, "source": "s"})


def test_a_context_file_is_read_back(tmp_path: Path) -> None:
    context = RunContext(run_id="a", capacity=("spot",), usd_per_hour=Quantity.absent("USD/h", "free"))
    path = tmp_path / "context.json"
    path.write_text(context.model_dump_json())
    assert RunContext.read(path) == context


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"provder": "aws"}',
            "context.json: provder: unknown key\n  got:     'aws'\n  fix:     did you mean 'provider'?",
        ),
        ('{"num_nodes": 0}', "context.json: num_nodes"),
        ("not JSON", "context.json: is not JSON"),
    ],
)
def test_a_bad_context_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "context.json"
    path.write_text(text)
    with pytest.raises(TrainerError) as caught:
        RunContext.read(path)
    assert message in str(caught.value)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match="no such file"):
        RunContext.read(tmp_path / "context.json")
    with pytest.raises(TrainerError, match="no run record"):
        RunRecord.read(tmp_path / "run.json")
    (tmp_path / "run.json").write_text('{"id": "x"}')
    with pytest.raises(TrainerError, match=r"run\.json: status"):
        RunRecord.read(tmp_path / "run.json")


RECORDED = "tests/gangway/report/comparison/recorded/run.json"
"""As a version of November 2026 wrote it, before segments, schedules and files beside the record."""


def test_a_record_of_an_earlier_version_is_read(repo: Path) -> None:
    values = json.loads((repo / RECORDED).read_text())
    assert values["config"].keys().isdisjoint(("segments", "schedules", "step_graph"))
    assert values.keys().isdisjoint(("segments", "decisions", "files"))
    record = RunRecord.read(repo / RECORDED)
    assert (record.segments, record.decisions, record.files) == ((), (), {})
    assert record.images == values["images"]


@pytest.mark.parametrize(
    ("changes", "place", "value"),
    [
        ({"config": {"precision": "fp8"}}, "config.precision", "'fp8'"),
        ({"config": {"a_later_field": 5}}, "config.a_later_field", "5"),
        ({"schema_version": 2}, "schema_version", "2"),
    ],
)
def test_a_record_that_only_another_version_reads_says_which(
    repo: Path, tmp_path: Path, changes: dict[str, Any], place: str, value: str
) -> None:
    """It is whole: nobody is to look for a damage."""
    values = json.loads((repo / RECORDED).read_text())
    for name, each in changes.items():
        values[name] = {**values[name], **each} if isinstance(each, dict) else each
    path = tmp_path / "run.json"
    path.write_text(json.dumps(with_digest(values)))
    with pytest.raises(TrainerError) as caught:
        RunRecord.read(path)
    error = caught.value
    assert error.headline.startswith(f"{path}: {place}: this version does not read records of another one, schema ")
    assert f"code {values['code_sha256'][:12]}, torch {values['versions']['torch']}" in error.headline
    assert "\n" not in error.headline
    assert f"got:     {value}" in str(error)
    assert error.fix.endswith(f"record --run-dir {tmp_path}")
    path.write_text(json.dumps({**with_digest(values), "seed": 12345}))
    with pytest.raises(TrainerError, match="was changed after it was written"):
        RunRecord.read(path)


def test_what_this_version_wrote_is_of_no_other(repo: Path, tmp_path: Path) -> None:
    values = json.loads((repo / RECORDED).read_text())
    values |= {"code_sha256": code_sha256(), "config": {**values["config"], "precision": "fp8"}}
    (tmp_path / "run.json").write_text(json.dumps(with_digest(values)))
    with pytest.raises(TrainerError, match=r"config\.precision: not an accepted value"):
        RunRecord.read(tmp_path / "run.json")


def test_exit_codes_are_shown_where_stacks_may_import_them() -> None:
    assert EXIT_INTERRUPTED == errors.EXIT_INTERRUPTED == 75
