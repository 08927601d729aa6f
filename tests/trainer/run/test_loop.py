"""The loop in one process: what a run leaves behind, how it stops, and what makes it refuse."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.checkpoint import store
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.packaged_data import load_digits_images
from gangway.trainer.preemption.notices import Interruption, write_notice
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import RunContext, RunRecord
from gangway.trainer.records.stats_log import read_stats_log
from gangway.trainer.records.summary import summarise
from gangway.trainer.run.loop import steps_between_votes, train
from gangway.trainer.run.session_setup import RunOptions
from tests.shard_files import write_shards

Lines = Callable[[Path], list[dict[str, Any]]]


@pytest.fixture
def short(tiny_config: TrainConfig) -> TrainConfig:
    return tiny_config.replace({"kimg": 0.32, "checkpoint_kimg": 0.16, "sample_kimg": 0.16, "stats_kimg": 0.08})


def _train(config: TrainConfig, run_dir: Path, data: Path, **more: Any) -> int:
    return train(config, run_dir, data, RunContext(run_id="r"), more.pop("interruption", Interruption()), **more)


@pytest.mark.slow
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
    assert [line["event"] for line in lines if line.get("event", "data-verified") != "data-verified"] == [
        "start",
        "choices",
        "checkpoint",
        "checkpoint",
        "done",
    ]
    ticks = [line for line in lines if "event" not in line]
    assert [line["images"] for line in ticks] == [80, 160, 240, 320]
    assert [line["step"] for line in ticks] == [5, 10, 15, 20]
    assert all(line["images_per_sec"] > 0 and line["rss_gib"] > 0 and line["r1"] > 0 for line in ticks)
    record = RunRecord.read(run_dir / "run.json")
    assert (record.id, record.status, record.images) == ("r", "done", 320)
    assert record.state_sha256 == store.load(run_dir / "checkpoints/000000000320.pt").manifest.state_sha256


@pytest.mark.slow
def test_collectors_get_the_diarys_lines_on_stdout(
    short: TrainConfig, tmp_path: Path, digits_dir: Path, lines_of: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _train(short, tmp_path / "run", digits_dir, options=RunOptions(log_json=True)) == 0
    out, err = capsys.readouterr()
    printed = [json.loads(line) for line in out.splitlines()]
    assert printed == lines_of(tmp_path / "run")
    assert all(line["gpu_utilisation"] is None for line in printed if "event" not in line), "no GPU here"
    assert f"{tmp_path / 'run'}: a new run of 320 images" in err, "sentences are beside them"


@pytest.mark.slow
def test_a_session_says_how_it_begins_and_where_its_results_are(
    short: TrainConfig, tmp_path: Path, digits_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = tmp_path / "run"
    assert _train(short, run_dir, digits_dir) == 0
    first = capsys.readouterr().out
    assert first.startswith(f"{run_dir}: a new run of 320 images, {short.preset}, on 1 worker (cpu, ")
    assert (
        f"{run_dir}: done, 320 images; look at samples.png there, or judge it: python -m gangway.trainer evaluate"
        in first
    )
    assert _train(short.replace({"kimg": 0.48}), run_dir, digits_dir) == 0
    assert capsys.readouterr().out.startswith(f"{run_dir}: goes on from 320 of 480 images, {short.preset}, on 1 worker")


@pytest.mark.slow
def test_a_rebalance_is_answered_by_one_checkpoint(
    short: TrainConfig, tmp_path: Path, digits_dir: Path, lines_of: Lines
) -> None:
    interruption = Interruption(tmp_path / "notices.jsonl")
    write_notice(tmp_path / "notices.jsonl", "rebalance")
    assert _train(short, tmp_path / "run", digits_dir, interruption=interruption) == 0
    saved = [line for line in lines_of(tmp_path / "run") if line.get("event") == "checkpoint"]
    assert [(line["images"], line.get("why")) for line in saved] == [(16, "rebalance"), (160, None), (320, None)]


def test_a_signal_stops_it_with_75_and_the_next_session_goes_on(
    short: TrainConfig, tmp_path: Path, digits_dir: Path, lines_of: Lines
) -> None:
    interruption = Interruption()
    interruption._on_signal(signal.SIGTERM, None)
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


@pytest.mark.slow
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
    assert "fix:" not in skipped["why"], "a sentence, not a message inside a message"
    again = RunRecord.read(tmp_path / "run.json")
    assert again.sessions[1].images_from == 160
    assert again.state_sha256 == whole.state_sha256


def test_another_seed_or_never_is_refused_where_a_run_is(short: TrainConfig, tmp_path: Path, digits_dir: Path) -> None:
    _train(short, tmp_path, digits_dir)
    before = (tmp_path / "stats.jsonl").read_bytes()
    with pytest.raises(TrainerError, match=r"TrainConfig\.seed: the run in .* was started with another value"):
        _train(short.replace({"seed": 5}), tmp_path, digits_dir)
    with pytest.raises(TrainerError, match="holds a run already"):
        _train(short, tmp_path, digits_dir, options=RunOptions(resume=False))
    assert (tmp_path / "stats.jsonl").read_bytes() == before


@pytest.mark.slow
def test_a_longer_run_goes_on_from_a_finished_one(short: TrainConfig, tmp_path: Path, digits_dir: Path) -> None:
    _train(short, tmp_path / "a", digits_dir)
    _train(short.replace({"kimg": 0.48}), tmp_path / "a", digits_dir)
    _train(short.replace({"kimg": 0.48}), tmp_path / "b", digits_dir, options=RunOptions(resume=False))
    records = [RunRecord.read(tmp_path / name / "run.json") for name in "ab"]
    assert records[0].state_sha256 == records[1].state_sha256
    assert records[0].images == 480


@pytest.fixture
def stopped(short: TrainConfig, tmp_path: Path, digits_dir: Path) -> Path:
    """A run directory whose first session was interrupted at 160 images."""
    assert _train(short.replace({"kimg": 0.16}), tmp_path / "run", digits_dir) == 0
    return tmp_path / "run"


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["deleted", "truncated", "garbage"])
def test_a_lost_diary_does_not_lose_the_runs_identity(
    short: TrainConfig,
    stopped: Path,
    digits_dir: Path,
    capsys: pytest.CaptureFixture[str],
    damage: str,
) -> None:
    stats = stopped / "stats.jsonl"
    stats.unlink() if damage == "deleted" else stats.write_bytes(b"" if damage == "truncated" else b"\xff{\n[1]\n")
    context = RunContext(run_id="another")
    assert train(short, stopped, digits_dir, context, Interruption()) == 0
    record = RunRecord.read(stopped / "run.json")
    assert record.id == "r"
    assert [(session.images_from, session.images_to) for session in record.sessions] == [(160, 320)]
    assert "no beginning of session(s) 0" in record.notes[0]
    assert "stats.jsonl is damaged" in capsys.readouterr().out
    (event,) = [line for line in read_stats_log(stopped).lines if line.get("event") == "stats-damaged"]
    assert (event["session"], event["unreadable_lines"]) == (1, 2 if damage == "garbage" else 0)
    assert store.load(stopped / "checkpoints/000000000320.pt").manifest.identity.session == 1


@pytest.mark.slow
def test_a_loss_is_told_once_and_stays_in_the_record(short: TrainConfig, stopped: Path, digits_dir: Path) -> None:
    with (stopped / "stats.jsonl").open("a") as file:
        file.write('{"images": 160, "lo')
    _train(short, stopped, digits_dir)
    _train(short.replace({"kimg": 0.48}), stopped, digits_dir)
    texts = (stopped / "stats.jsonl").read_text().splitlines()
    assert sum("stats-damaged" in text for text in texts) == 1
    record = RunRecord.read(stopped / "run.json")
    assert [session.ended_by for session in record.sessions] == ["done"] * 3
    assert "1 unreadable line(s)" in record.notes[0]


def test_other_shards_are_refused_and_nothing_is_written(
    short: TrainConfig, stopped: Path, digits_dir: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    write_shards(other, "digits", load_digits_images()[::-1])
    before = {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}
    with pytest.raises(TrainerError, match="--data: the shards in"):
        _train(short, stopped, other)
    assert {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["config.json", "run.json"])
def test_a_damaged_file_is_mended_aloud(
    short: TrainConfig,
    stopped: Path,
    digits_dir: Path,
    lines_of: Lines,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    (stopped / name).write_text('{"preset": ')
    assert _train(short, stopped, digits_dir) == 0
    (event,) = [line for line in lines_of(stopped) if line.get("event") == "repaired"]
    assert event["file"] == name
    assert "is not JSON" in event["found"]
    assert f"{name} was damaged ({event['found']}); written anew" in capsys.readouterr().out
    assert RunRecord.read(stopped / "run.json").config == short == TrainConfig.from_file(stopped / "config.json")


def test_a_finished_run_with_a_damaged_record_gets_it_back(short: TrainConfig, stopped: Path, digits_dir: Path) -> None:
    (stopped / "run.json").write_text("{")
    assert _train(short.replace({"kimg": 0.16}), stopped, digits_dir) == 0
    record = RunRecord.read(stopped / "run.json")
    assert (record.status, record.images) == ("done", 160)


def test_a_file_where_a_folder_is_needed_stops_the_run_before_it_begins(
    short: TrainConfig, tmp_path: Path, digits_dir: Path
) -> None:
    (tmp_path / "config.json").write_text(short.to_json())  # a run's folder, or it would be refused for that
    (tmp_path / "checkpoints").write_text("")
    with pytest.raises(TrainerError, match=r"--run-dir: .*checkpoints is a file") as caught:
        _train(short, tmp_path, digits_dir)
    assert caught.value.fix
    with pytest.raises(TrainerError, match=r"--data: .* is a file"):
        _train(short, tmp_path / "run", tmp_path / "checkpoints")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints", "config.json"]


def test_a_state_that_went_bad_between_two_lines_is_not_saved(
    short: TrainConfig, tmp_path: Path, digits_dir: Path
) -> None:
    config = short.replace({"lr_g": 1e30, "lr_d": 1e30, "stats_kimg": 1, "checkpoint_kimg": 0.16})
    with pytest.raises(TrainerError, match="at step 10, 160 images, not saved: is no longer a finite number"):
        _train(config, tmp_path, digits_dir)
    assert not list((tmp_path / "checkpoints").glob("*"))


def test_a_diverged_run_stops_with_its_reason(short: TrainConfig, tmp_path: Path, digits_dir: Path) -> None:
    with pytest.raises(TrainerError, match="no longer a finite number") as caught:
        _train(short.replace({"lr_g": 1e30, "lr_d": 1e30}), tmp_path, digits_dir)
    record = summarise(tmp_path)
    (session,), (stop,) = record.sessions, record.interruptions
    assert (record.status, session.ended_by, stop.cause, stop.images) == ("interrupted", "failed", "failed", 0)
    assert f"session 0 failed: TrainerError: {caught.value.headline}" in record.notes


def test_a_session_that_never_began_leaves_no_end(
    short: TrainConfig, tmp_path: Path, digits_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end alone would make the next session tell of a beginning that is lost."""

    def full(path: Path, _: object) -> None:
        raise TrainerError(place=str(path), problem="No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("gangway.trainer.run.reporter.write_samples", full)
        with pytest.raises(TrainerError, match="No space left"):
            _train(short, tmp_path, digits_dir)
    assert not (tmp_path / "stats.jsonl").exists()
    assert _train(short, tmp_path, digits_dir) == 0
    assert summarise(tmp_path).notes == ()


def test_the_context_enters_the_record(short: TrainConfig, tmp_path: Path, digits_dir: Path) -> None:
    price = Quantity(value=2.0, unit="USD/h", provenance="list-price", source="s", as_of="2026-01-01")
    context = RunContext(stack="dev", region="here", capacity=("spot",), usd_per_hour=price)
    train(short, tmp_path, digits_dir, context, Interruption())
    record = RunRecord.read(tmp_path / "run.json")
    assert (record.stack, record.region, record.capacity) == ("dev", "here", ("spot",))
    assert record.cost.total_usd.value is not None
    assert record.id.startswith("dcgan-digits-")
    assert record.energy.it_joules.provenance in ("measured", "estimated")


def test_the_nodes_kind_of_capacity_prices_the_session(
    short: TrainConfig, tmp_path: Path, digits_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANGWAY_CAPACITY", "on-demand")
    price = Quantity(value=3600.0, unit="USD/h", provenance="list-price", source="catalogue")
    context = RunContext(capacity=("spot", "on-demand"), usd_per_hour_by_kind={"on-demand": price})
    assert train(short, tmp_path / "run", digits_dir, context, Interruption()) == 0
    record = RunRecord.read(tmp_path / "run" / "run.json")
    assert [session.capacity for session in record.sessions] == [("on-demand",)]
    assert record.cost.components["compute, on-demand"].value == pytest.approx(record.sessions[0].wall_sec)
    assert record.sessions[0].it_joules == record.energy.it_joules


@pytest.mark.slow
def test_a_finished_run_says_so_and_changes_nothing(
    short: TrainConfig, tmp_path: Path, digits_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _train(short, tmp_path, digits_dir)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert _train(short, tmp_path, digits_dir) == 0
    assert "done already, 320 images" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_a_run_killed_after_its_last_checkpoint_is_brought_to_its_end(
    short: TrainConfig, tmp_path: Path, digits_dir: Path
) -> None:
    _train(short, tmp_path, digits_dir)
    record = RunRecord.read(tmp_path / "run.json")
    record.model_copy(update={"status": "interrupted"}).write(tmp_path / "run.json")
    assert _train(short, tmp_path, digits_dir) == 0
    assert RunRecord.read(tmp_path / "run.json").status == "done"


@given(step_sec=st.floats(1e-4, 100), num_workers=st.integers(1, 4096))
def test_votes_are_cheap_and_nobody_waits_long_for_one(step_sec: float, num_workers: int) -> None:
    steps = steps_between_votes(step_sec, num_workers)
    assert steps >= 1
    assert steps == 1 or steps * step_sec <= 0.5, "a request is heard within half a second, or after this very step"
    hops_sec = 2 * (num_workers - 1) * 50e-6
    waits_longest = (steps + 1) * step_sec > 0.5
    assert waits_longest or hops_sec / (steps + 1) <= 0.05 * step_sec, "a twentieth of a step, where that is allowed"


def test_few_workers_ask_in_every_step() -> None:
    assert [steps_between_votes(0.002, workers) for workers in (1, 2)] == [1, 1]
    assert [steps_between_votes(0.02, workers) for workers in (8, 64, 512)] == [1, 6, 25]
