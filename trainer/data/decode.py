"""Decode image files, and films through PyAV, to cropped and resized images and clips."""

import io
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.index import BrokenItemError, Decoded
from gangway.trainer.data.sources import FileSet

if TYPE_CHECKING:
    from PIL.Image import Image

RESIZER = "Pillow Lanczos, antialiased"
SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")

_DEEP = re.compile(r";16[BLN]")  # 16 bits per channel, in Pillow's tile description
_MOST_FRAME_PIXELS = 1 << 26  # 8,192 by 8,192, more than an 8K frame
_MOST_KEPT_BYTES = 1 << 30
"""Limit of a film's cropped and resized frames: 36 minutes of 64x64 in colour at 40 frames a second."""
_MOST_DECODED_PIXELS = 1 << 37
"""Limit of a film: 37 minutes of full HD at 30 frames a second. A few kB can decode to a hundred times as much."""
_LIMITS = f"{_MOST_DECODED_PIXELS / 1e9:.0f} thousand million pixels, or {_MOST_KEPT_BYTES >> 30} GiB of what is kept"

Box = tuple[int, int, int, int]  # Left, top, right, bottom, in pixels


def _central_square(width: int, height: int) -> Box:
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    return left, top, left + side, top + side


def open_picture(content: bytes, channels: int) -> "Image":
    """An upright picture of 1 (grey) or 3 (RGB) channels (BrokenItemError: invalid, deep, or a bomb)."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    # Pillow refuses more than 178,956,970 pixels as a decompression bomb.
    try:
        with warnings.catch_warnings():
            # Odd camera headers, and pictures above half of Pillow's limit.
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(content)) as file:
                if file.mode.startswith(("I", "F")) or _DEEP.search(str(file.tile)):  # Pillow would clip it
                    raise BrokenItemError(f"more than 8 bits a channel: convert it first ({file.format}, {file.mode})")
                return ImageOps.exif_transpose(file).convert("L" if channels == 1 else "RGB")
    except BrokenItemError:
        raise
    except Image.DecompressionBombError as error:
        raise BrokenItemError(f"too many pixels: make it smaller first ({_one_line(error)})") from None
    except UnidentifiedImageError:  # its message contains a memory address
        raise BrokenItemError("not a readable image: of no format that Pillow knows") from None
    except Exception as error:  # Pillow's decoders raise arbitrary exceptions
        raise BrokenItemError(f"not a readable image: {_one_line(error)}") from None


def resize(image: "Image", resolution: int, box: Box | None = None) -> NDArray[np.uint8]:
    """Crop (None: the central square) and resize, [channels, resolution, resolution]; BrokenItemError: too small."""
    from PIL import Image

    left, top, right, bottom = box or _central_square(*image.size)
    if right > image.width or bottom > image.height:
        raise BrokenItemError(f"smaller than the crop {left, top, right, bottom}: {image.width}x{image.height}")
    small = image.resize((resolution, resolution), Image.Resampling.LANCZOS, box=(left, top, right, bottom))
    array = np.asarray(small, dtype=np.uint8).reshape(resolution, resolution, -1)
    return np.ascontiguousarray(array.transpose(2, 0, 1))


@dataclass(frozen=True)
class PictureDecoder:
    """Item n is the n-th file. `box` None takes the central square; `labels` by file, empty for none."""

    files: FileSet
    names: tuple[str, ...]
    resolution: int
    channels: int
    box: Box | None = None
    labels: tuple[int, ...] = ()

    def __call__(self, item: int) -> Decoded:
        """Read and decode one file (BrokenItemError: unreadable, or no image)."""
        try:
            content = self.files.read(self.names[item])
        except OSError as error:
            raise BrokenItemError(f"cannot be read: {_one_line(error)}") from None
        image = resize(open_picture(content, self.channels), self.resolution, self.box)[None]
        return Decoded(image, np.array([self.labels[item]], dtype=np.int64) if self.labels else None)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


@dataclass(frozen=True)
class Cut:
    """How a film becomes clips: film frames between a clip's frames and between starts, and crops side by side."""

    resolution: int
    channels: int
    frames: int
    stride: int = 1
    step: int = 0
    squares: int = 1

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of one clip."""
        return self.channels, self.frames, self.resolution, self.resolution

    @property
    def span(self) -> int:
        """Film frames covered by one clip."""
        return (self.frames - 1) * self.stride + 1

    @property
    def _step(self) -> int:
        return self.step or self.frames * self.stride

    def __str__(self) -> str:
        where = "the central square" if self.squares == 1 else f"{self.squares} squares from side to side"
        return (
            f"{where} of each frame, {RESIZER}, to {self.resolution}x{self.resolution}; clips of {self.frames} frames, "
            f"every {self.stride}. frame, a clip begins every {self._step} frames"
        )

    def boxes(self, width: int, height: int) -> list[Box]:
        """The square crops of a frame."""
        if self.squares == 1:
            return [_central_square(width, height)]
        side = min(width, height)
        spread = [round(number * (max(width, height) - side) / (self.squares - 1)) for number in range(self.squares)]
        wide = width >= height
        return [(at, 0, at + side, side) if wide else (0, at, side, at + side) for at in spread]

    def clips(self, frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """All clips [n, C, T, H, W] of a film [F, squares, C, H, W] (BrokenItemError: too few frames)."""
        if len(frames) < self.span:
            raise BrokenItemError(f"too few frames: {len(frames)}, a clip needs {self.span}")
        starts = range(0, len(frames) - self.span + 1, self._step)
        cut = np.stack([frames[start : start + self.span : self.stride] for start in starts])
        # [clip, T, square, C, H, W] to [square and clip, C, T, H, W]
        return np.ascontiguousarray(cut.transpose(2, 0, 3, 1, 4, 5).reshape(-1, *self.shape))


def check_cut(cut: Cut) -> None:
    """TrainerError for a clip of a single frame."""
    if cut.frames < 2:
        raise TrainerError(
            place="--frames",
            problem="a clip has at least two frames",
            value=cut.frames,
            allowed="2 or more",
            fix="--frames 16, for example; for single images prepare the folder data set",
        )


@dataclass(frozen=True)
class FilmDecoder:
    """Item n is the n-th film; `labels` by film, empty for none."""

    files: FileSet
    names: tuple[str, ...]
    cut: Cut
    labels: tuple[int, ...] = ()

    def __call__(self, item: int) -> Decoded:
        """Read, decode and cut one film (BrokenItemError: unreadable, no film, or too short)."""
        import av

        try:
            content = self.files.read(self.names[item])
            frames = list(_frames(content, self.cut))
        except (OSError, av.FFmpegError, ValueError, IndexError) as error:
            raise BrokenItemError(f"not a readable film: {' '.join(str(error).split())}") from None
        clips = self.cut.clips(np.stack(frames) if frames else np.empty((0, 0, 0, 0, 0), np.uint8))
        return Decoded(clips, np.full(len(clips), self.labels[item], dtype=np.int64) if self.labels else None)


def _frames(content: bytes, cut: Cut) -> Iterator[NDArray[np.uint8]]:
    import av
    from PIL import Image

    with av.open(io.BytesIO(content), "r") as container:
        if not container.streams.video:
            raise ValueError("it has no pictures")
        stream = container.streams.video[0]
        stream.thread_type = "NONE"  # processes already decode in parallel
        if stream.width * stream.height > _MOST_FRAME_PIXELS:
            raise ValueError(
                f"frames of {stream.width}x{stream.height}: at most {_MOST_FRAME_PIXELS:,} pixels are read"
            )
        # Later frames may be larger: the decoder refuses them before it allocates memory.
        stream.codec_context.options = {"max_pixels": str(_MOST_FRAME_PIXELS)}
        kept_bytes = decoded_pixels = 0
        for frame in container.decode(stream):
            kept_bytes += cut.squares * cut.channels * cut.resolution**2
            decoded_pixels += frame.width * frame.height
            if kept_bytes > _MOST_KEPT_BYTES or decoded_pixels > _MOST_DECODED_PIXELS:
                raise ValueError(f"longer than is read at once, {_LIMITS}: cut it into shorter films")
            image = Image.fromarray(frame.to_ndarray(format="rgb24")).convert("L" if cut.channels == 1 else "RGB")
            squares = [resize(image, cut.resolution, box) for box in cut.boxes(*image.size)]
            yield np.stack(squares)
