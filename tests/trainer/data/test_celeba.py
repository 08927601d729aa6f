"""CelebA from its zip and from the folder it unpacks to: splits, the papers' crops, what is missing."""

import io
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.celeba import celeba_recipe
from gangway.trainer.data.prepare import prepare
from gangway.trainer.data.shards import ShardedImages


def _prepared(source: Path | str, out: Path, *, resolution: int = 64, split: str = "train") -> ShardedImages:
    recipe = celeba_recipe(str(source), out, resolution=resolution, channels=3, split=split, allow_other_hash=True)
    prepare(recipe, out)
    return ShardedImages.open(out)


@pytest.fixture
def unpacked(celeba_dir: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "unpacked"
    with zipfile.ZipFile(celeba_dir / "Img" / "img_align_celeba.zip") as archive:
        archive.extractall(folder)
    shutil.copy(celeba_dir / "Eval" / "list_eval_partition.txt", folder)
    return folder


def _face(celeba_dir: Path, number: int) -> Image.Image:
    with zipfile.ZipFile(celeba_dir / "Img" / "img_align_celeba.zip") as archive:
        return Image.open(io.BytesIO(archive.read(f"img_align_celeba/{number:06d}.jpg")))


def test_small_images_are_the_central_108_pixels(celeba_dir: Path, tmp_path: Path) -> None:
    data = _prepared(celeba_dir, tmp_path, resolution=54)
    assert data.index.shape == (3, 54, 54)
    crop = np.asarray(_face(celeba_dir, 2))[55:163, 35:143]
    halved = crop.reshape(54, 2, 54, 2, 3).mean(axis=(1, 3)).transpose(2, 0, 1)
    assert np.abs(data.take(np.array([1]))[0] - halved).max() < 6  # Lanczos is no plain average
    assert data.index.source is not None
    assert "crop (35, 55, 143, 163)" in data.index.source.processing
    assert data.index.num_classes == 0


def test_large_images_are_128_pixels_of_the_face_as_they_are(celeba_dir: Path, tmp_path: Path) -> None:
    data = _prepared(celeba_dir, tmp_path, resolution=128)
    expected = np.asarray(_face(celeba_dir, 1))[57:185, 25:153].transpose(2, 0, 1)
    np.testing.assert_array_equal(data.take(np.array([0]))[0], expected)


def test_splits_follow_the_partition(celeba_dir: Path, tmp_path: Path) -> None:
    sizes = {
        split: len(_prepared(celeba_dir, tmp_path / split, split=split)) for split in ("train", "valid", "test", "all")
    }
    assert sizes == {"train": 5, "valid": 2, "test": 2, "all": 9}


def test_zip_folder_and_the_zip_by_name_give_the_same_data_set(
    celeba_dir: Path, unpacked: Path, tmp_path: Path
) -> None:
    shutil.copy(celeba_dir / "Img" / "img_align_celeba.zip", tmp_path)
    shutil.copy(celeba_dir / "Eval" / "list_eval_partition.txt", tmp_path)
    (tmp_path / "beside").mkdir()
    sources = (celeba_dir, unpacked, tmp_path / "img_align_celeba.zip")
    found = [_prepared(source, tmp_path / f"out{number}").index for number, source in enumerate(sources)]
    assert len({index.sha256 for index in found}) == 1
    official = [index.source.official.split(",")[0] for index in found if index.source is not None]
    assert official[0].startswith("no: md5")
    assert official[1] == "no: 9 images in place of 202"


def test_what_is_not_official_is_refused(celeba_dir: Path, unpacked: Path, tmp_path: Path) -> None:
    for source, problem in ((celeba_dir, "is not the official archive"), (unpacked, "the number of images is another")):
        with pytest.raises(TrainerError, match=problem) as caught:
            celeba_recipe(str(source), tmp_path, resolution=64, channels=3, split="train", allow_other_hash=False)
        assert "--allow-other-hash" in caught.value.fix


def test_a_missing_image_or_list_is_named(unpacked: Path, tmp_path: Path) -> None:
    (unpacked / "img_align_celeba" / "000003.jpg").unlink()
    with pytest.raises(TrainerError, match=r"000003\.jpg is missing") as caught:
        _prepared(unpacked, tmp_path / "out")
    assert caught.value.value == "1 of 5 images are missing"
    partition = unpacked / "list_eval_partition.txt"
    partition.write_text("000001.jpg 0\n000002.jpg 7\n")
    with pytest.raises(TrainerError, match="line 2 is not one of the partition") as caught:
        _prepared(unpacked, tmp_path / "out")
    assert caught.value.value == "000002.jpg 7"
    partition.write_text("000001.jpg 1\n\n")
    with pytest.raises(TrainerError, match="lists no image of split train"):
        _prepared(unpacked, tmp_path / "out")
    partition.unlink()
    with pytest.raises(TrainerError, match=r"there is no list_eval_partition\.txt"):
        _prepared(unpacked, tmp_path / "out")


def test_another_size_than_celebas_is_refused(unpacked: Path, tmp_path: Path) -> None:
    Image.new("RGB", (100, 100)).save(unpacked / "img_align_celeba" / "000002.jpg")
    with pytest.raises(TrainerError, match=r"000002\.jpg: cannot be used: smaller than the crop .*: 100x100"):
        _prepared(unpacked, tmp_path / "out")
