"""UCF101: clips of whole films by the official lists, labels by class, and what is missing."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.decode import Cut
from gangway.trainer.data.prepare import prepare
from gangway.trainer.data.shards import ShardedImages
from gangway.trainer.data.ucf101 import ucf101_recipe

CUT = Cut(resolution=16, channels=3, frames=4)


def _prepared(source: Path, out: Path, *, cut: Cut = CUT, split: str = "train", skip: bool = False) -> ShardedImages:
    recipe = ucf101_recipe(str(source), out, cut=cut, split=split, fold=1, allow_other_hash=True)
    prepare(recipe, out, skip_broken=skip)
    return ShardedImages.open(out)


@pytest.fixture
def copy(ucf101_dir: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(ucf101_dir, tmp_path / "copy"))


def test_clips_are_the_films_frames_in_order(ucf101_dir: Path, tmp_path: Path) -> None:
    data = _prepared(ucf101_dir, tmp_path)
    # Films of 12 and 13 frames, two classes: three clips of four frames each.
    assert (len(data), data.index.shape, data.index.dataset) == (12, (3, 4, 16, 16), "ucf101")
    clips = data.take(np.arange(12))
    grey = clips[:, :, :, :, 4:12].mean(axis=(1, 3, 4))  # the middle of the central square
    expected = np.arange(12).reshape(3, 4) * 8.0
    assert np.abs(grey[:3] - expected).max() < 6  # MPEG-4 is lossy
    np.testing.assert_array_equal(data.labels(np.arange(12)), [0] * 6 + [1] * 6)
    assert data.index.labels is not None
    assert data.index.labels.classes == ("ApplyEyeMakeup", "Archery")


def test_the_sides_are_cut_off(ucf101_dir: Path, tmp_path: Path) -> None:
    """The films are 64x48 with 8 columns of red and blue at the sides: exactly what the central square leaves out."""
    clips = _prepared(ucf101_dir, tmp_path).take(np.arange(3)).astype(int)
    spread = np.abs(clips[:, 0] - clips[:, 2])[..., 2:-2]  # red against blue, without what the codec smears
    assert spread.max() < 40


def test_stride_step_and_grey(ucf101_dir: Path, tmp_path: Path) -> None:
    data = _prepared(ucf101_dir, tmp_path, cut=Cut(resolution=16, channels=1, frames=3, stride=2, step=4))
    # A clip reaches over 5 frames: it begins at 0, 4 of 12 frames and at 0, 4, 8 of 13.
    assert len(data) == 2 * (2 + 3)
    grey = data.take(np.arange(2))[:, 0, :, :, 4:12].mean(axis=(2, 3))
    assert np.abs(grey - np.array([[0, 16, 32], [32, 48, 64]])).max() < 6
    assert data.index.source is not None
    assert "clips of 3 frames, every 2. frame, a clip begins every 4 frames" in data.index.source.processing


def test_splits_follow_the_lists(ucf101_dir: Path, tmp_path: Path) -> None:
    assert [len(_prepared(ucf101_dir, tmp_path / split, split=split)) for split in ("test", "all")] == [4, 16]


def test_films_too_short_are_named_or_left_out(ucf101_dir: Path, tmp_path: Path) -> None:
    cut = Cut(resolution=16, channels=3, frames=13)
    with pytest.raises(TrainerError, match=r"v_ApplyEyeMakeup_g02_c01\.avi: .*too few frames: 12, a clip needs 13"):
        _prepared(ucf101_dir, tmp_path, cut=cut)
    data = _prepared(ucf101_dir, tmp_path, cut=cut, skip=True)
    assert len(data) == 2
    np.testing.assert_array_equal(data.labels(np.arange(2)), [0, 1])
    assert data.index.source is not None
    assert [name.rpartition("/")[2] for name in data.index.source.skipped[0].names] == [
        "v_ApplyEyeMakeup_g02_c01.avi",
        "v_Archery_g02_c01.avi",
    ]


@pytest.mark.parametrize("content", [b"", b"RIFF" + bytes(100)], ids=["empty", "junk"])
def test_a_film_that_is_none_is_named(content: bytes, copy: Path, tmp_path: Path) -> None:
    (copy / "UCF-101" / "Archery" / "v_Archery_g03_c01.avi").write_bytes(content)
    with pytest.raises(TrainerError, match=r"v_Archery_g03_c01\.avi: cannot be used: not a readable film"):
        _prepared(copy, tmp_path / "out")


def test_what_is_missing_is_named(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match="number of films is another") as caught:
        ucf101_recipe(str(copy), tmp_path, cut=CUT, split="train", fold=1, allow_other_hash=False)
    assert (caught.value.value, caught.value.allowed) == (6, "13,320")
    (copy / "UCF-101" / "Archery" / "v_Archery_g03_c01.avi").unlink()
    with pytest.raises(TrainerError, match="a film of the split list is missing") as caught:
        _prepared(copy, tmp_path / "out")
    assert caught.value.value == "Archery/v_Archery_g03_c01.avi"
    lists = copy / "ucfTrainTestlist"
    (lists / "classInd.txt").write_text("1 ApplyEyeMakeup\n")
    with pytest.raises(TrainerError, match=r"a film's class is not in classInd\.txt"):
        _prepared(copy, tmp_path / "out")
    (lists / "classInd.txt").write_text("ApplyEyeMakeup Archery\n")
    with pytest.raises(TrainerError, match="is not the list of classes"):
        _prepared(copy, tmp_path / "out")
    (lists / "trainlist01.txt").rename(lists / "trainlist02.txt")
    (lists / "classInd.txt").write_text("1 ApplyEyeMakeup\n2 Archery\n")
    with pytest.raises(TrainerError, match=r"there is no trainlist01\.txt"):
        _prepared(copy, tmp_path / "out")
    shutil.rmtree(copy / "UCF-101")
    with pytest.raises(TrainerError, match=r"holds no \.avi file") as caught:
        _prepared(copy, tmp_path / "out")
    assert "unrar" in caught.value.fix


def test_a_clip_of_one_frame_is_refused(ucf101_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match="--frames: a clip has at least two frames"):
        _prepared(ucf101_dir, tmp_path, cut=Cut(16, 3, 1))
