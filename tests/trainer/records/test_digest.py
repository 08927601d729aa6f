"""A record's file carries a digest of its content: changed ones are refused, older ones without it are read."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from gangway.trainer.config.presets import PRESETS
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.records.digest import (
    DIGEST,
    WRONG_DIGEST,
    FileSum,
    RunIdentity,
    changed_since,
    check_dataset,
    get_digest,
    get_sums,
    identify,
    with_digest,
)
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import CarbonRecord, CostRecord, DatasetRecord, EnergyRecord, RunRecord, schema
from gangway.trainer.records.stats_log import StatsLog

JSON_DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(), parts, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(), JSON_DATA, max_size=4)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Of a record with figures that are there, and figures that are not."""
    absent, speed = Quantity.absent("x", "not measured"), Quantity.measured(321.1, "images/s", "ü")
    path = tmp_path / "run.json"
    RunRecord(
        id="a",
        status="done",
        stack="",
        provider="",
        region="",
        machine_type="",
        capacity=(),
        num_nodes=1,
        sessions=(),
        interruptions=(),
        code_sha256="0" * 64,
        image_digest="",
        seed=0,
        dataset=DatasetRecord(name="digits", sha256="0" * 64, images=1797),
        config=PRESETS["dcgan-digits"],
        images=2048,
        wall_sec=absent,
        images_per_sec=speed,
        sec_per_kimg=absent,
        scaling_efficiency=absent,
        summaries={},
        quality=(),
        energy=EnergyRecord(devices={}, it_joules=absent, pue=absent, facility_joules=absent),
        carbon=CarbonRecord(gco2e=absent, intensity_g_per_kwh=absent, method="none"),
        cost=CostRecord(components={}, total_usd=absent),
        peak_memory_gib=absent,
        state_sha256={},
        versions={},
    ).write(path)
    return path


def test_a_digest_by_hand() -> None:
    text = '{"a":1.5,"b":["ü",null]}'
    expected = hashlib.sha256(text.encode()).hexdigest()
    assert get_digest({"b": ["ü", None], "digest": "whatever", "a": 1.5}) == expected
    assert with_digest({"b": ["ü", None], "a": 1.5}) == {"b": ["ü", None], "a": 1.5, "digest": expected}


@given(OBJECTS, st.text(), JSON_DATA)
def test_any_change_of_content_changes_the_digest(values: dict[str, Any], key: str, other: Any) -> None:
    changed = {**values, key: other}
    same = json.dumps(changed, sort_keys=True) == json.dumps(values, sort_keys=True)
    assert (get_digest(changed) == get_digest(values)) == (same or key == DIGEST)


@given(OBJECTS)
def test_layout_and_order_are_no_content(values: dict[str, Any]) -> None:
    written = json.loads(json.dumps(values, indent=4, sort_keys=True))
    assert get_digest(written) == get_digest(values)


def test_what_is_written_is_sealed_and_read_back(file: Path) -> None:
    record = RunRecord.read(file)
    assert record.digest == get_digest(json.loads(file.read_text()))
    assert RunRecord.model_validate_json(file.read_bytes()) == record
    Draft202012Validator(json.loads(schema())).validate(json.loads(file.read_text()))
    again = file.with_name("again.json")
    record.write(again)
    assert again.read_bytes() == file.read_bytes(), "sealing twice changes nothing"


@pytest.mark.attack("a bucket's writer", "a record that is changed, or signed with a key of his own")
@pytest.mark.parametrize("change", [{"images": 10**9}, {"seed": 4711}, {"notes": ["nothing"]}, {"digest": "0" * 64}])
def test_a_changed_file_is_refused_with_both_digests(file: Path, change: dict[str, Any]) -> None:
    values = json.loads(file.read_text())
    sealed = {**values, **change}[DIGEST]
    file.write_text(json.dumps({**values, **change}))
    found = get_digest({**values, **change})
    with pytest.raises(TrainerError, match=r"run\.json: was changed after it was written") as caught:
        RunRecord.read(file)
    assert found in str(caught.value)
    assert sealed in str(caught.value)
    assert caught.value.exit_code == 2
    with pytest.raises(ValidationError) as plain:
        RunRecord.model_validate_json(file.read_bytes())
    assert plain.value.errors()[0]["type"] == WRONG_DIGEST


def test_an_older_record_is_read_and_not_sealed(file: Path) -> None:
    values = json.loads(file.read_text())
    del values[DIGEST]
    file.write_text(json.dumps(values))
    assert RunRecord.read(file).digest == ""


def test_a_record_of_an_older_version_keeps_its_seal(file: Path) -> None:
    """Defaults of today are not part of what was sealed then."""
    values = json.loads(file.read_text())
    del values["utilisation"], values["choices"]
    file.write_text(json.dumps(with_digest(values)))
    assert RunRecord.read(file).choices == {}


def test_a_record_in_memory_may_be_changed(file: Path) -> None:
    record = RunRecord.read(file)
    assert RunRecord.model_validate({**record.model_dump(mode="json"), "seed": 5}).seed == 5


SAVED = RunIdentity(run_id="r", session=2, dataset_sha256="ab")


def _begin(session: int, run_id: str = "r") -> dict[str, Any]:
    return {"event": "resume" if session else "start", "session": session, "run_id": run_id}


@pytest.mark.parametrize(
    ("lines", "saved", "wanted", "expected"),
    [
        ([], None, "wanted", ("wanted", 0)),
        ([_begin(0), _begin(1)], None, "wanted", ("r", 2)),
        ([], SAVED, "wanted", ("r", 3)),
        ([_begin(0)], SAVED, "", ("r", 3)),
        ([_begin(0), _begin(4)], SAVED, "", ("r", 5)),
        ([{"session": 6}], SAVED, "", ("r", 7)),
        ([{"session": 0}], None, "wanted", ("wanted", 1)),
    ],
)
def test_identity(
    lines: list[dict[str, Any]], saved: RunIdentity | None, wanted: str, expected: tuple[str, int], tmp_path: Path
) -> None:
    found = identify(tmp_path, StatsLog(lines, 0), saved, wanted, "p", "ab")
    assert (found.run_id, found.session) == expected
    assert found.dataset_sha256 == "ab"


def test_a_run_nobody_named_is_named_by_preset_and_time_and_by_chance(tmp_path: Path) -> None:
    made = {identify(tmp_path, StatsLog([], 0), None, "", "p", "ab").run_id for _ in range(8)}
    assert all(re.fullmatch(r"p-\d{8}T\d{6}Z-[0-9a-f]{4}", one) for one in made)
    assert len(made) > 1, "runs that begin in one second are runs of their own"


def test_a_diary_and_a_checkpoint_of_two_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match="is of another run than the checkpoints") as caught:
        identify(tmp_path, StatsLog([_begin(0, "other")], 0), SAVED, "", "p", "ab")
    assert (caught.value.value, caught.value.allowed) == ("other", "r")


def test_other_shards_than_the_runs_own_are_refused(tmp_path: Path) -> None:
    check_dataset(SAVED, "ab", tmp_path)
    with pytest.raises(TrainerError, match=r"--data: the shards in .* are not those the run was trained on") as caught:
        check_dataset(SAVED, "cd", tmp_path)
    assert (caught.value.value, caught.value.allowed) == ("sha256 cd", "sha256 ab")


LINES = b'{"images": 16}\n{"images": 32}\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("checkpoints", "samples"):
        (tmp_path / name).mkdir()
    (tmp_path / "stats.jsonl").write_bytes(LINES)
    for name in ("samples.png", "samples/000001kimg.png", "checkpoints/000000000032.json", "checkpoints/32.pt"):
        (tmp_path / name).write_text(name)
    return tmp_path


def test_every_file_that_is_shown_or_compared_has_its_sum(folder: Path) -> None:
    sums = get_sums(folder)
    assert set(sums) == {"stats.jsonl", "samples.png", "samples/000001kimg.png", "checkpoints/000000000032.json"}
    assert sums["stats.jsonl"].bytes == len(LINES)
    assert changed_since(folder, sums, done=True) == []


@pytest.mark.attack("a bucket's writer", "a record that is changed, or signed with a key of his own")
@pytest.mark.parametrize("name", ["stats.jsonl", "samples.png", "samples/000001kimg.png"])
@pytest.mark.parametrize("done", [True, False])
def test_a_changed_file_is_named(folder: Path, name: str, done: bool) -> None:
    sums = get_sums(folder)
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-2] + b"9\n")
    assert changed_since(folder, sums, done=done) == [name]


def test_a_run_that_was_not_done_may_have_gone_on(folder: Path) -> None:
    sums = get_sums(folder)
    (folder / "stats.jsonl").write_bytes(LINES + b'{"images": 48}\n')
    (folder / "checkpoints/000000000048.json").write_text("{}")
    assert changed_since(folder, sums, done=False) == []
    assert changed_since(folder, sums, done=True) == ["stats.jsonl", "checkpoints/000000000048.json"]
    (folder / "stats.jsonl").write_bytes(LINES[:-4])
    assert changed_since(folder, sums, done=False) == ["stats.jsonl"], "cut off"


@pytest.mark.attack("a bucket's writer", "a record that is changed, or signed with a key of his own")
def test_what_is_away_is_no_change_and_a_link_is_one(folder: Path) -> None:
    sums = get_sums(folder)
    (folder / "samples.png").unlink()
    assert changed_since(folder, sums, done=True) == []
    (folder / "samples.png").symlink_to("/dev/zero")
    assert changed_since(folder, sums, done=True) == ["samples.png"]
    assert "samples.png" not in get_sums(folder)


def test_a_records_names_open_nothing(folder: Path) -> None:
    """They are a stranger's: files are looked for by the names that a run has."""
    stranger = {"../../etc/passwd": FileSum(bytes=1, sha256="0" * 64), **get_sums(folder)}
    assert changed_since(folder, stranger, done=True) == []
