"""index.json: versions, and what is damaged."""

import json
from pathlib import Path

import numpy as np
import pytest

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.index import INDEX_FILE, ShardIndex
from gangway.trainer.data.shards import ShardedImages, write_shards


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
