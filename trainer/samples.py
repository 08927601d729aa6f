"""What the generator makes of the same latents over time: a grid for images, a film strip and a film for clips."""

from pathlib import Path

import torch
from torch import Tensor

from trainer.config import TrainConfig
from trainer.networks import Generator
from trainer.pictures import film_frames, strip, tile, write_film, write_png
from trainer.steps import draws
from trainer.steps.draws import Purpose

__all__ = ["COLUMNS", "ROWS", "num_shown", "sample_grid", "to_uint8", "write_samples"]

COLUMNS = 12
ROWS = 8
_CLIP_COLUMNS = 4
_CLIPS = 16
"""A clip costs as much as its frames, and a strip shows each frame."""
_FRAMES_PER_SEC = 16


def to_uint8(images: Tensor) -> Tensor:
    """Images in -1..1, of any shape, to uint8 on the CPU, as the metrics and the grids see them."""
    return ((images + 1) * 127.5).round().clamp(0, 255).to(torch.uint8).cpu()


def num_shown(config: TrainConfig) -> int:
    """Images or clips in the run's grids."""
    return COLUMNS * ROWS if config.frames == 1 else _CLIPS


def sample_grid(generator: Generator, config: TrainConfig, device: torch.device) -> Tensor:
    """uint8 images [N, C, H, W], or clips [N, C, T, H, W], of the run's fixed latents and classes."""
    fixed = {"seed": config.seed, "images": 0}
    latents = draws.latents(num_shown(config), config.z_dim, purpose=Purpose.SAMPLES, **fixed)
    labels = draws.labels(num_shown(config), config.num_classes, purpose=Purpose.SAMPLE_LABELS, **fixed)
    with torch.no_grad():
        return to_uint8(generator(latents.to(device), None if labels is None else labels.to(device)))


def write_samples(path: Path, images: Tensor) -> None:
    """Writes uint8 images [N, C, H, W] as one PNG; of clips [N, C, T, H, W] a strip, and all as an .mp4 beside it.
    TrainerError: not writable.
    """
    if images.dim() == 4:
        write_png(path, tile(images, COLUMNS))
        return
    write_png(path, strip(images))
    write_film(path.with_suffix(".mp4"), film_frames(images, _CLIP_COLUMNS), _FRAMES_PER_SEC)
