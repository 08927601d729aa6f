"""Images of the averaged generator: loads it from a run, samples it, writes grids (PNG) and films (mp4, gif)."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor
from torch.nn import functional as F

from gangway.trainer.checkpoint import store
from gangway.trainer.checkpoint.store import Manifest
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.files import write_atomically
from gangway.trainer.data.loader import ImageSource, Sampler, numbers_by_domain
from gangway.trainer.data.shards import ShardedImages
from gangway.trainer.families import get_family
from gangway.trainer.networks.base import Generator
from gangway.trainer.networks.factory import build
from gangway.trainer.networks.progressive_schedule import phase_at
from gangway.trainer.phases import rng
from gangway.trainer.phases.batch import Unpaired, to_floats
from gangway.trainer.phases.rng import Purpose
from gangway.trainer.records.stats_log import require_run
from gangway.trainer.steps.state import TrainState

_FRAME = 2
_FRAME_GREY = 96
_CAPTION = 14  # Height of the captions above a grid, pixels
_TARGET_PIXELS = 64  # Small images are enlarged to about this side, pixel by pixel
_CRF = "12"  # Of H.264: nearly lossless, as samples are inspected for faults

Pixels = NDArray[np.uint8]
COLUMNS = 12
ROWS = 8
IMAGES_PER_CYCLE = 3  # An image, its translation, and that translated back
_CLIP_COLUMNS = 4
_CLIPS = 16  # Fewer than images, as a strip shows each frame
_FRAMES_PER_SEC = 16


def tile(images: Tensor, columns: int) -> Pixels:
    """Arranges uint8 images [N, C, H, W] in rows with a thin grey frame, as [height, width, C]."""
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


def add_captions(pixels: Pixels, words: Sequence[str], columns: int) -> Pixels:
    """Adds a line of words above a grid, repeated over its columns; words too long for their column are cut."""
    _, width, channels = pixels.shape
    font, column_width = ImageFont.load_default(), width // columns
    line = Image.new("L", (width, _CAPTION), _FRAME_GREY)
    draw = ImageDraw.Draw(line)
    for column in range(columns):
        word = words[column % len(words)].encode("ascii", "replace").decode()  # the font has no more
        while font.getlength(word) > column_width - 2 * _FRAME:
            word = word[:-1]
        draw.text((column * column_width + _FRAME, 1), word, fill=255, font=font)
    above = np.asarray(line, dtype=np.uint8)[:, :, None].repeat(channels, axis=2)
    return np.concatenate([above, pixels])


def strip(clips: Tensor) -> Pixels:
    """Arranges clips [N, C, T, H, W] uint8, each in a row of its T frames."""
    frames = clips.transpose(1, 2).flatten(0, 1)
    return tile(frames, clips.shape[2])


def film_frames(clips: Tensor, columns: int) -> list[Pixels]:
    """Arranges clips [N, C, T, H, W] uint8 in a grid; returns the frames of one film."""
    return [tile(frame, columns) for frame in clips.unbind(2)]


def write_png(path: Path, pixels: Pixels) -> None:
    """Writes [height, width, 1 or 3] uint8 as a PNG (TrainerError: not writable)."""
    buffer = io.BytesIO()
    Image.fromarray(_plain(pixels)).save(buffer, format="PNG")
    write_atomically(path, buffer.getvalue())


def write_film(path: Path, frames: list[Pixels], frames_per_sec: int) -> None:
    """Writes uint8 frames [height, width, 1 or 3] as .mp4 (H.264) or .gif (repeating) (TrainerError: not writable)."""
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
    return pixels[:, :, 0] if pixels.shape[2] == 1 else pixels


def to_uint8(images: Tensor, config: TrainConfig) -> Tensor:
    """Converts images in -1..1 to uint8 on the CPU: the inverse of the conversion of reals."""
    grey = (((images + 1) * 128).floor() if config.dequantise else ((images + 1) * 127.5).round()).clamp(0, 255)
    return grey.to(torch.uint8).cpu()


def num_shown(config: TrainConfig) -> int:
    """Returns the number of images or clips in the run's grids."""
    return COLUMNS * ROWS if config.frames == 1 else _CLIPS


def sample_grid(generator: Generator, config: TrainConfig, device: torch.device) -> Tensor:
    """Samples uint8 images [N, C, H, W], or clips [N, C, T, H, W], of the run's fixed latents and classes."""
    latents = rng.latents(num_shown(config), config, images=0, purpose=Purpose.SAMPLES)
    labels = rng.labels(
        num_shown(config), config.num_classes, seed=config.seed, images=0, purpose=Purpose.SAMPLE_LABELS
    )
    with torch.no_grad():
        return to_uint8(generator(latents.to(device), None if labels is None else labels.to(device)), config)


def run_grid(state: TrainState, data: ImageSource, device: torch.device) -> Tensor:
    """Samples a grid's uint8 images: of fixed latents, or the first reals of each domain with both translations."""
    config, translations = state.config, get_family(state.config).translations
    if translations is None:
        return sample_grid(state.ema_on(device), config, device)
    count = num_shown(config) // (2 * IMAGES_PER_CYCLE)
    chosen = [numbers[Sampler(len(numbers), config.seed).indices(0, count)] for numbers in numbers_by_domain(data)]
    a, b = (to_floats(torch.from_numpy(data.take(numbers)).to(device)) for numbers in chosen)
    with torch.no_grad():
        return to_uint8(translations(state.averages_on(device), Unpaired(a, b)), config)


def get_captions(config: TrainConfig, data: ShardedImages) -> Sequence[Sequence[str]]:
    """Returns the captions of `run_grid`'s columns per domain; empty for other grids."""
    if not config.translates:
        return ()
    assert data.index.labels is not None, "images of two domains have labels"
    a, b = data.index.labels.classes
    return (a, f"to {b}", "and back"), (b, f"to {a}", "and back")


def check_samples_latents(config: TrainConfig, what: str) -> None:
    """Raises TrainerError for networks that translate images; `what` is the command's output."""
    if config.translates:
        raise TrainerError(
            place="--run-dir",
            problem=f"its networks translate images, and {what} is made of latents",
            value=f"{config.preset}, architecture {config.architecture}",
            allowed="a run of any other architecture",
            fix="look at samples.png in the run's folder: images, their translations, and those translated back",
        )


def write_samples(path: Path, images: Tensor, captions: Sequence[Sequence[str]] = ()) -> None:
    """Writes images [N, C, H, W] as a PNG, clips [N, C, T, H, W] as strip and .mp4; `captions` are of equal parts."""
    if captions:
        parts = zip(images.chunk(len(captions)), captions, strict=True)
        write_png(path, np.concatenate([add_captions(tile(part, COLUMNS), words, COLUMNS) for part, words in parts]))
        return
    if images.dim() == 4:
        write_png(path, tile(images, COLUMNS))
        return
    write_png(path, strip(images))
    write_film(path.with_suffix(".mp4"), film_frames(images, _CLIP_COLUMNS), _FRAMES_PER_SEC)


class Trained(NamedTuple):
    """A run's averaged generator, in evaluation mode, and its checkpoint's manifest."""

    network: Generator
    manifest: Manifest


def load_generator(run_dir: Path, device: torch.device) -> Trained:
    """Loads the averaged generator of the newest valid checkpoint (TrainerError: no run, or none valid)."""
    require_run(run_dir, ("checkpoints",))
    found = store.newest_of_run(run_dir)
    config, images = found.manifest.config, found.manifest.images
    check_samples_latents(config, "what this command writes")
    network, _ = build(config)
    network.load_state_dict(found.read()["ema"])
    network.to(device).eval().requires_grad_(False).enter(phase_at(config, images, device))
    return Trained(network, found.manifest)
