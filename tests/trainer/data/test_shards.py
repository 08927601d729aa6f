"""Shards: what is written is read back, and what is damaged is refused with its hashes."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.data.shards import INDEX_FILE, ShardedImages, write_shards
from trainer.errors import TrainerError


def _images(num: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.random.default_rng(0).integers(0, 256, (num, 1, 4, 4), dtype=np.uint8)


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


def test_a_missing_shard_or_index_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match=r"no data set here[\s\S]*data prepare"):
        ShardedImages.open(tmp_path)
    write_shards(tmp_path, "noise", _images(2))
    (tmp_path / "00000.npy").unlink()
    with pytest.raises(TrainerError, match="no such file"):
        ShardedImages.open(tmp_path)
    (tmp_path / INDEX_FILE).write_text('{"dataset": 3}')
    with pytest.raises(TrainerError, match=r"index\.json: dataset"):
        ShardedImages.open(tmp_path)


def test_a_full_disk_leaves_a_folder_that_nobody_takes_for_a_data_set(tmp_path: Path) -> None:
    (tmp_path / ".partial-00001.npy").symlink_to("/dev/full")
    with pytest.raises(TrainerError, match=r"00001\.npy: cannot be written: No space left"):
        write_shards(tmp_path, "noise", _images(10), images_per_shard=5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000.npy", "journal.jsonl"]
    with pytest.raises(TrainerError, match="no data set here"):
        ShardedImages.open(tmp_path)
