"""Shards of encoded pictures: what PNG keeps to the bit and JPEG nearly; damage; options."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gangway.trainer.__main__ import main
from gangway.trainer.config.presets import preset
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.encoding import Encoding
from gangway.trainer.data.index import INDEX_FILE, ShardIndex
from gangway.trainer.data.loader import Loader
from gangway.trainer.data.packaged_data import photos_recipe
from gangway.trainer.data.prepare import prepare
from gangway.trainer.data.shards import ShardedImages
from tests.shard_files import write_shards

PNG, JPEG = Encoding(kind="png"), Encoding(kind="jpeg", quality=95)
SHAPES = [(1, 16, 16), (3, 16, 16), (3, 2, 16, 16), (1, 4, 16, 16)]


def _smooth(shape: tuple[int, ...], num: int = 7) -> NDArray[np.uint8]:
    """Images that JPEG keeps nearly as they are, all different."""
    across = np.linspace(0, 120, shape[-1]) + np.linspace(0, 60, shape[-2])[:, None]
    own = np.arange(num * int(np.prod(shape[:-2]))).reshape(num, *shape[:-2], 1, 1) % 70
    return (across + own).astype(np.uint8)


@pytest.mark.parametrize("shape", SHAPES)
def test_png_is_read_back_to_the_bit_in_any_order(shape: tuple[int, ...], tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (7, *shape), dtype=np.uint8)
    labels = np.arange(7) % 2
    write_shards(tmp_path, "noise", images, images_per_shard=3, labels=labels, classes=("a", "b"), encoding=PNG)
    data = ShardedImages.open(tmp_path)
    wanted = np.array([6, 0, 3, 3, 5])
    assert (len(data), data.index.version, data.index.shape, data.index.encoding) == (7, 3, shape, PNG)
    np.testing.assert_array_equal(data.take(wanted), images[wanted])
    np.testing.assert_array_equal(data.labels(wanted), labels[wanted])
    np.testing.assert_array_equal(data.mirrored().take(wanted + 7), images[wanted][..., ::-1])


@pytest.mark.parametrize("shape", SHAPES)
def test_jpeg_is_nearly_the_same_and_smaller(shape: tuple[int, ...], tmp_path: Path) -> None:
    images = _smooth(shape)
    write_shards(tmp_path, "smooth", images, encoding=JPEG)
    found = ShardedImages.open(tmp_path).take(np.arange(7))
    assert found.shape == images.shape
    assert np.abs(found.astype(int) - images).max() <= 8


@pytest.mark.slow
def test_larger_pictures_are_made_smaller_as_they_are_read(tmp_path: Path) -> None:
    pytest.importorskip("skimage", reason="the photographs ship in it")
    large = photos_recipe(resolution=64)
    shape, encoding = (3, 32, 32), Encoding(kind="png", resolution=64)
    index = prepare(replace(large, shape=shape, encoding=encoding), tmp_path / "kept")
    prepare(large, tmp_path / "large")
    kept, whole = ShardedImages.open(tmp_path / "kept"), ShardedImages.open(tmp_path / "large")
    assert (index.shape, len(kept)) == (shape, len(whole))
    few = np.array([0, len(kept) - 1])
    small = kept.take(few).astype(float).mean(axis=(2, 3))
    np.testing.assert_allclose(small, whole.take(few).astype(float).mean(axis=(2, 3)), atol=2)


def test_what_is_raw_is_written_as_ever(tmp_path: Path) -> None:
    """Or earlier versions could not read it, and its hash would be another."""
    write_shards(tmp_path, "noise", _smooth((1, 4, 4)))
    assert "encoding" not in json.loads((tmp_path / INDEX_FILE).read_text())
    assert ShardIndex.read(tmp_path).version == 2


@pytest.mark.parametrize("changes", [{"version": 2}, {"encoding": None}, {"encoding": {"kind": "png", "quality": 3}}])
def test_an_index_whose_encoding_contradicts_itself_is_refused(changes: dict[str, object], tmp_path: Path) -> None:
    write_shards(tmp_path, "noise", _smooth((1, 4, 4)), encoding=PNG)
    index = json.loads((tmp_path / INDEX_FILE).read_text())
    (tmp_path / INDEX_FILE).write_text(json.dumps({**index, **changes}))
    with pytest.raises(TrainerError, match=r"index\.json: (version|encoding)"):
        ShardIndex.read(tmp_path)


def test_a_damaged_picture_is_told_as_a_corrupt_shard(tmp_path: Path) -> None:
    write_shards(tmp_path, "noise", _smooth((3, 16, 16)), encoding=JPEG)
    file = tmp_path / "00000.npy"
    whole = file.read_bytes()
    file.write_bytes(whole[:-300] + bytes(300))
    with pytest.raises(TrainerError, match=r"00000\.npy: shard is corrupt"):
        ShardedImages.open(tmp_path)
    start = whole.index(b"\xff\xd8")
    file.write_bytes(whole[:start] + b"no" + whole[start + 2 :])
    data = ShardedImages.open(tmp_path, verify=False)
    with pytest.raises(TrainerError, match=r"00000\.npy: shard is corrupt"):
        data.take(np.arange(7))
    np.save(file, np.zeros(5, np.uint8))
    with pytest.raises(TrainerError, match=r"00000\.npy: shard is corrupt"):
        ShardedImages.open(tmp_path, verify=False)


def test_a_shard_that_was_written_wrongly_is_no_damage(tmp_path: Path) -> None:
    write_shards(tmp_path, "noise", _smooth((3, 16, 16)), encoding=JPEG)
    index = json.loads((tmp_path / INDEX_FILE).read_text())
    (tmp_path / INDEX_FILE).write_text(json.dumps({**index, "shape": [1, 16, 16]}))
    with pytest.raises(TrainerError, match="cannot be decoded, although it is as it was written") as caught:
        ShardedImages.open(tmp_path).take(np.arange(2))
    assert "RGB" in str(caught.value.value)


def test_training_gets_the_same_bits_of_png_as_of_raw(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (20, 3, 8, 8), dtype=np.uint8)
    batches = []
    for name, encoding in (("raw", None), ("png", PNG)):
        write_shards(tmp_path / name, "noise", images, images_per_shard=6, encoding=encoding)
        loader = Loader(ShardedImages.open(tmp_path / name), 3, 8, slice(2, 7))
        reals = [loader.take(position) for position in range(0, 40, 8)]
        loader.close()
        batches.append(
            (np.stack([one.pinned.contents["pixels"].numpy() for one in reals]), [one.order for one in reals])
        )
    np.testing.assert_array_equal(batches[0][0], batches[1][0])
    assert batches[0][1] == batches[1][1]


def test_the_command_prepares_and_measures_encoded_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["data", "prepare", "digits", "--resolution", "16", "--encoding", "jpeg", "--quality", "80"]
    assert main([*argv, "--out", str(tmp_path)]) == 0
    assert ShardIndex.read(tmp_path).encoding == Encoding(kind="jpeg", quality=80)
    assert main([*argv, "--out", str(tmp_path)]) == 0, "it is complete already"
    assert main([*argv[:-1], "70", "--out", str(tmp_path)]) == 2, "of another quality"
    assert main(["data", "speed", "--data", str(tmp_path), "--seconds", "1"]) == 0
    assert "JPEG of quality 80" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "place"),
    [
        (["--quality", "80"], "--quality"),
        (["--encoding", "png", "--quality", "80"], "--quality"),
        (["--encoding", "jpeg", "--quality", "101"], "--quality"),
        (["--kept-resolution", "64"], "--kept-resolution"),
        (["--encoding", "png", "--kept-resolution", "32"], "--kept-resolution"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    options: list[str], place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["data", "prepare", "digits", "--resolution", "32", "--out", str(tmp_path / "new"), *options]
    assert main(argv) == 2
    said = capsys.readouterr().err
    assert f"{place}: " in said
    assert "fix" in said
    assert not (tmp_path / "new").exists()


def test_a_run_trains_on_encoded_data(tmp_path: Path) -> None:
    small = {"kimg": 0.064, "batch_size": 32, "ngf": 8, "ndf": 8, "metrics": "none"}
    config: TrainConfig = preset("dcgan-digits").replace(small)
    assert main(["data", "prepare", "digits", "--encoding", "png", "--out", str(tmp_path / "data")]) == 0
    (tmp_path / "config.json").write_text(config.to_json())
    run = ["--config", str(tmp_path / "config.json"), "--run-dir", str(tmp_path / "run")]
    assert main(["train", *run, "--data", str(tmp_path / "data")]) == 0
