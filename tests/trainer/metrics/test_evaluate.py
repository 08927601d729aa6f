"""Judging a run: the record it ends in, what is told before the work, and the command line."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor

from gangway.trainer.__main__ import main
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.packaged_data import load_digits_images
from gangway.trainer.metrics import evaluate as evaluation
from gangway.trainer.metrics.evaluate import evaluate_newest
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.records.run_record import RunContext, RunRecord
from gangway.trainer.run.loop import train
from tests.shard_files import write_shards
from tests.trainer.metrics.shrunk import Shrunk


def evaluate(run_dir: Path, *arguments: Any, **options: Any) -> RunRecord:
    """The record with all values, after another evaluation."""
    evaluate_newest(run_dir, *arguments, **options)
    return RunRecord.read(run_dir / "run.json")


@pytest.fixture
def shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The small extractor in place of EfficientNet-Lite0."""

    monkeypatch.setattr(evaluation, "FEATURE_SPACES", {"enl0": lambda device, paths: Shrunk()})


def _train(config: TrainConfig, run_dir: Path, data_dir: Path) -> RunRecord:
    assert train(config, run_dir, data_dir, RunContext(), Interruption()) == 0
    return RunRecord.read(run_dir / "run.json")


@pytest.mark.slow
@pytest.mark.usefixtures("shrunk")
def test_evaluating_a_run_updates_its_record(tiny_config: TrainConfig, tmp_path: Path, digits_dir: Path) -> None:
    _train(tiny_config.replace({"kimg": 0.16}), tmp_path, digits_dir)
    evaluate(tmp_path, digits_dir)
    record = evaluate(tmp_path, digits_dir, samples=20, metrics=("fd-enl0", "precision-recall-enl0"))
    assert RunRecord.read(tmp_path / "run.json") == record
    names = [quality.name for quality in record.quality]
    assert names[0] == "FD-4x4"
    assert len(names) == 5
    quality = record.quality[0]
    assert (quality.protocol.num_fakes, quality.protocol.num_reals) == (20, 40)
    assert record.quality_in_training is None
    assert record.status == "done"
    assert record.sessions[0].ended_by == "done"


@pytest.mark.usefixtures("shrunk")
def test_the_runs_own_metrics_are_computed_unless_others_are_asked_for(
    tiny_config: TrainConfig, tmp_path: Path, digits_dir: Path
) -> None:
    own = {"kimg": 0.16, "metrics": "precision-recall-enl0", "metrics_kimg": 1}
    _train(tiny_config.replace(own), tmp_path, digits_dir)
    assert evaluate(tmp_path, digits_dir).quality[0].name == "Precision-Inception", "the small extractor is no ENL0"


@pytest.mark.usefixtures("shrunk")
def test_a_corrupt_checkpoint_is_passed_over_aloud(
    tiny_config: TrainConfig, tmp_path: Path, digits_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _train(tiny_config.replace({"kimg": 0.16, "checkpoint_kimg": 0.08}), tmp_path, digits_dir)
    (tmp_path / "checkpoints/000000000160.pt").write_bytes(b"nonsense")
    assert evaluate(tmp_path, digits_dir, 16).quality[0].protocol.kimg == 0.08
    assert "passed over" in capsys.readouterr().out


def test_what_cannot_be_judged_is_told_before_the_work(
    tiny_config: TrainConfig, tmp_path: Path, digits_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = tmp_path / "run"
    _train(tiny_config.replace({"kimg": 0.16}), run_dir, digits_dir)
    monkeypatch.setattr(evaluation, "FEATURE_SPACES", {"enl0": lambda device, paths: pytest.fail("work was begun")})
    write_shards(tmp_path / "other", "digits", load_digits_images()[::-1])
    with pytest.raises(TrainerError, match="--data: the shards in"):
        evaluate(run_dir, tmp_path / "other")
    with pytest.raises(
        TrainerError, match=r"--data: no data set here[\s\S]*fix: +add --data with that folder"
    ) as no_data:
        evaluate(run_dir, run_dir / "data")
    assert RunRecord.read(run_dir / "run.json").dataset.sha256[:16] in str(no_data.value)
    with pytest.raises(TrainerError, match=r"TrainConfig\.metrics_samples: not an accepted value"):
        evaluate(run_dir, digits_dir, "1")
    with pytest.raises(TrainerError, match=r"--metrics: fd-enl0-frames is for video"):
        evaluate(run_dir, digits_dir, metrics=["fd-enl0-frames"])
    (run_dir / "config.json").write_text("{")
    with pytest.raises(TrainerError, match=r"config\.json: is not JSON"):
        evaluate(run_dir, digits_dir)
    for path in (run_dir / "checkpoints").iterdir():
        path.unlink()
    (run_dir / "config.json").write_text(tiny_config.to_json())
    with pytest.raises(TrainerError, match="--run-dir: holds no checkpoint to judge yet"):
        evaluate(run_dir, digits_dir)


@pytest.mark.slow
@pytest.mark.usefixtures("shrunk")
def test_the_command_says_each_value_and_names_its_own_flags(
    tiny_config: TrainConfig, tmp_path: Path, digits_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _train(tiny_config.replace({"kimg": 0.16}), tmp_path, digits_dir)
    command = ["evaluate", "--run-dir", str(tmp_path), "--data", str(digits_dir)]
    assert main(command) == 0
    header, said = capsys.readouterr().out.splitlines()[-2:]
    assert header == f"{tmp_path}, its checkpoint after 0.16 kimg:"
    assert said.startswith("FD-4x4  untrained ")
    assert "lower is better; 32 fakes against 64 reals: a proxy below 10,000" in said
    assert main([*command, "--metrics", "fd-enlo"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: --metrics: not an accepted value")
    assert "got:     'fd-enlo'\n  allowed: fid, fid-clean, " in said
    assert "fix:     did you mean 'fd-enl0'?\n" in said
    assert main([*command, "--metrics", "what"]) == 2
    assert "fix:     `python -m gangway.trainer evaluate --help` lists them\n" in capsys.readouterr().err
    assert main([*command, "--samples", "1"]) == 2
    assert capsys.readouterr().err.startswith("error: --samples: not an accepted value")


@pytest.mark.slow
@pytest.mark.usefixtures("shrunk")
def test_a_value_of_an_earlier_state_is_told_apart_with_its_state_and_date(
    tiny_config: TrainConfig, tmp_path: Path, digits_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _train(tiny_config.replace({"kimg": 0.16}), tmp_path, digits_dir)
    command = ["evaluate", "--run-dir", str(tmp_path), "--data", str(digits_dir)]
    assert main([*command, "--samples", "20"]) == 0
    _train(tiny_config.replace({"kimg": 0.32}), tmp_path, digits_dir)
    capsys.readouterr()
    assert main([*command, "--metrics", "precision-recall-enl0"]) == 0
    header, *values = capsys.readouterr().out.splitlines()
    assert header.endswith("its checkpoint after 0.32 kimg:")
    cut = values.index("not judged now, from before:")
    assert [line.split("-")[0] for line in values[:cut]] == ["Precision", "Recall", "Density", "Coverage"]
    (old,) = values[cut + 1 :]
    assert re.match(r"FD-4x4  .*\(after 0\.16 kimg, judged \d{4}-\d\d-\d\d \d\d:\d\d UTC; lower is .*; 20 fakes", old)
    assert main(command) == 0
    values = capsys.readouterr().out.splitlines()
    assert values[1].startswith("FD-4x4  "), "and among those of now once it is judged again"
    assert "FD-4x4" not in "".join(values[2:])


def test_missing_weights_end_the_command_with_what_to_do(
    tiny_config: TrainConfig, tmp_path: Path, digits_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _train(tiny_config.replace({"kimg": 0.16}), tmp_path, digits_dir)
    command = ["evaluate", "--run-dir", str(tmp_path), "--data", str(digits_dir), "--metrics", "fid,kid"]
    assert main(command) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: $GANGWAY_INCEPTION_WEIGHTS (or evaluate's --weights): FID, IS, KID")
    assert main([*command, "--weights", str(tmp_path / "none.pth")]) == 2
    assert capsys.readouterr().err.startswith("error: --weights: ")


@pytest.fixture
def _signals_kept() -> Iterator[None]:
    """The test runner's own handlers come back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("shrunk")
@pytest.mark.slow
def test_metrics_are_told_with_their_cost_and_change_nothing(
    tiny_config: TrainConfig,
    tmp_path: Path,
    digits_dir: Path,
    lines_of: Callable[[Path], list[dict[str, Any]]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = tiny_config.replace({"kimg": 0.8})
    without = _train(config, tmp_path / "without", digits_dir)
    run_dir = tmp_path / "with"
    record = _train(config.replace({"metrics": "fd-enl0", "metrics_kimg": 0.32}), run_dir, digits_dir)
    assert record.state_sha256 == without.state_sha256
    assert without.quality_in_training is None
    told = record.quality_in_training
    assert told is not None
    assert [(point.name, point.kimg) for point in told.points] == [("FD-4x4", 0.32), ("FD-4x4", 0.64)]
    events = [line for line in lines_of(run_dir) if line.get("event") == "quality"]
    assert [line["images"] for line in events] == [320, 640]
    assert told.cost_sec.value == pytest.approx(sum(line["in_training"]["cost_sec"] for line in events))
    assert told.share_of_wall.value is not None
    assert 0 < told.share_of_wall.value < 1
    ticks = [line for line in lines_of(run_dir) if "event" not in line]
    spent = [
        sum(event["in_training"]["cost_sec"] for event in events if event["images"] < line["images"]) for line in ticks
    ]
    assert [line["metrics_sec"] for line in ticks] == pytest.approx(spent), "the lines' rates leave them out"
    assert record.quality[0].trained.value == told.points[-1].value
    assert re.search(r"FD-4x4 \d\S*  \(.* of the time so far went into metrics", capsys.readouterr().out)


@pytest.mark.usefixtures("shrunk")
def test_the_value_is_the_one_that_evaluate_finds(tiny_config: TrainConfig, tmp_path: Path, digits_dir: Path) -> None:
    config = tiny_config.replace({"kimg": 0.32, "metrics": "fd-enl0", "metrics_kimg": 0.32})
    record = _train(config, tmp_path, digits_dir)
    assert record.quality_in_training is not None
    assert evaluate(tmp_path, digits_dir).quality[0].trained.value == record.quality_in_training.points[-1].value


@pytest.fixture
def interrupting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The third part of any features brings SIGTERM; the parts computed, by their number of images."""
    parts: list[int] = []
    honest = Shrunk.__call__

    def signalled(shrunk: Shrunk, images: Tensor) -> NDArray[np.float64]:
        parts.append(len(images))
        if len(parts) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return honest(shrunk, images)

    monkeypatch.setattr(Shrunk, "__call__", signalled)
    return parts


@pytest.mark.usefixtures("shrunk")
@pytest.mark.usefixtures("_signals_kept")
def test_a_stop_abandons_them_and_the_state_is_saved_before(
    tiny_config: TrainConfig,
    tmp_path: Path,
    digits_dir: Path,
    lines_of: Callable[[Path], list[dict[str, Any]]],
    interrupting: list[int],
) -> None:
    config = tiny_config.replace({"metrics": "fd-enl0", "metrics_kimg": 0.32, "metrics_samples": 800})
    assert train(config, tmp_path, digits_dir, RunContext(), Interruption().install()) == 75
    assert 3 <= len(interrupting) < 20, "of 150 parts: those under way are waited for, no more"
    events = [(line["event"], line["images"]) for line in lines_of(tmp_path) if "event" in line]
    told = [event for event in events[2:] if event[0] != "data-verified"]  # at a moment of its own
    assert sorted(told) == [  # a thread tells of the checkpoints
        ("checkpoint", 320), ("checkpoint", 336), ("interrupt", 336), ("quality-abandoned", 320),
    ]  # fmt: skip


@pytest.mark.usefixtures("shrunk")
@pytest.mark.usefixtures("_signals_kept")
def test_none_are_begun_once_a_stop_is_agreed(
    tiny_config: TrainConfig, tmp_path: Path, digits_dir: Path, interrupting: list[int]
) -> None:
    config = tiny_config.replace({"metrics": "fd-enl0", "metrics_kimg": 0.016})
    interruption = Interruption()
    interruption._on_signal(signal.SIGTERM, None)
    assert train(config, tmp_path, digits_dir, RunContext(), interruption) == 75
    assert interrupting == []
    assert RunRecord.read(tmp_path / "run.json").images == 16


@pytest.mark.usefixtures("shrunk")
def test_what_cannot_be_computed_is_told_before_the_first_step(
    tiny_config: TrainConfig, tmp_path: Path, digits_dir: Path
) -> None:
    config = tiny_config.replace({"metrics": "fd-enl0-frames", "metrics_kimg": 1})
    with pytest.raises(TrainerError, match="fd-enl0-frames is for video"):
        train(config, tmp_path, digits_dir, RunContext(), Interruption())
    assert not (tmp_path / "stats.jsonl").exists()
