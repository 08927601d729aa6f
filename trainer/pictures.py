"""Images side by side, as a PNG or as a film: .mp4 through PyAV, .gif through Pillow."""

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from trainer.files import write_atomically

__all__ = ["FILM_SUFFIXES", "film_frames", "strip", "tile", "write_film", "write_png"]

FILM_SUFFIXES = (".mp4", ".gif")
_FRAME = 2
_FRAME_GREY = 96
_TARGET_PIXELS = 64
"""Small images are enlarged to about this side, pixel by pixel, so that a person sees them."""
_CRF = "12"
"""Of H.264: hardly a loss, since samples are looked at for their faults."""

Pixels = NDArray[np.uint8]


def tile(images: Tensor, columns: int) -> Pixels:
    """Images [N, C, H, W] uint8 in rows, with a thin frame around each, as [height, width, C]; the rest stays grey."""
    scale = max(1, _TARGET_PIXELS // images.shape[-1])
    missing = -len(images) % columns
    whole = F.pad(images, (0, 0, 0, 0, 0, 0, 0, missing), value=_FRAME_GREY)
    tiles = whole.repeat_interleave(scale, dim=2).repeat_interleave(scale, dim=3)
    framed = F.pad(tiles, (_FRAME, 0, _FRAME, 0), value=_FRAME_GREY)
    _, channels, height, width = framed.shape
    rows = framed.reshape(-1, columns, channels, height, width)
    grid = rows.permute(0, 3, 1, 4, 2).reshape(-1, columns * width, channels)
    pixels: Pixels = F.pad(grid, (0, 0, 0, _FRAME, 0, _FRAME), value=_FRAME_GREY).numpy()
    return pixels


def strip(clips: Tensor) -> Pixels:
    """Clips [N, C, T, H, W] uint8, each in a row of its T frames."""
    frames = clips.transpose(1, 2).flatten(0, 1)
    return tile(frames, clips.shape[2])


def film_frames(clips: Tensor, columns: int) -> list[Pixels]:
    """Clips [N, C, T, H, W] uint8 side by side, as the frames of one film."""
    return [tile(frame, columns) for frame in clips.unbind(2)]


def write_png(path: Path, pixels: Pixels) -> None:
    """Writes [height, width, 1 or 3] uint8 as a PNG (TrainerError: not writable)."""
    buffer = io.BytesIO()
    Image.fromarray(_plain(pixels)).save(buffer, format="PNG")
    write_atomically(path, buffer.getvalue())


def write_film(path: Path, frames: list[Pixels], frames_per_sec: int) -> None:
    """Writes frames [height, width, 1 or 3] uint8 of equal size as .mp4 (H.264) or .gif (repeating), by the suffix.
    TrainerError: not writable.
    """
    encode = _gif if path.suffix == ".gif" else _mp4
    write_atomically(path, encode(frames, frames_per_sec))


def _gif(frames: list[Pixels], frames_per_sec: int) -> bytes:
    buffer = io.BytesIO()
    first, *others = [Image.fromarray(_plain(frame)) for frame in frames]
    first.save(buffer, "GIF", save_all=True, append_images=others, duration=round(1000 / frames_per_sec), loop=0)
    return buffer.getvalue()


def _mp4(frames: list[Pixels], frames_per_sec: int) -> bytes:
    import av

    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=frames_per_sec, options={"crf": _CRF})
        height, width = (length + length % 2 for length in frames[0].shape[:2])  # H.264 halves the colours' sides
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for pixels in frames:
            even = np.pad(pixels, [(0, height - pixels.shape[0]), (0, width - pixels.shape[1]), (0, 0)], mode="edge")
            rgb = np.ascontiguousarray(np.broadcast_to(even, (height, width, 3)))
            container.mux(stream.encode(av.VideoFrame.from_ndarray(rgb, format="rgb24")))
        container.mux(stream.encode())
    return buffer.getvalue()


def _plain(pixels: Pixels) -> Pixels:
    """Grey images without their channel, as Pillow wants them."""
    return pixels[:, :, 0] if pixels.shape[2] == 1 else pixels
