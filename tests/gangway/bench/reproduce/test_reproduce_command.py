"""`gangway reproduce` as a person types it: bit-equal here, also of an interrupted run; refusals say what is wrong."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gangway.cli.main import app
from gangway.components.core.findings import InputError
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import RunRecord

Gangway = Callable[..., "subprocess.CompletedProcess[str]"]
DIGEST = f"sha256:{'d' * 64}"


@pytest.mark.slow
def test_the_same_machine_gives_the_same_bits(run_dir: Path, gangway: Gangway, tmp_path: Path) -> None:
    run_id = RunRecord.read(run_dir / "run.json").id
    done = gangway(run_id, "--runs", run_dir.parent, "--out", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["run"], found["bit_equal"], found["sealed"], found["reasons"]) == (run_id, True, True, [])
    assert (found["images"], found["windows"], found["states_equal"]) == (480, 3, 3)
    again = RunRecord.read(Path(found["path"]) / "run.json")
    assert again.state_sha256 == RunRecord.read(run_dir / "run.json").state_sha256
    assert again.id == found["again"] != run_id


@pytest.mark.slow
def test_an_interrupted_run_to_the_same_image(interrupted: Path, gangway: Gangway, tmp_path: Path) -> None:
    record = RunRecord.read(interrupted / "run.json")
    assert (record.status, record.state_sha256) == ("interrupted", {})
    done = gangway(interrupted, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"bit-equal, {record.images:,} images" in done.stdout
    assert "same bits" in done.stdout


@pytest.mark.slow
def test_another_seed_is_seen(
    run_dir: Path, gangway: Gangway, rewrite: Callable[..., RunRecord], tmp_path: Path
) -> None:
    config = RunRecord.read(run_dir / "run.json").config
    rewrite(run_dir, config={**config.model_dump(mode="json"), "seed": 1})
    done = gangway(run_dir, "--kimg", 0.16, "--out", tmp_path / "out")
    assert done.returncode == 1, done.stderr
    assert "differs, 160 images" in done.stdout
    assert "different bits" in done.stdout


def refused(*words: object) -> str:
    done = CliRunner().invoke(app, ["reproduce", *map(str, words)])
    assert isinstance(done.exception, InputError), done.output
    return str(done.exception)


def test_a_changed_record_is_refused(run_dir: Path) -> None:
    values = json.loads((run_dir / "run.json").read_text())
    (run_dir / "run.json").write_text(json.dumps({**values, "seed": 7}))
    said = refused(run_dir)
    assert f"{run_dir / 'run.json'}: was changed after it was written" in said
    assert values["digest"] in said


def test_a_run_that_is_not_there(run_dir: Path, tmp_path: Path) -> None:
    run_id = RunRecord.read(run_dir / "run.json").id
    assert f"did you mean {run_id!r}?" in refused(run_id[:-1] + "x", "--runs", run_dir.parent)
    assert "no such folder" in refused("nothing", "--runs", tmp_path / "none")


def test_a_damaged_checkpoint_is_named_before_anything_is_run(run_dir: Path, tmp_path: Path) -> None:
    manifest = min((run_dir / "checkpoints").glob("[0-9]*.json"))
    for content in (manifest.read_text()[:40], "[]", '{"images": 160, "identity": {}}'):
        manifest.write_text(content)
        said = refused(run_dir, "--out", tmp_path / "out")
        assert f"{manifest}: is not a checkpoint manifest" in said
        assert "remove this checkpoint's files" in said
    assert not (tmp_path / "out").exists()


def test_a_file_where_the_folder_goes_is_named(run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("in the way")
    said = refused(run_dir, "--out", tmp_path / "out")
    assert str(tmp_path / "out") in said
    assert "cannot be created: Not a directory" in said


def test_a_folder_of_several_runs(run_dir: Path, rewrite: Callable[..., RunRecord]) -> None:
    other = run_dir.parent / "b"
    shutil.copytree(run_dir, other)
    rewrite(other, id="another")
    assert "contains several runs" in refused(run_dir.parent)


def test_an_older_records_outcome_is_told_whole(
    run_dir: Path, rewrite: Callable[..., RunRecord], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A repetition with other weights, losses, quality and code; the record itself is from before digests."""
    absent = Quantity.absent("s", "test").model_dump(mode="json")

    def quality(value: float) -> dict[str, Any]:
        points = [{"name": "fd", "kimg": 0.48, "value": value}]
        return {"quality_in_training": {"points": points, "cost_sec": absent, "share_of_wall": absent}}

    def again(*given: Any) -> Path:
        out: Path = given[1]
        run_id, told, container = given[2], given[4], given[5]
        assert container is None
        told(480)
        shutil.copytree(run_dir, out)
        shutil.rmtree(out / "checkpoints")
        rewrite(out, id=run_id, image_digest="", state_sha256={}, code_sha256="b" * 64, **quality(4.5))
        lines = [json.loads(text) for text in (out / "stats.jsonl").read_text().splitlines()]
        changed = [{**line, "loss_g": 9.0} if line["images"] == 320 and "loss_g" in line else line for line in lines]
        (out / "stats.jsonl").write_text("".join(json.dumps(line) + "\n" for line in changed if line["images"] != 160))
        return out

    rewrite(run_dir, image_digest=DIGEST, **quality(5.0))
    values = json.loads((run_dir / "run.json").read_text())
    (run_dir / "run.json").write_text(json.dumps({**values, "digest": ""}))
    monkeypatch.setattr("gangway.bench.reproduce.execute", again)
    done = CliRunner().invoke(app, ["reproduce", str(run_dir), "--out", str(tmp_path / "out")])
    assert done.exit_code == 1, done.output
    assert "not sealed: its run.json has no digest" in done.stderr
    for words in (
        "differs, 480 images",
        "no common checkpoint or final state",
        "2 lines of the record have no counterpart",
        "fd at 0.48 kimg: 4.5 here, 5 recorded",
        "trainer's code: bbbbbbbbbbbb here",
        f"image    {DIGEST} was not started; this Python environment ran trainer code bbbbb",
        f"image: this Python environment, no image here, {DIGEST} then",
    ):
        assert words in done.stdout
