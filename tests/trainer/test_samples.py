"""Sample grids: values, layout, and the same latents every time."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from trainer.config import TrainConfig
from trainer.networks import build
from trainer.samples import COLUMNS, ROWS, sample_grid, to_uint8, write_grid


def test_the_range_maps_to_all_of_uint8() -> None:
    values = torch.tensor([-1.2, -1.0, 0.0, 1.0, 1.2])
    assert to_uint8(values).tolist() == [0, 0, 128, 255, 255]


@pytest.mark.parametrize("channels", [1, 3])
def test_a_grid_holds_each_image_in_its_place(tmp_path: Path, channels: int) -> None:
    images = torch.arange(COLUMNS * 2, dtype=torch.uint8).reshape(-1, 1, 1, 1).repeat(1, channels, 32, 32)
    write_grid(tmp_path / "grid.png", images)
    with Image.open(tmp_path / "grid.png") as picture:
        pixels = np.asarray(picture)
    assert pixels.shape[:2] == (2 * 66 + 2, COLUMNS * 66 + 2)
    centres = pixels[34::66, 34::66].reshape(2 * COLUMNS, -1)
    assert centres[:, 0].tolist() == list(range(2 * COLUMNS))
    assert (pixels[0] == 96).all()


def test_samples_show_fixed_latents(tiny_config: TrainConfig) -> None:
    generator, _ = build(tiny_config)
    first = sample_grid(generator, tiny_config, torch.device("cpu"))
    torch.rand(10)
    assert first.shape == (COLUMNS * ROWS, 1, 32, 32)
    assert torch.equal(first, sample_grid(generator, tiny_config, torch.device("cpu")))
