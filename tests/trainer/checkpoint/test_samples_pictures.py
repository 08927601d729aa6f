"""Grids and films: every image in its place, read back from what was written."""

from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from PIL import Image, ImageSequence

from gangway.trainer.checkpoint.samples import (
    FILM_SUFFIXES,
    add_captions,
    film_frames,
    strip,
    tile,
    write_film,
    write_png,
    write_samples,
)
from gangway.trainer.core.errors import TrainerError


def _numbered(num: int, *shape: int) -> torch.Tensor:
    """Images of one grey each: 0, 1, 2, ..."""
    return torch.arange(num, dtype=torch.uint8).reshape(-1, *[1] * len(shape)).repeat(1, *shape)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_grid_holds_each_image_in_its_place(tmp_path: Path, channels: int) -> None:
    write_png(tmp_path / "grid.png", tile(_numbered(24, channels, 32, 32), 12))
    with Image.open(tmp_path / "grid.png") as picture:
        pixels = np.asarray(picture)
    assert pixels.shape[:2] == (2 * 66 + 2, 12 * 66 + 2)
    centres = pixels[34::66, 34::66].reshape(24, -1)
    assert centres[:, 0].tolist() == list(range(24))
    assert (pixels[0] == 96).all()


def test_places_without_an_image_are_grey_and_large_images_keep_their_size() -> None:
    pixels = tile(_numbered(3, 1, 128, 128), 2)
    assert pixels.shape == (2 * 130 + 2, 2 * 130 + 2, 1)
    assert [pixels[y, x, 0] for y in (66, 196) for x in (66, 196)] == [0, 1, 2, 96]


@pytest.mark.parametrize("channels", [1, 3])
def test_each_column_of_translations_has_its_word_above_and_the_images_are_as_they_were(
    tmp_path: Path, channels: int
) -> None:
    images = _numbered(96, channels, 32, 32)
    write_samples(tmp_path / "plain.png", images)
    write_samples(tmp_path / "grid.png", images, (("day", "to dusk", "and back"), ("dusk", "to day", "and back")))
    with Image.open(tmp_path / "grid.png") as picture, Image.open(tmp_path / "plain.png") as plain:
        pixels, without = np.asarray(picture), np.asarray(plain)
    lines, parts = (pixels[:14], pixels[280:294]), (pixels[14:278], pixels[294:558])
    assert (np.concatenate(parts) == without[:-2]).all()
    for line in lines:
        words = [line[:, column * 66 : column * 66 + 66].tobytes() for column in range(12)]
        assert words == 4 * words[:3], "over and over"
        assert len(set(words)) == 3
        assert all(np.frombuffer(word, dtype=np.uint8).max() > 200 for word in words)
    assert lines[0].tobytes() != lines[1].tobytes()


def test_a_word_stays_in_its_column_whatever_it_is() -> None:
    grid = tile(_numbered(3, 1, 32, 32), 3)
    found, short = (add_captions(grid, words, 3) for words in (("x", "w" * 500, "\u65e5\u4e2d"), ("x", "", "??")))
    columns = [slice(number * 66, number * 66 + 66) for number in range(3)]
    assert found.shape == (14 + 68, 200, 1)
    for column in (columns[0], columns[2]):
        assert (found[:14, column] == short[:14, column]).all()
    assert (found[:14, columns[1]] != short[:14, columns[1]]).any()


def test_a_strip_has_a_row_for_each_clip_and_a_film_a_picture_for_each_frame() -> None:
    clips = torch.arange(6, dtype=torch.uint8).reshape(2, 1, 3, 1, 1).repeat(1, 1, 1, 32, 32)
    pixels = strip(clips)
    assert pixels[34::66, 34::66, 0].tolist() == [[0, 1, 2], [3, 4, 5]]
    frames = film_frames(clips, 2)
    assert [frame[34, 34::66, 0].tolist() for frame in frames] == [[0, 3], [1, 4], [2, 5]]


def _read_back(path: Path) -> list[np.ndarray]:
    if path.suffix == ".gif":
        with Image.open(path) as film:
            return [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(film)]
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


@pytest.mark.parametrize("suffix", FILM_SUFFIXES)
@pytest.mark.parametrize("channels", [1, 3])
def test_a_film_read_back_shows_its_frames_in_order(tmp_path: Path, suffix: str, channels: int) -> None:
    greys = (30, 120, 210)
    frames = [np.full((33, 35, channels), grey, dtype=np.uint8) for grey in greys]
    path = tmp_path / f"film{suffix}"
    write_film(path, frames, 10)
    found = _read_back(path)
    assert [frame.mean() for frame in found] == pytest.approx(greys, abs=4)
    assert found[0].shape[:2] in {(33, 35), (34, 36)}
    first = path.read_bytes()
    write_film(path, frames, 10)
    assert path.read_bytes() == first


def test_a_full_disk_leaves_no_film(tmp_path: Path, full_disk: Callable[[str], None]) -> None:
    full_disk("film.gif")
    with pytest.raises(TrainerError, match="No space left on device"):
        write_film(tmp_path / "film.gif", [np.zeros((8, 8, 1), dtype=np.uint8)], 10)
    assert not (tmp_path / "film.gif").exists()
