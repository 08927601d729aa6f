"""Image files to pixels: decode, crop, resize (Pillow's Lanczos, antialiased); the recipe of any list of pictures."""

import io
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trainer.data.recipe import BrokenItemError, Decoded
from trainer.data.sources import FileSet

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["RESIZER", "SUFFIXES", "Box", "PictureDecoder", "central_square", "opened", "resized"]

RESIZER = "Pillow Lanczos, antialiased"
SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")

Box = tuple[int, int, int, int]
"""Left, top, right, bottom, in pixels."""


def central_square(width: int, height: int) -> Box:
    """The largest square in the middle."""
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    return left, top, left + side, top + side


def opened(content: bytes, channels: int) -> "Image":
    """A picture, upright, of 1 (grey) or 3 (RGB) channels. BrokenItemError: it is no image, is cut short, or has more
    than 8 bits a channel.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a camera wrote oddly into the header
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(content)) as file:
                if file.mode.startswith(("I", "F")):
                    raise BrokenItemError(f"its pixels are of kind {file.mode}, not of 8 bits a channel")
                return ImageOps.exif_transpose(file).convert("L" if channels == 1 else "RGB")
    except BrokenItemError:
        raise
    except UnidentifiedImageError:  # its sentence names a place in memory
        raise BrokenItemError("not a readable image: of no format that Pillow knows") from None
    except Exception as error:  # Pillow's decoders raise whatever comes to their minds
        raise BrokenItemError(f"not a readable image: {_one_line(error)}") from None


def resized(image: "Image", resolution: int, box: Box | None = None) -> NDArray[np.uint8]:
    """A part of a picture (None: the central square), resized, [channels, resolution, resolution]. BrokenItemError: the
    picture is smaller than the box.
    """
    from PIL import Image

    left, top, right, bottom = box or central_square(*image.size)
    if right > image.width or bottom > image.height:
        raise BrokenItemError(f"is {image.width}x{image.height}, smaller than the crop {left, top, right, bottom}")
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
        """Reads and decodes one file (BrokenItemError: unreadable, or no image)."""
        try:
            content = self.files.read(self.names[item])
        except OSError as error:
            raise BrokenItemError(f"cannot be read: {_one_line(error)}") from None
        image = resized(opened(content, self.channels), self.resolution, self.box)[None]
        return Decoded(image, np.array([self.labels[item]], dtype=np.int64) if self.labels else None)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
