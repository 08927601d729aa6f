"""A preset on a folder of pictures takes their size and colours, unless a flag says otherwise."""

import json
from pathlib import Path

import numpy as np
import pytest

from gangway.trainer.__main__ import main
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.picture_size import picture_size
from gangway.trainer.data.shards import write_shards

FEW = PRESETS["few-images"]


def shards(folder: Path, *shape: int, dataset: str = "folder") -> Path:
    drawn = np.random.Generator(np.random.PCG64(0))
    write_shards(folder, dataset, drawn.integers(0, 256, (20, *shape), dtype=np.uint8))
    return folder


@pytest.mark.parametrize(
    ("shape", "given", "changes"),
    [
        ((3, 32, 32), (), {"resolution": 32}),
        ((3, 64, 64), (), {}),
        ((1, 16, 16), (), {"resolution": 16, "channels": 1, "augment": "translation,cutout"}),
        ((3, 32, 32), ("resolution",), {}),
        ((1, 32, 32), ("augment", "channels"), {"resolution": 32}),
        ((3, 48, 48), (), {}),  # which no network makes
        ((3, 32, 64), (), {}),
        ((3, 8, 16, 16), (), {"resolution": 16}),
    ],
)
def test_what_was_prepared_decides(
    shape: tuple[int, ...], given: tuple[str, ...], changes: dict[str, object], tmp_path: Path
) -> None:
    assert picture_size(FEW, given, shards(tmp_path, *shape)) == changes


def test_other_data_sets_and_folders_without_any_change_nothing(tmp_path: Path) -> None:
    assert picture_size(FEW, (), tmp_path) == {}
    assert picture_size(FEW, (), shards(tmp_path / "celeba", 3, 32, 32, dataset="celeba")) == {}
    assert picture_size(PRESETS["dcgan-celeba64"], (), shards(tmp_path / "folder", 3, 32, 32)) == {}


def test_a_damaged_index_is_refused(tmp_path: Path) -> None:
    (shards(tmp_path, 3, 16, 16) / "index.json").write_text("{")
    with pytest.raises(TrainerError, match=r"index\.json"):
        picture_size(FEW, (), tmp_path)


SHORT = ("--kimg", "0.064", "--batch-size", "16", "--ngf", "4", "--ndf", "4")


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 16, 16)])
def test_a_run_takes_the_size_and_goes_on_with_it(
    shape: tuple[int, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run = shards(tmp_path / "data", *shape), tmp_path / "run"
    command = ["train", "--preset", "few-images", "--data", str(data), "--run-dir", str(run), *SHORT]
    assert main(command) == 0
    assert f"few-images at {shape[1]}x{shape[2]}, getting ready" in capsys.readouterr().out
    trained = TrainConfig.from_file(run / "config.json")
    assert trained.image_shape == shape
    assert trained.preset == "few-images"
    assert main([*command, "--kimg", "0.128"]) == 0
    assert json.loads((run / "run.json").read_text())["images"] == 128


def test_a_size_that_is_given_is_not_changed_and_the_shards_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = shards(tmp_path / "data", 3, 32, 32)
    command = ["train", "--preset", "few-images", "--data", str(data), "--run-dir", str(tmp_path / "run"), *SHORT]
    assert main([*command, "--resolution", "64"]) == 2
    assert "data prepare folder --source PATH_OR_URL --resolution 64" in capsys.readouterr().err
