"""What is said of prepared shards: whether any network trains on them, and the command that does."""

import shlex

import pytest

from gangway.trainer.__main__ import train_config
from gangway.trainer.config.parts.fields import RESOLUTIONS
from gangway.trainer.config.prepare_command import train_command, untrainable
from gangway.trainer.config.refusals import misfit
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.metric_names import parse


def read(command: str) -> TrainConfig:
    return train_config(shlex.split(command)[3:])


@pytest.mark.parametrize(
    ("shape", "fix"),
    [
        ((3, 50, 50), "--resolution 64"),
        ((1, 8, 8), "--resolution 16"),
        ((3, 96, 96), "--resolution 128"),
        ((3, 1024, 1024), "--resolution 512"),
        ((3, 16, 50, 50), "--resolution 64"),
        ((3, 5, 64, 64), "--frames 4"),
        ((3, 64, 32, 32), "--frames 32"),
    ],
)
def test_what_no_network_trains_on_is_told_with_the_nearest_that_one_does(shape: tuple[int, ...], fix: str) -> None:
    assert untrainable(shape).endswith(f"to train, prepare {fix}")
    assert not train_command("folder", shape, "x")


@pytest.mark.parametrize("dataset", ["digits", "cifar10", "celeba", "folder", "photos"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("resolution", RESOLUTIONS)
def test_the_command_that_trains_on_images_is_one_that_the_trainer_takes(
    dataset: str, channels: int, resolution: int
) -> None:
    command = train_command(dataset, (channels, resolution, resolution), "my pictures")
    config = read(command)
    assert config.dataset == dataset
    if dataset != "folder":  # there size and channels are those of the pictures
        assert config.image_shape == (channels, resolution, resolution)
        assert not any(misfit(name, config) for name in parse(config.metrics))
    assert command.endswith("--data 'my pictures'")


@pytest.mark.parametrize("dataset", ["ucf101", "clips"])
@pytest.mark.parametrize("shape", [(3, 16, 64, 64), (1, 8, 16, 16), (3, 64, 64, 64)])
def test_the_command_that_trains_on_clips_is_one_that_the_trainer_takes(dataset: str, shape: tuple[int, ...]) -> None:
    config = read(train_command(dataset, shape, "x"))
    assert (config.dataset, config.image_shape, config.architecture) == (dataset, shape, "progressive")
    assert not any(misfit(name, config) for name in parse(config.metrics))


def test_the_preset_on_the_same_data_set_is_proposed() -> None:
    assert train_command("celeba", (3, 64, 64), "x").endswith("train --preset dcgan-celeba64 --data x")
    assert train_command("digits", (1, 16, 16), "x").endswith("train --preset dcgan-digits --resolution 16 --data x")
    assert train_command("folder", (1, 32, 32), "x").endswith("train --preset few-images --data x")
    assert train_command("day-dusk", (3, 64, 64), "x").endswith("train --preset cyclegan-photos --data x")
    assert "cyclegan" not in train_command("photos", (3, 64, 64), "x"), "they are of seven classes"
