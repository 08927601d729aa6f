"""CelebA from its zip and from the folder it unpacks to: splits, the papers' crops, what is missing."""

import io
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.celeba import celeba_recipe, folder_recipe
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


def _prepared_folder(
    source: Path | str, out: Path, *, labels: bool = False, channels: int = 3, skip: bool = False, workers: int = 1
) -> ShardedImages:
    recipe = folder_recipe(str(source), out, resolution=16, channels=channels, labels=labels)
    prepare(recipe, out, skip_broken=skip, workers=workers)
    return ShardedImages.open(out)


@pytest.fixture
def pictures(tmp_path: Path, picture: Callable[..., bytes]) -> Path:
    root = tmp_path / "pictures"
    for number, name in enumerate(("cats/1.png", "cats/2.JPG", "dogs/deep/3.webp", "dogs/4.bmp", "dogs/5.tiff")):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        kind = {"JPG": "JPEG", "TIF": "TIFF"}.get(name.rpartition(".")[2], name.rpartition(".")[2].upper())
        (root / name).write_bytes(picture(number, kind=kind))
    (root / "notes.txt").write_text("not an image")
    return root


def test_every_image_is_read_in_the_order_of_its_name(pictures: Path, tmp_path: Path) -> None:
    data = _prepared_folder(pictures, tmp_path / "out")
    assert (len(data), data.index.shape, data.index.num_classes) == (5, (3, 16, 16), 0)
    with Image.open(pictures / "cats" / "1.png") as image:
        expected = np.asarray(image.resize((16, 16), Image.Resampling.LANCZOS, box=(4, 0, 44, 40)))
    np.testing.assert_array_equal(data.take(np.array([0]))[0], expected.transpose(2, 0, 1))


def test_the_first_folder_is_the_label(pictures: Path, tmp_path: Path) -> None:
    data = _prepared_folder(pictures, tmp_path / "out", labels=True)
    np.testing.assert_array_equal(data.labels(np.arange(5)), [0, 0, 1, 1, 1])
    assert data.index.labels is not None
    assert data.index.labels.classes == ("cats", "dogs")
    (pictures / "6.png").write_bytes((pictures / "cats" / "1.png").read_bytes())
    with pytest.raises(TrainerError, match="--labels: labels are missing") as caught:
        _prepared_folder(pictures, tmp_path / "other", labels=True)
    assert str(caught.value.value).startswith("6.png in ")


def test_labels_that_were_not_prepared_are_missed(pictures: Path, tmp_path: Path) -> None:
    data = _prepared_folder(pictures, tmp_path / "out")
    with pytest.raises(TrainerError, match="labels are missing") as caught:
        data.labels(np.arange(2))
    assert "--labels" in caught.value.fix


def test_an_archive_and_two_processes_give_the_same_data_set(pictures: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "pictures.zip", "w") as archive:
        for path in sorted(pictures.rglob("*.*")):
            archive.write(path, path.relative_to(pictures))
    hashes = {
        _prepared_folder(pictures, tmp_path / "a").index.sha256,
        _prepared_folder(tmp_path / "pictures.zip", tmp_path / "b").index.sha256,
        _prepared_folder(pictures, tmp_path / "c", workers=2).index.sha256,
    }
    assert len(hashes) == 1


@pytest.mark.slow
def test_a_bucket_gives_the_same_data_set(bucket: Any, pictures: Path, tmp_path: Path) -> None:
    for path in pictures.rglob("*.*"):
        bucket.put(f"sets/pictures/{path.relative_to(pictures).as_posix()}", path.read_bytes())
    remote = _prepared_folder(f"{bucket.url}/sets/pictures", tmp_path / "a", labels=True, workers=2)
    local = _prepared_folder(pictures, tmp_path / "b", labels=True)
    assert remote.index.sha256 == local.index.sha256


@pytest.mark.slow
@pytest.mark.parametrize("bucket", ["az"], indirect=True)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_storage_out_of_reach_is_no_broken_file(
    bucket: Any, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """Else --skip-broken would leave good files out for a network's sake."""
    for path in pictures.rglob("*.png"):
        bucket.put(f"sets/{path.name}", path.read_bytes())
    recipe = folder_recipe(f"{bucket.url}/sets", tmp_path, resolution=16, channels=3, labels=False)
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    pytest.importorskip("obstore.fsspec").FsspecStore.clear_instance_cache()
    with pytest.raises(TrainerError, match=r"--source: cannot be read: .*127\.0\.0\.1:9") as caught:
        prepare(recipe, tmp_path / "out", skip_broken=True, workers=workers)
    assert caught.value.value == f"{bucket.url}/sets/1.png"


def test_grey_transparent_and_turned_images_are_read(tmp_path: Path) -> None:
    source = tmp_path / "pictures"
    source.mkdir()
    Image.new("L", (20, 20), 100).save(source / "1.png")
    Image.new("RGBA", (20, 20), (10, 20, 30, 255)).save(source / "2.png")
    turned = Image.new("RGB", (40, 20), (0, 0, 0))
    turned.paste((255, 255, 255), (0, 0, 20, 20))  # the left half
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright: left is up
    turned.save(source / "3.png", exif=exif)
    data = _prepared_folder(source, tmp_path / "out")
    images = data.take(np.arange(3))
    assert set(images[0].ravel()) == {100}
    assert images[1][:, 0, 0].tolist() == [10, 20, 30]
    assert images[2][0, 0].mean() > 200 > 50 > images[2][0, -1].mean()
    assert _prepared_folder(source, tmp_path / "grey", channels=1).index.shape == (1, 16, 16)


def _break(pictures: Path) -> None:
    whole = (pictures / "cats" / "2.JPG").read_bytes()
    (pictures / "cats" / "2.JPG").write_bytes(whole[: len(whole) // 2])
    (pictures / "dogs" / "4.bmp").write_bytes(b"")


def test_a_broken_image_is_named_and_left_out_only_when_told(pictures: Path, tmp_path: Path) -> None:
    _break(pictures)
    with pytest.raises(
        TrainerError, match=r"cats/2\.JPG: cannot be used: not a readable image: .*[Tt]runcated"
    ) as caught:
        _prepared_folder(pictures, tmp_path / "out")
    assert "--skip-broken" in caught.value.fix
    assert caught.value.place == str(pictures / "cats" / "2.JPG"), "where to find it"
    data = _prepared_folder(pictures, tmp_path / "skipped", labels=True, skip=True)
    assert len(data) == 3
    np.testing.assert_array_equal(data.labels(np.arange(3)), [0, 1, 1])
    assert data.index.source is not None
    assert [(each.kind, each.reason, each.names) for each in data.index.source.skipped] == [
        (".bmp file", "not a readable image", ("dogs/4.bmp",)),
        (".jpg file", "not a readable image", ("cats/2.JPG",)),
        (".txt file", "not an image", ("notes.txt",)),
    ]


def test_a_file_that_is_no_image_is_told_in_words(tmp_path: Path) -> None:
    source = tmp_path / "pictures"
    source.mkdir()
    (source / "letter.png").write_text("Dear Sir or Madam")
    with pytest.raises(TrainerError, match="not a readable image: of no format that Pillow knows") as caught:
        _prepared_folder(source, tmp_path / "out")
    assert "BytesIO" not in str(caught.value)


def test_more_than_8_bits_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "pictures"
    source.mkdir()
    Image.fromarray(np.full((20, 20), 40000, np.uint16)).save(source / "deep.png")
    with pytest.raises(TrainerError, match=r"deep\.png: cannot be used: more than 8 bits a channel: .*I;16"):
        _prepared_folder(source, tmp_path / "out")


@pytest.mark.attack("who gives the data", "archives and images that unpack to gigabytes")
def test_an_image_that_unpacks_to_gigabytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 199)
    source = tmp_path / "pictures"
    source.mkdir()
    Image.new("RGB", (20, 20)).save(source / "bomb.png")
    with pytest.raises(TrainerError, match=r"bomb\.png: cannot be used: too many pixels: .* exceeds limit of 398"):
        _prepared_folder(source, tmp_path / "out")


def test_nothing_usable_is_an_error(tmp_path: Path) -> None:
    source = tmp_path / "pictures"
    source.mkdir()
    with pytest.raises(TrainerError, match=r"pictures: holds no image"):
        _prepared_folder(source, tmp_path / "out")
    (source / "1.png").write_bytes(b"x")
    with pytest.raises(TrainerError, match="not one of its files can be used") as caught:
        _prepared_folder(source, tmp_path / "out", skip=True)
    assert caught.value.value == "1 broken files, the first 1.png"
