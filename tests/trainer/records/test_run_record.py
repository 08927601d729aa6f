"""The record's schema is the committed one, figures cannot lie about absence, and contexts are validated."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from trainer.core import errors
from trainer.core.errors import EXIT_INTERRUPTED, TrainerError
from trainer.records.quantity import Quantity
from trainer.records.run_record import SCHEMA_FILE, RunContext, RunRecord, schema


def test_the_committed_schema_is_up_to_date() -> None:
    assert SCHEMA_FILE.read_text() == schema(), (
        "run `python -m trainer schema > trainer/records/run-record.schema.json`"
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
            "context.json: provder: unknown field\n  got:     'aws'\n  fix:     did you mean 'provider'?",
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


def test_exit_codes_are_shown_where_stacks_may_import_them() -> None:
    assert EXIT_INTERRUPTED == errors.EXIT_INTERRUPTED == 75
