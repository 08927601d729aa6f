"""The loop that ours is compared with computes the same: its losses are those of a run of the trainer."""

import itertools
import json
from pathlib import Path

import pytest
import torch

from gangway.trainer.config.presets import preset
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.data.shards import ShardedImages, prepare_if_missing
from tools.bench import textbook, tuned
from tools.bench.runs import (
    Side,
    pace,
    peer_loop,
    rates_in_turn,
    train_for,
    train_whole,
    trainer_loop,
    whole_lines,
)

STEPS = 4
SIZE = {"batch_size": 16, "ngf": 8, "ndf": 8, "augment": "none"}


@pytest.fixture
def config() -> TrainConfig:
    return preset("dcgan-digits").replace({**SIZE, "kimg": STEPS * 0.016, "stats_kimg": 0.016})


@pytest.fixture
def data_dir(config: TrainConfig, tmp_path: Path) -> Path:
    prepare_if_missing(config, tmp_path / "data")
    return tmp_path / "data"


@pytest.mark.slow
def test_its_losses_are_ours(config: TrainConfig, data_dir: Path, tmp_path: Path) -> None:
    ours = train_whole(config, tmp_path / "run", data_dir, threads=1)
    steps = textbook.steps(config, ShardedImages.open(data_dir), torch.device("cpu"))
    theirs = list(itertools.islice(steps, STEPS))
    assert len(ours) == STEPS
    for line, step in zip(ours, theirs, strict=True):
        assert line["loss_g"] == pytest.approx(step.loss_g, rel=1e-4)
        assert line["loss_d"] == pytest.approx(step.loss_d, rel=1e-4)
    assert theirs[0].r1 == pytest.approx(ours[0]["r1"], rel=1e-3), "the first step carries the penalty"


def test_reused_fakes_are_those_that_the_discriminator_saw(config: TrainConfig, data_dir: Path) -> None:
    data, device = ShardedImages.open(data_dir), torch.device("cpu")
    new, reused = (next(textbook.steps(config, data, device, reuse=reuse)) for reuse in (False, True))
    assert (new.loss_d, new.r1) == (reused.loss_d, reused.r1), "the first discriminator step is the same"
    assert new.loss_g != reused.loss_g


def test_the_tuned_peer_plays_the_same_game(config: TrainConfig, data_dir: Path) -> None:
    data, device = ShardedImages.open(data_dir), torch.device("cpu")
    plain = itertools.islice(textbook.steps(config, data, device), STEPS)
    for (loss_g, loss_d), step in zip(tuned.steps(config, data, device), plain, strict=False):
        assert float(loss_g) == pytest.approx(step.loss_g, rel=1e-4)
        assert float(loss_d) == pytest.approx(step.loss_d, rel=1e-4)
    low = config.replace({"precision": "bf16"})
    loss_g, _ = next(tuned.steps(low, data, device))
    assert float(loss_g) == pytest.approx(next(textbook.steps(config, data, device)).loss_g, rel=0.05)


@pytest.mark.slow
def test_both_take_turns_as_they_are_started(config: TrainConfig, data_dir: Path, tmp_path: Path) -> None:
    endless = config.replace({"kimg": 1000})
    loops = {
        "ours": trainer_loop(endless, tmp_path / "ours", data_dir, processes=1, threads=1),
        "textbook": peer_loop("textbook", endless, tmp_path / "textbook", data_dir, threads=1),
        "reused": peer_loop("textbook", endless, tmp_path / "reused", data_dir, threads=1, words=["reuse"]),
        "tuned": peer_loop("tuned", endless, tmp_path / "tuned", data_dir, threads=1, processes=1),
        "two tuned": peer_loop("tuned", endless, tmp_path / "two-tuned", data_dir, threads=1, processes=2),
        "two": trainer_loop(endless, tmp_path / "two", data_dir, processes=2, threads=1),
    }
    sides = [Side(name, [loop]) for name, loop in loops.items()]
    rates = rates_in_turn(sides, 0.3, 2, lambda _: None)
    assert all(rate > 0 for found in rates.values() for rate in found)
    first = {name: whole_lines(loop.stats)[0] for name, loop in loops.items()}
    assert {line["images"] for line in first.values()} == {config.batch_size}, "a line a step"
    assert first["textbook"]["loss_g"] == pytest.approx(first["ours"]["loss_g"], rel=1e-4)
    assert first["two tuned"]["loss_g"] != first["tuned"]["loss_g"], "each process has its share of the batch"
    assert first["reused"]["loss_g"] != pytest.approx(first["ours"]["loss_g"], rel=1e-4)


@pytest.mark.slow
def test_a_rate_is_measured_until_it_is_interrupted(config: TrainConfig, data_dir: Path, tmp_path: Path) -> None:
    endless = config.replace({"kimg": 1000})
    lines = train_for(endless, tmp_path / "run", data_dir, 0.5, threads=1)
    assert lines[0]["step"] == 2, "a line a step: the clock starts with the warm-up's last"
    assert lines[-1]["wall_sec"] - lines[0]["wall_sec"] >= 0.5
    assert pace(lines) > 0
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "interrupted"
