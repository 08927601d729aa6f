"""What a machine could do at most: measured here, not assumed."""

import math
import threading
from pathlib import Path
from typing import Any

import pytest

from trainer.bench import bounds
from trainer.bench.bounds import convolution_gflops, silent_pair
from trainer.config import TrainConfig
from trainer.presets import preset


def test_convolutions_have_a_speed() -> None:
    found = convolution_gflops(1)
    assert math.isfinite(found)
    assert found > 0.1, "GFLOP/s: even an interpreter reaches that"


def test_a_silent_pair_shares_the_batch_and_runs_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meet = threading.Barrier(2, timeout=30)
    seen: list[tuple[TrainConfig, Path, int]] = []

    def train(config: TrainConfig, run_dir: Path, data_dir: Path, seconds: float, *, threads: int) -> list[Any]:
        meet.wait()  # breaks unless both are under way
        seen.append((config, run_dir, threads))
        return [{"images": 0, "wall_sec": 1.0}, {"images": 500, "wall_sec": 1.0 + seconds}]

    monkeypatch.setattr(bounds, "train_for", train)
    config = preset("dcgan-cifar10").replace({"stats_kimg": 1.28})
    assert silent_pair(config, tmp_path, tmp_path / "data", 2.0) == 2 * 250
    assert {each.batch_size for each, _, _ in seen} == {config.batch_size // 2}
    assert {each.stats_kimg for each, _, _ in seen} == {0.64}, "as many steps a line as the whole batch has"
    assert len({run_dir for _, run_dir, _ in seen}) == 2
    assert {threads for _, _, threads in seen} == {1}
