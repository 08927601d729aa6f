"""The loop that ours is compared with computes the same: its losses are those of a run of the trainer."""

import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from trainer.bench import textbook
from trainer.bench.runs import WARM_UP_LINES, rate, textbook_rate, train_for, train_whole
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


def test_reused_fakes_are_those_that_the_discriminator_saw(config: TrainConfig, data_dir: Path) -> None:
    data, device = ShardedImages.open(data_dir), torch.device("cpu")
    new, reused = (next(textbook.steps(config, data, device, reuse=reuse)) for reuse in (False, True))
    assert (new.loss_d, new.r1) == (reused.loss_d, reused.r1), "the first discriminator step is the same"
    assert new.loss_g != reused.loss_g


def test_both_sides_are_timed_alike_hiccups_included(
    config: TrainConfig,
    data_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Ten steps of 16 images: of a second each, but for one of 11, after a warm-up that does not count."""
    seconds = [1.0] * 9 + [11.0]
    clock = [*itertools.accumulate([100.0, *seconds])]  # of the warm-up's last step, and of each after it
    lines = [{"images": 16 * (number + 3), "wall_sec": now} for number, now in enumerate(clock)]
    file = tmp_path / "config.json"
    file.write_text(config.to_json())
    times = iter([3.0, 50.0, *clock])
    monkeypatch.setattr(textbook, "time", SimpleNamespace(monotonic=lambda: next(times)))
    textbook.main([str(file), str(data_dir), "19.5", "3"])
    theirs = json.loads(capsys.readouterr().out)
    assert rate(lines) == pytest.approx(theirs["images_per_sec"]) == pytest.approx(160 / 20)


def test_the_textbook_warms_up_for_as_many_steps_as_ours(
    config: TrainConfig, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def run(argv: list[str], **_: object) -> SimpleNamespace:
        asked.append(argv)
        return SimpleNamespace(stdout='{"images_per_sec": 2.5}')

    monkeypatch.setattr("trainer.bench.runs.subprocess.run", run)
    every_third = config.replace({"stats_kimg": 0.048})
    assert textbook_rate(every_third, tmp_path, data_dir, 5.0, threads=1) == 2.5
    textbook_rate(every_third, tmp_path, data_dir, 5.0, threads=1, reuse=True)
    assert [argv[5:] for argv in asked] == [["5.0", str(3 * WARM_UP_LINES)], ["5.0", str(3 * WARM_UP_LINES), "reuse"]]


def test_a_rate_is_measured_until_it_is_interrupted(config: TrainConfig, data_dir: Path, tmp_path: Path) -> None:
    endless = config.replace({"kimg": 1000})
    lines = train_for(endless, tmp_path / "run", data_dir, 0.5, threads=1)
    assert lines[0]["step"] == WARM_UP_LINES, "a line a step: the clock starts with the warm-up's last"
    assert lines[-1]["wall_sec"] - lines[0]["wall_sec"] >= 0.5
    assert rate(lines) > 0
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "interrupted"
