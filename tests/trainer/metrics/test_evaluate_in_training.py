"""Metrics while training: they change nothing that a step computes, come when due, and tell what they cost."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.metrics import evaluator
from gangway.trainer.metrics.evaluate import evaluate
from gangway.trainer.metrics.metric_registry import WeightsPaths
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.records.run_record import RunContext, RunRecord
from gangway.trainer.run.loop import train


class Shrunk:
    """A FeatureExtractor that sees a 4x4 picture."""

    name, network, dim, weights_sha256, resizer = "FD-4x4", "mean of 8x8 blocks", 16, "", "none"

    def __call__(self, images: Tensor) -> NDArray[np.float64]:
        return nn.functional.avg_pool2d(images.double(), 8).flatten(1).numpy()


@pytest.fixture(autouse=True)
def _shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The small extractor in place of EfficientNet-Lite0."""

    def made(device: torch.device, paths: WeightsPaths) -> Shrunk:
        return Shrunk()

    monkeypatch.setattr(evaluator, "FEATURE_SPACES", {"enl0": made})


@pytest.fixture
def _signals_kept() -> Iterator[None]:
    """The test runner's own handlers come back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def _train(config: TrainConfig, run_dir: Path, data_dir: Path) -> RunRecord:
    assert train(config, run_dir, data_dir, RunContext(), Interruption()) == 0
    return RunRecord.read(run_dir / "run.json")


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


def test_what_cannot_be_computed_is_told_before_the_first_step(
    tiny_config: TrainConfig, tmp_path: Path, digits_dir: Path
) -> None:
    config = tiny_config.replace({"metrics": "fd-enl0-frames", "metrics_kimg": 1})
    with pytest.raises(TrainerError, match="fd-enl0-frames is for video"):
        train(config, tmp_path, digits_dir, RunContext(), Interruption())
    assert not (tmp_path / "stats.jsonl").exists()
