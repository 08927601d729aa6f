"""Two domains: which image is of which, what is refused, and two folders of pictures that become such a data set."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gangway.trainer.__main__ import main
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.domains import check_domains, numbers_by_domain
from gangway.trainer.data.images_in_memory import ImagesInMemory
from gangway.trainer.data.packaged_data import day_dusk_recipe
from gangway.trainer.data.prepare import prepare
from gangway.trainer.data.shards import ShardedImages

PIXELS = np.arange(5 * 3 * 8 * 8, dtype=np.uint8).reshape(5, 3, 8, 8)


@pytest.fixture
def images() -> ImagesInMemory:
    return ImagesInMemory(PIXELS, np.array([1, 0, 0, 1, 0]), 2)


def test_images_are_numbered_by_domain_mirrored_ones_too(images: ImagesInMemory) -> None:
    check_domains(images, "x")
    assert [numbers.tolist() for numbers in numbers_by_domain(images)] == [[1, 2, 4], [0, 3]]
    twice = numbers_by_domain(images.mirrored())
    assert [numbers.tolist() for numbers in twice] == [[1, 2, 4, 6, 7, 9], [0, 3, 5, 8]]


@pytest.mark.parametrize(
    ("labels", "num_classes", "found"),
    [(None, 0, "no labels"), ([0] * 5, 1, "1 classes"), ([0, 1, 2, 0, 1], 3, "3 classes"), ([1] * 5, 2, "0 and 5")],
)
def test_other_data_is_refused(labels: list[int] | None, num_classes: int, found: str) -> None:
    data = ImagesInMemory(PIXELS, None if labels is None else np.array(labels), num_classes)
    with pytest.raises(TrainerError) as caught:
        check_domains(data, "data/index.json")
    assert caught.value.place == "data/index.json"
    assert found in str(caught.value.value)
    assert "domain" in caught.value.allowed
    assert "--labels" in caught.value.fix


def test_the_photographs_are_one_of_day_and_one_of_dusk(tmp_path: Path) -> None:
    pytest.importorskip("skimage", reason="the photographs ship in scikit-image")
    index = prepare(day_dusk_recipe(resolution=64), tmp_path)
    data = ShardedImages.open(tmp_path)
    assert (index.dataset, index.shape) == ("day-dusk", (3, 64, 64))
    assert index.labels is not None
    assert index.labels.classes == ("day", "dusk")
    day, dusk = (data.take(numbers) for numbers in numbers_by_domain(data))
    assert min(len(day), len(dusk)) > 500
    assert day.mean() > 2 * dusk.mean(), "it is darker at dusk"
    red, _, blue = dusk.mean(axis=(0, 2, 3))
    assert blue > 1.2 * red, "and bluer"


def test_two_folders_of_pictures_become_two_domains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in (("horses", 40), ("zebras", 200)):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (20, 20), (value,) * 3).save(tmp_path / "pictures" / name / f"{number}.png")
    words = ["--source", str(tmp_path / "pictures"), "--out", str(tmp_path / "out"), "--resolution", "16", "--labels"]
    assert main(["data", "prepare", "folder", *words]) == 0
    assert "2 classes" in capsys.readouterr().out
    data = ShardedImages.open(tmp_path / "out")
    check_domains(data, "x")
    horses, zebras = (data.take(numbers) for numbers in numbers_by_domain(data))
    assert (horses.mean(), zebras.mean()) == (40, 200)
