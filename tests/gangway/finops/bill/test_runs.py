"""Run directories that a person names: found once each, oldest first, and a bad one is named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.finops.bill.focus import missing_rows_reason
from gangway.runs.run_folders import find_runs, read_json
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import RunRecord, SessionRecord


def test_each_run_once_and_of_copies_the_longest(
    tmp_path: Path, get_record: Callable[..., RunRecord], session_of: Callable[..., SessionRecord]
) -> None:
    first, more = session_of(1, 2, "spot"), session_of(3, 4, "spot")
    for name, sessions, run_id in (("a", [first], "run-1"), ("b", [first, more], "run-1"), ("c", [more], "run-2")):
        (tmp_path / name).mkdir()
        get_record(sessions, run_id).write(tmp_path / name / "run.json")
    (tmp_path / "latest").symlink_to("c")
    (tmp_path / "b" / "plan.json").write_text('{"stack": "x"}')
    runs = find_runs([tmp_path, tmp_path / "latest", tmp_path / "c" / "run.json"])
    assert [(run.record.id, run.path.name, len(run.record.sessions)) for run in runs] == [
        ("run-1", "b", 2),
        ("run-2", "c", 1),
    ]
    assert [run.plan for run in runs] == [{"stack": "x"}, None]


@pytest.mark.parametrize("differs", ["seed", "start", "data", "weights"])
def test_two_runs_with_one_id_are_refused(
    tmp_path: Path, get_record: Callable[..., RunRecord], session_of: Callable[..., SessionRecord], differs: str
) -> None:
    first = get_record([session_of(1, 2, "spot")])
    changes: dict[str, dict[str, Any]] = {
        "seed": {"seed": first.seed + 1},
        "start": {"sessions": (session_of(5, 6, "spot"),)},
        "data": {"dataset": first.dataset.model_copy(update={"sha256": "f" * 64})},
        "weights": {"state_sha256": {"g": "f" * 64}},
    }
    for name, record in (("a", first), ("b", first.model_copy(update=changes[differs]))):
        (tmp_path / name).mkdir()
        record.write(tmp_path / name / "run.json")
    with pytest.raises(InputError, match=r"run.json: is another run with the same id as .*run.json(.|\n)*run-1"):
        find_runs([tmp_path])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"run.json: is damaged or was cut off: not JSON(.|\n)*record --run-dir /"),
        ('{"id": "x"}', r"run.json: status: not a run record of this version: missing"),
        (
            '{"id": "x", "schema_version": 7, "code_sha256": "0123456789abcdef"}',
            r"run.json: schema_version: not a run record of this version, but of schema 7, code 0123456789ab: not",
        ),
    ],
)
def test_a_bad_record_is_named(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "run.json").write_text(content)
    (tmp_path / "stats.jsonl").touch()
    with pytest.raises(InputError, match=message):
        find_runs([tmp_path])


def test_a_record_without_a_session_is_named(tmp_path: Path, run_1: RunRecord) -> None:
    run_1.model_copy(update={"sessions": ()}).write(tmp_path / "run.json")
    with pytest.raises(InputError, match=r"run.json: sessions: the record has no session"):
        find_runs([tmp_path])


@pytest.mark.parametrize("moment", ["yesterday", "", "2026-01-31T08:00:00", "9999-12-31T08:00:00+00:00"])
def test_a_session_that_began_at_no_time_is_named(tmp_path: Path, run_1: RunRecord, moment: str) -> None:
    odd = run_1.sessions[0].model_copy(update={"start": moment})
    run_1.model_copy(update={"sessions": (run_1.sessions[0], odd)}).write(tmp_path / "run.json")
    with pytest.raises(InputError, match=r"run.json: sessions.1: is not a valid time"):
        find_runs([tmp_path])


def test_a_use_of_machines_at_no_time_is_named(tmp_path: Path, run_1: RunRecord) -> None:
    uses = tuple(use.model_copy(update={"start": ""}) for use in run_1.cost.uses)
    cost = run_1.cost.model_copy(update={"uses": uses})
    run_1.model_copy(update={"cost": cost}).write(tmp_path / "run.json")
    with pytest.raises(InputError, match=r"run.json: cost.uses.0: is not a valid time"):
        find_runs([tmp_path])


@pytest.mark.parametrize("images", [10**400, -(10**60)])
def test_a_number_that_is_no_figure_is_named(tmp_path: Path, run_1: RunRecord, images: int) -> None:
    run_1.model_copy(update={"images": images}).write(tmp_path / "run.json")
    with pytest.raises(InputError, match=r"run.json: images: is too large for a run"):
        find_runs([tmp_path])


@pytest.mark.parametrize("damage", ["no machines", "another session's", "a part without dollars"])
def test_a_damaged_cost_has_no_rows(run_1: RunRecord, damage: str) -> None:
    assert not missing_rows_reason(run_1)
    (use,), (session,) = run_1.cost.uses, run_1.sessions
    match damage:
        case "no machines":
            odd = run_1.model_copy(update={"sessions": (session.model_copy(update={"num_nodes": 0}),)})
        case "another session's":
            uses = (use, use.model_copy(update={"session": 7}))
            odd = run_1.model_copy(update={"cost": run_1.cost.model_copy(update={"uses": uses})})
        case _:
            unknown = use.model_copy(update={"usd": Quantity.absent("USD", "lost")})
            odd = run_1.model_copy(update={"cost": run_1.cost.model_copy(update={"uses": (unknown,)})})
    assert missing_rows_reason(odd).startswith("damaged")


def test_a_folder_without_runs_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--runs: contains no run.json"):
        find_runs([tmp_path])
    (tmp_path / "run.json").mkdir()
    with pytest.raises(InputError, match="cannot be read: it is no regular file"):
        find_runs([tmp_path])


def test_a_file_that_is_no_json_object_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "b.json").write_text("[]")
    for name, message in (("a.json", "is not JSON"), ("b.json", "is not a JSON object"), ("c.json", "cannot be read")):
        with pytest.raises(InputError, match=f"{name}: {message}"):
            read_json(tmp_path / name)
