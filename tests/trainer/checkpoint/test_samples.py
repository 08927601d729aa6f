"""What a run shows of itself: values, the same latents every time, and a film beside the strip of clips."""

from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from PIL import Image, ImageSequence

from gangway.trainer.checkpoint import store
from gangway.trainer.checkpoint.samples import (
    COLUMNS,
    ROWS,
    add_captions,
    film_frames,
    load_generator,
    num_shown,
    sample_grid,
    strip,
    tile,
    to_uint8,
    write_film,
    write_png,
    write_samples,
)
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.networks.base import Generator
from gangway.trainer.networks.factory import build
from gangway.trainer.records.digest import RunIdentity
from gangway.trainer.steps.state import TrainState


@pytest.mark.parametrize("dequantise", [False, True])
def test_the_range_maps_to_all_of_uint8(tiny_config: TrainConfig, *, dequantise: bool) -> None:
    values = torch.tensor([-1.2, -1.0, 0.0, 1.0, 1.2])
    assert to_uint8(values, tiny_config.replace({"dequantise": dequantise})).tolist() == [0, 0, 128, 255, 255]


def test_samples_show_fixed_latents(tiny_config: TrainConfig) -> None:
    generator, _ = build(tiny_config)
    first = sample_grid(generator, tiny_config, torch.device("cpu"))
    torch.rand(10)
    assert first.shape == (COLUMNS * ROWS, 1, 32, 32)
    assert torch.equal(first, sample_grid(generator, tiny_config, torch.device("cpu")))


def test_samples_show_every_class(tiny_config: TrainConfig) -> None:
    asked: list[torch.Tensor] = []

    class Asked(Generator):
        def forward(self, latents: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
            assert labels is not None
            asked.append(labels)
            return torch.zeros(len(latents), 1, 32, 32)

    config = tiny_config.replace({"num_classes": 10})
    for _ in range(2):
        sample_grid(Asked(), config, torch.device("cpu"))
    assert set(asked[0].tolist()) == set(range(10))
    assert torch.equal(asked[0], asked[1])


@pytest.mark.parametrize("frames", [1, 4])
def test_clips_are_a_strip_and_a_film(tmp_path: Path, tiny_config: TrainConfig, frames: int) -> None:
    config = tiny_config.model_copy(update={"frames": frames})
    shape = (1, 32, 32) if frames == 1 else (1, frames, 32, 32)
    path = tmp_path / "grid.png"
    write_samples(path, torch.zeros(num_shown(config), *shape, dtype=torch.uint8))
    with Image.open(path) as picture:
        rows, columns = (ROWS, COLUMNS) if frames == 1 else (num_shown(config), frames)
        assert picture.size == (66 * columns + 2, 66 * rows + 2)
    assert path.with_suffix(".mp4").exists() == (frames > 1)


IDENTITY = RunIdentity(run_id="r", session=0, dataset_sha256="ab")
CPU = torch.device("cpu")


def _save(run_dir: Path, config: TrainConfig, images: int) -> TrainState:
    state = TrainState.create(config.replace({"seed": images}), CPU)
    state.images = images
    with torch.no_grad():
        for parameter in state.ema.parameters():
            parameter.add_(0.5)
    store.save(run_dir / "checkpoints", state.state_dict(), config, images, IDENTITY)
    return state


def test_it_is_the_averaged_one_of_the_newest_whole_checkpoint(
    tmp_path: Path, tiny_config: TrainConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    older = _save(tmp_path, tiny_config, 160)
    _save(tmp_path, tiny_config, 320)
    (tmp_path / "checkpoints/000000000320.pt").write_bytes(b"cut short")
    trained = load_generator(tmp_path, CPU)
    assert trained.manifest.images == 160
    assert "passed over a checkpoint" in capsys.readouterr().out
    assert not trained.network.training
    assert not any(parameter.requires_grad for parameter in trained.network.parameters())
    latents = torch.randn(2, tiny_config.z_dim)
    assert torch.equal(trained.network(latents), older.ema(latents))
    assert not torch.equal(trained.network(latents), older.generator(latents))


def test_a_run_without_a_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match="--run-dir: holds no run"):
        load_generator(tmp_path, CPU)
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(TrainerError, match="--run-dir: holds no checkpoint yet"):
        load_generator(tmp_path, CPU)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_run_of_a_cpu_makes_the_same_images_on_a_gpu(tmp_path: Path, tiny_config: TrainConfig) -> None:
    _save(tmp_path, tiny_config, 160)
    latents = torch.randn(2, tiny_config.z_dim)
    here, there = (load_generator(tmp_path, device).network for device in (CPU, torch.device("cuda")))
    assert torch.allclose(here(latents), there(latents.cuda()).cpu(), atol=1e-3)


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


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
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
