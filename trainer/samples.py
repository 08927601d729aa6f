"""Grids of images as PNG: what the generator makes of the same latents over time, and real images to compare with.

Not a gallery: one grid, fixed latents, no picking.
"""

import io
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from trainer.config import TrainConfig
from trainer.draws import Purpose, latents
from trainer.files import write_atomically

__all__ = ["sample_grid", "to_uint8", "write_grid"]

_FRAME = 2
_FRAME_GREY = 96
COLUMNS = 12
ROWS = 8
_TARGET_PIXELS = 64
"""Small images are enlarged to about this side, pixel by pixel, so that a person sees them."""


def to_uint8(images: Tensor) -> Tensor:
    """[N, C, H, W] in -1..1 to uint8 on the CPU, as the metrics and the grids see them."""
    return ((images + 1) * 127.5).round().clamp(0, 255).to(torch.uint8).cpu()


def sample_grid(generator: nn.Module, config: TrainConfig, device: torch.device) -> Tensor:
    """uint8 images [COLUMNS * ROWS, C, H, W] of the run's fixed latents."""
    fixed = latents(COLUMNS * ROWS, config.z_dim, seed=config.seed, images=0, purpose=Purpose.SAMPLES)
    with torch.no_grad():
        return to_uint8(generator(fixed.to(device)))


def write_grid(path: Path, images: Tensor) -> None:
    """Writes uint8 images [N, C, H, W], N a multiple of COLUMNS, as one PNG with a thin frame around each.

    Raises:
        TrainerError: the file cannot be written.
    """
    scale = max(1, _TARGET_PIXELS // images.shape[-1])
    tiles = images.repeat_interleave(scale, dim=2).repeat_interleave(scale, dim=3)
    framed = F.pad(tiles, (_FRAME, 0, _FRAME, 0), value=_FRAME_GREY)
    _, channels, height, width = framed.shape
    rows = framed.reshape(-1, COLUMNS, channels, height, width)
    grid = rows.permute(0, 3, 1, 4, 2).reshape(-1, COLUMNS * width, channels)
    pixels = F.pad(grid, (0, 0, 0, _FRAME, 0, _FRAME), value=_FRAME_GREY).numpy()
    buffer = io.BytesIO()
    Image.fromarray(pixels.squeeze(2) if channels == 1 else pixels).save(buffer, format="PNG")
    write_atomically(path, buffer.getvalue())
