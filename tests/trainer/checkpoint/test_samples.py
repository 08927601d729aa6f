"""What a run shows of itself: values, the same latents every time, and a film beside the strip of clips."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from gangway.trainer.checkpoint.samples import COLUMNS, ROWS, num_shown, sample_grid, to_uint8, write_samples
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.networks.base import Generator
from gangway.trainer.networks.factory import build


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
