"""index.json: versions, and what is damaged."""

import json
from pathlib import Path

import numpy as np
import pytest

from gangway.trainer.__main__ import main
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.index import INDEX_FILE, ShardIndex, picture_size
from gangway.trainer.data.shards import ShardedImages
from tests.shard_files import write_shards


def test_version_1_is_read(tmp_path: Path) -> None:
    """As written before there were labels and clips."""
    images = np.arange(32, dtype=np.uint8).reshape(2, 1, 4, 4)
    write_shards(tmp_path, "digits", images)
    index = json.loads((tmp_path / INDEX_FILE).read_text())
    old = {name: index[name] for name in ("dataset", "num_images", "sha256", "shards")}
    (tmp_path / INDEX_FILE).write_text(json.dumps({"version": 1, "image_shape": [1, 4, 4], **old}))
    data = ShardedImages.open(tmp_path)
    assert (data.index.version, data.index.shape, data.index.num_classes) == (1, (1, 4, 4), 0)
    np.testing.assert_array_equal(data.take(np.arange(2)), images)


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    images, labels = np.zeros((3, 3, 2, 4, 4), np.uint8), np.array([0, 1, 1])
    write_shards(tmp_path, "clips", images, labels=labels, classes=("still", "moving"))
    index = ShardIndex.read(tmp_path)
    assert (index.version, index.shape, index.num_classes, index.num_images) == (2, (3, 2, 4, 4), 2, 3)
    index.write(tmp_path)
    assert ShardIndex.read(tmp_path) == index


def test_labels_are_part_of_the_data_sets_hash(tmp_path: Path) -> None:
    images = np.zeros((3, 1, 4, 4), np.uint8)
    hashes = set()
    for number, labels in enumerate(([0, 1, 1], [0, 0, 1])):
        write_shards(tmp_path / str(number), "x", images, labels=np.array(labels), classes=("a", "b"))
        hashes.add(ShardIndex.read(tmp_path / str(number)).sha256)
    assert len(hashes) == 2


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"version": 3}, "version"),
        ({"version": 4}, "version"),
        ({"shape": [4, 4]}, "shape"),
        ({"color": 1}, "color"),
        ({"sha256": None}, "sha256"),
    ],
)
def test_what_is_damaged_is_named(changes: dict[str, object], place: str, tmp_path: Path) -> None:
    write_shards(tmp_path, "digits", np.zeros((2, 1, 4, 4), np.uint8))
    index = json.loads((tmp_path / INDEX_FILE).read_text())
    (tmp_path / INDEX_FILE).write_text(json.dumps({**index, **changes}))
    with pytest.raises(TrainerError, match=rf"index\.json: {place}"):
        ShardIndex.read(tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("sha256", "0" * 64, ", that over the files' hashes"),
        ("num_images", 3, "2, as many as the shards have together"),
    ],
)
def test_an_index_that_contradicts_itself_is_refused(field: str, value: object, allowed: str, tmp_path: Path) -> None:
    write_shards(tmp_path, "digits", np.zeros((2, 1, 4, 4), np.uint8))
    index = json.loads((tmp_path / INDEX_FILE).read_text())
    (tmp_path / INDEX_FILE).write_text(json.dumps({**index, field: value}))
    with pytest.raises(TrainerError, match=rf"index\.json: {field}: not an accepted value") as caught:
        ShardIndex.read(tmp_path)
    assert caught.value.value == value
    assert caught.value.allowed.endswith(allowed)
    assert "anew" in caught.value.fix


def test_damaged_labels_are_named(tmp_path: Path) -> None:
    images = np.zeros((3, 1, 4, 4), np.uint8)
    write_shards(tmp_path, "x", images, labels=np.array([0, 1, 1]), classes=("a", "b"))
    np.save(tmp_path / "labels.npy", np.array([0, 0, 1]))
    with pytest.raises(TrainerError, match=r"labels\.npy: .*its hash is not the one in the index"):
        ShardedImages.open(tmp_path)


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
