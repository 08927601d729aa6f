"""The loop that ours is compared with computes the same: its losses are those of a run of the trainer."""

import itertools
import json
from pathlib import Path

import pytest
import torch

from trainer.bench import textbook
from trainer.bench.runs import rate, train_for, train_whole
from trainer.config import TrainConfig
from trainer.data import prepare_if_missing
from trainer.data.shards import ShardedImages
from trainer.presets import preset

STEPS = 4
SIZE = {"batch_size": 16, "ngf": 8, "ndf": 8, "augment": "none"}


@pytest.fixture
def config() -> TrainConfig:
    return preset("dcgan-digits").replace({**SIZE, "kimg": STEPS * 0.016, "stats_kimg": 0.016})


@pytest.fixture
def data_dir(config: TrainConfig, tmp_path: Path) -> Path:
    prepare_if_missing(config, tmp_path / "data")
    return tmp_path / "data"


def test_its_losses_are_ours(config: TrainConfig, data_dir: Path, tmp_path: Path) -> None:
    ours = train_whole(config, tmp_path / "run", data_dir, threads=1)
    steps = textbook.steps(config, ShardedImages.open(data_dir), torch.device("cpu"))
    theirs = list(itertools.islice(steps, STEPS))
    assert len(ours) == STEPS
    for line, step in zip(ours, theirs, strict=True):
        assert line["loss_g"] == pytest.approx(step.loss_g, rel=1e-4)
        assert line["loss_d"] == pytest.approx(step.loss_d, rel=1e-4)
    assert theirs[0].r1 == pytest.approx(ours[0]["r1"], rel=1e-3), "the first step carries the penalty"


def test_a_rate_is_measured_until_it_is_interrupted(config: TrainConfig, data_dir: Path, tmp_path: Path) -> None:
    endless = config.replace({"kimg": 1000})
    lines = train_for(endless, tmp_path / "run", data_dir, 0.5, threads=1)
    assert rate(lines) > 0
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "interrupted"
