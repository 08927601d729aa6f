"""The loop in one process: what a run leaves behind, how it stops, and what makes it refuse."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer import checkpoint
from trainer.config import TrainConfig
from trainer.errors import TrainerError
from trainer.interruption import Interruption
from trainer.loop import _same_everywhere, train
from trainer.record import Figure, RunContext, RunRecord

Lines = Callable[[Path], list[dict[str, Any]]]


@pytest.fixture
def short(tiny_config: TrainConfig) -> TrainConfig:
    return tiny_config.replace({"kimg": 0.32, "checkpoint_kimg": 0.16, "sample_kimg": 0.16, "stats_kimg": 0.08})


def _train(config: TrainConfig, run_dir: Path, data: Path, **more: Any) -> int:
    return train(config, run_dir, data, RunContext(run_id="r"), more.pop("interruption", Interruption()), **more)


def test_a_run_leaves_all_its_files_behind(
    short: TrainConfig, tmp_path: Path, digits_dir: Path, lines_of: Lines
) -> None:
    assert _train(short, tmp_path / "run", digits_dir) == 0
    run_dir = tmp_path / "run"
    names = {path.relative_to(run_dir).as_posix() for path in run_dir.rglob("*") if path.is_file()}
    assert names == {
        "config.json",
        "stats.jsonl",
        "run.json",
        "reals.png",
        "samples.png",
        "samples/000000kimg.png",
        *(f"checkpoints/{images:012d}.{end}" for images in (160, 320) for end in ("pt", "json")),
    }
    assert TrainConfig.from_file(run_dir / "config.json") == short
    lines = lines_of(run_dir)
    assert [line["event"] for line in lines if "event" in line] == ["start", "checkpoint", "checkpoint", "done"]
    ticks = [line for line in lines if "event" not in line]
    assert [line["images"] for line in ticks] == [80, 160, 240, 320]
    assert [line["step"] for line in ticks] == [5, 10, 15, 20]
    assert all(line["images_per_sec"] > 0 and line["rss_gib"] > 0 and line["r1"] > 0 for line in ticks)
    record = RunRecord.read(run_dir / "run.json")
    assert (record.id, record.status, record.images) == ("r", "done", 320)
    assert record.state_sha256 == checkpoint.load(run_dir / "checkpoints/000000000320.pt").manifest.state_sha256


def test_a_signal_stops_it_with_75_and_the_next_session_goes_on(
    short: TrainConfig, tmp_path: Path, digits_dir: Path, lines_of: Lines
) -> None:
    interruption = Interruption()
    interruption.cause = "SIGTERM"
    assert _train(short, tmp_path, digits_dir, interruption=interruption) == 75
    record = RunRecord.read(tmp_path / "run.json")
    assert (record.status, record.images, record.interruptions[0].cause) == ("interrupted", 16, "SIGTERM")
    assert _train(short, tmp_path, digits_dir) == 0
    record = RunRecord.read(tmp_path / "run.json")
    assert [(s.images_from, s.images_to, s.ended_by) for s in record.sessions] == [
        (0, 16, "interrupt"),
        (16, 320, "done"),
    ]
    assert record.interruptions[0].lost_sec.value is not None
    assert record.interruptions[0].lost_sec.value > 0


def test_a_corrupt_newest_checkpoint_is_passed_over_aloud(
    short: TrainConfig, tmp_path: Path, digits_dir: Path, lines_of: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    _train(short, tmp_path, digits_dir)
    whole = RunRecord.read(tmp_path / "run.json")
    (tmp_path / "checkpoints/000000000320.pt").write_bytes(b"nonsense")
    assert _train(short, tmp_path, digits_dir) == 0
    assert "passed over a checkpoint" in capsys.readouterr().out
    events = [line for line in lines_of(tmp_path) if "event" in line]
    skipped = next(line for line in events if line["event"] == "checkpoint-skipped")
    assert "000000000320.pt: checkpoint is corrupt" in skipped["why"]
    again = RunRecord.read(tmp_path / "run.json")
    assert again.sessions[1].images_from == 160
    assert again.state_sha256 == whole.state_sha256


def test_another_seed_or_never_is_refused_where_a_run_is(short: TrainConfig, tmp_path: Path, digits_dir: Path) -> None:
    _train(short, tmp_path, digits_dir)
    before = (tmp_path / "stats.jsonl").read_bytes()
    with pytest.raises(TrainerError, match="seed: the run in this directory was started with another value"):
        _train(short.replace({"seed": 5}), tmp_path, digits_dir)
    with pytest.raises(TrainerError, match="holds a run already"):
        _train(short, tmp_path, digits_dir, resume=False)
    assert (tmp_path / "stats.jsonl").read_bytes() == before


def test_a_longer_run_goes_on_from_a_finished_one(short: TrainConfig, tmp_path: Path, digits_dir: Path) -> None:
    _train(short, tmp_path / "a", digits_dir)
    _train(short.replace({"kimg": 0.48}), tmp_path / "a", digits_dir)
    _train(short.replace({"kimg": 0.48}), tmp_path / "b", digits_dir, resume=False)
    records = [RunRecord.read(tmp_path / name / "run.json") for name in "ab"]
    assert records[0].state_sha256 == records[1].state_sha256
    assert records[0].images == 480


def test_a_diverged_run_stops_with_its_reason(short: TrainConfig, tmp_path: Path, digits_dir: Path) -> None:
    with pytest.raises(TrainerError, match="no longer a finite number"):
        _train(short.replace({"lr_g": 1e30, "lr_d": 1e30}), tmp_path, digits_dir)


def test_the_context_enters_the_record(short: TrainConfig, tmp_path: Path, digits_dir: Path) -> None:
    price = Figure(value=2.0, unit="USD/h", provenance="list-price", source="s", as_of="2026-01-01")
    context = RunContext(stack="dev", region="here", capacity=("spot",), usd_per_hour=price)
    train(short, tmp_path, digits_dir, context, Interruption())
    record = RunRecord.read(tmp_path / "run.json")
    assert (record.stack, record.region, record.capacity) == ("dev", "here", ("spot",))
    assert record.cost.total_usd.value is not None
    assert record.id.startswith("dcgan-digits-")
    assert record.energy.it_joules.provenance in ("measured", "estimated")


def test_a_finished_run_says_so_and_changes_nothing(
    short: TrainConfig, tmp_path: Path, digits_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _train(short, tmp_path, digits_dir)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert _train(short, tmp_path, digits_dir) == 0
    assert "done already, 320 images" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_run_killed_after_its_last_checkpoint_is_brought_to_its_end(
    short: TrainConfig, tmp_path: Path, digits_dir: Path
) -> None:
    _train(short, tmp_path, digits_dir)
    record = RunRecord.read(tmp_path / "run.json")
    record.model_copy(update={"status": "interrupted"}).write(tmp_path / "run.json")
    assert _train(short, tmp_path, digits_dir) == 0
    assert RunRecord.read(tmp_path / "run.json").status == "done"


def test_workers_with_different_checkpoints_stop(tmp_path: Path) -> None:
    _same_everywhere([16, 16], tmp_path)
    with pytest.raises(TrainerError, match=r"by rank: \[16, 32\]"):
        _same_everywhere([16, 32], tmp_path)
