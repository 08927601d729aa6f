"""Shards: what is written is read back, and what is damaged is refused with its hashes."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.index import INDEX_FILE
from gangway.trainer.data.shards import ShardedImages
from tests.shard_files import write_shards


def _images(num: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.random.default_rng(0).integers(0, 256, (num, 1, 4, 4), dtype=np.uint8)


@pytest.mark.slow
@settings(max_examples=30)
@given(num=st.integers(1, 40), per_shard=st.integers(1, 17), data=st.data())
def test_any_images_are_read_back_in_any_order(
    num: int, per_shard: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    images = _images(num)
    write_shards(folder, "noise", images, images_per_shard=per_shard)
    opened = ShardedImages.open(folder)
    wanted = np.array(data.draw(st.lists(st.integers(0, num - 1), max_size=20)), dtype=np.int64)
    assert len(opened) == num
    assert opened.index.shape == (1, 4, 4)
    np.testing.assert_array_equal(opened.take(wanted), images[wanted])


@pytest.mark.parametrize("shape", [(3, 4, 6), (1, 2, 4, 6)])
def test_mirrored_each_image_is_there_twice_with_its_label(shape: tuple[int, ...], tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (5, *shape), dtype=np.uint8)
    write_shards(tmp_path, "noise", images, images_per_shard=2, labels=np.arange(5) % 2, classes=("a", "b"))
    opened = ShardedImages.open(tmp_path)
    both = opened.mirrored()
    assert (len(opened), len(both)) == (5, 10)
    assert both.index == opened.index
    wanted = np.array([7, 2, 9, 0])
    np.testing.assert_array_equal(
        both.take(wanted), np.stack([images[2][..., ::-1], images[2], images[4][..., ::-1], images[0]])
    )
    np.testing.assert_array_equal(both.labels(wanted), [0, 0, 0, 0])
    np.testing.assert_array_equal(both.labels(np.array([1, 6, 8])), [1, 1, 1])


def test_the_data_set_hash_tells_contents_apart(tmp_path: Path) -> None:
    images = _images(10)
    write_shards(tmp_path / "a", "noise", images)
    write_shards(tmp_path / "b", "noise", images)
    write_shards(tmp_path / "c", "noise", images[::-1])
    hashes = [ShardedImages.open(tmp_path / name).index.sha256 for name in "abc"]
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_flipped_bit_is_found_and_both_hashes_are_named(tmp_path: Path) -> None:
    write_shards(tmp_path, "noise", _images(10), images_per_shard=5)
    expected = ShardedImages.open(tmp_path).index.shards[1].sha256
    damaged = tmp_path / "00001.npy"
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(TrainerError, match=r"00001\.npy: shard is corrupt") as caught:
        ShardedImages.open(tmp_path)
    assert caught.value.allowed == f"sha256 {expected}"
    assert str(caught.value.value).startswith("sha256 ")
    assert expected not in str(caught.value.value)


def test_opening_without_comparing_refuses_what_is_no_shard_of_the_index(tmp_path: Path) -> None:
    write_shards(tmp_path, "noise", _images(10), images_per_shard=5)
    whole = (tmp_path / "00001.npy").read_bytes()
    for content in (whole[:-100], b"", (tmp_path / "index.json").read_bytes()):
        (tmp_path / "00001.npy").write_bytes(content)
        with pytest.raises(TrainerError, match=r"00001\.npy: shard is corrupt"):
            ShardedImages.open(tmp_path, verify=False)
    np.save(tmp_path / "00001.npy", _images(4))
    with pytest.raises(TrainerError, match=r"00001\.npy: shard is corrupt"):
        ShardedImages.open(tmp_path, verify=False)
    (tmp_path / "00001.npy").unlink()
    with pytest.raises(TrainerError, match=r"00001\.npy: shard is missing"):
        ShardedImages.open(tmp_path, verify=False)
    (tmp_path / "00001.npy").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert len(ShardedImages.open(tmp_path, verify=False)) == 10, "the rest is compared beside the training"


@pytest.mark.slow
def test_a_corrupt_shard_ends_all_of_a_nodes_workers_alike(
    torchrun: Callable[..., Any], tiny_config: TrainConfig, digits_dir: Path, tmp_path: Path
) -> None:
    shutil.copytree(digits_dir, tmp_path / "data")
    damaged = tmp_path / "data" / "00000.npy"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    (tmp_path / "config.json").write_text(tiny_config.to_json())
    argv = ["train", "--config", str(tmp_path / "config.json"), "--run-dir", str(tmp_path / "run")]
    code, text = torchrun("-m", "gangway.trainer", *argv, "--data", str(tmp_path / "data")).finish()
    assert code == 2, text
    assert text.count("00000.npy: shard is corrupt") == 1, text
    assert "Traceback" not in text


def test_a_missing_shard_or_index_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match=r"no data set here[\s\S]*data prepare"):
        ShardedImages.open(tmp_path)
    write_shards(tmp_path, "noise", _images(2))
    (tmp_path / "00000.npy").unlink()
    with pytest.raises(TrainerError, match=r"00000\.npy: shard is missing[\s\S]*no such file"):
        ShardedImages.open(tmp_path)
    (tmp_path / INDEX_FILE).write_text('{"dataset": 3}')
    with pytest.raises(TrainerError, match=r"index\.json: dataset"):
        ShardedImages.open(tmp_path)


def test_missing_and_damaged_labels_are_no_shard(tmp_path: Path) -> None:
    write_shards(tmp_path, "noise", _images(2), labels=np.array([0, 1]), classes=("a", "b"))
    (tmp_path / "labels.npy").write_bytes(b"nonsense")
    with pytest.raises(TrainerError, match=r"labels\.npy: file of labels is corrupt"):
        ShardedImages.open(tmp_path)
    (tmp_path / "labels.npy").unlink()
    with pytest.raises(TrainerError, match=r"labels\.npy: file of labels is missing[\s\S]*no such file"):
        ShardedImages.open(tmp_path)


def test_a_full_disk_leaves_a_folder_that_nobody_takes_for_a_data_set(
    tmp_path: Path, full_disk: Callable[[str], None]
) -> None:
    full_disk("00001.npy")
    with pytest.raises(TrainerError, match=r"00001\.npy: cannot be written: No space left"):
        write_shards(tmp_path, "noise", _images(10), images_per_shard=5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000.npy", "journal.jsonl"]
    with pytest.raises(TrainerError, match="no data set here"):
        ShardedImages.open(tmp_path)
