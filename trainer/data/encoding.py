"""Shards of encoded pictures, decoded while training: one row of bytes, first the pictures' offsets (int64)."""

import io
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from gangway.trainer.core.errors import broken_rule
from gangway.trainer.core.host import usable_cores
from gangway.trainer.records.quantity import Frozen

_OFFSET = np.dtype("<i8")


class Encoding(Frozen):
    """Lossless png, or jpeg of Pillow's `quality`, 4:4:4; stored at `resolution` if the loader shrinks them, else 0."""

    kind: Literal["png", "jpeg"]
    quality: int | None = Field(default=None, ge=1, le=100)
    resolution: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _quality_of_jpeg(self) -> Self:
        if (self.quality is None) == (self.kind == "jpeg"):
            allowed, fix = "1 to 100 with jpeg, none with png", "name a quality with jpeg, and none with png"
            raise broken_rule(allowed, value=self.quality, field="quality", fix=fix)
        return self

    def stored_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The stored shape of an image that training sees in `shape`."""
        return (*shape[:-2], self.resolution, self.resolution) if self.resolution else shape

    def __str__(self) -> str:
        how = "PNG, every bit kept" if self.kind == "png" else f"JPEG of quality {self.quality}, 4:4:4"
        return f"{how}, at {self.resolution}x{self.resolution}" if self.resolution else how


def encode_shard(images: NDArray[np.uint8], encoding: Encoding) -> NDArray[np.uint8]:
    """Encode images [n, C, H, W] or clips [n, C, T, H, W], a clip frame by frame, to a shard [bytes]."""
    frames = images if images.ndim == 4 else images.swapaxes(1, 2).reshape(-1, images.shape[1], *images.shape[-2:])
    with ThreadPoolExecutor(usable_cores()) as pool:  # Pillow releases the GIL while it encodes
        pictures = list(pool.map(lambda frame: _encode(frame, encoding), frames))
    offsets = np.cumsum([0, *map(len, pictures)], dtype=_OFFSET)
    return np.concatenate([offsets.view(np.uint8), np.frombuffer(b"".join(pictures), np.uint8)])


def _encode(frame: NDArray[np.uint8], encoding: Encoding) -> bytes:
    from PIL import Image

    assert len(frame) in (1, 3), "pictures are grey or RGB"
    picture = Image.fromarray(frame[0] if len(frame) == 1 else np.ascontiguousarray(frame.transpose(1, 2, 0)))
    content = io.BytesIO()
    if encoding.kind == "png":
        picture.save(content, "PNG")
    else:
        picture.save(content, "JPEG", quality=encoding.quality, subsampling=0)
    return content.getvalue()


class UndecodableError(Exception):
    """A picture or shard differs from its index."""


class EncodedShard:
    """Images of one encoded shard, decoded on access; `shape` is as in training (UndecodableError: invalid)."""

    def __init__(self, content: NDArray[np.uint8], num_images: int, shape: tuple[int, ...], encoding: Encoding) -> None:
        self._shape, self._encoding, self._num_images = shape, encoding, num_images
        self._frames_each = shape[1] if len(shape) == 4 else 1
        table = (num_images * self._frames_each + 1) * _OFFSET.itemsize
        if content.ndim != 1 or content.dtype != np.uint8 or len(content) < table:
            raise UndecodableError(f"{content.dtype} {content.shape} in place of {num_images} encoded images")
        self._offsets = content[:table].view(_OFFSET)
        self._pictures = content[table:]
        if self._offsets[0] != 0 or self._offsets[-1] != len(self._pictures) or (np.diff(self._offsets) < 0).any():
            raise UndecodableError("its table of pictures contradicts itself")

    def __len__(self) -> int:
        return self._num_images

    def __getitem__(self, numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The images of these numbers, [len(numbers), *shape] (UndecodableError: one is damaged)."""
        images = np.empty((len(numbers), *self._shape), np.uint8)
        for place, number in enumerate(numbers):
            if len(self._shape) == 3:
                images[place] = self._decode(number)
            else:
                for frame in range(self._frames_each):
                    images[place, :, frame] = self._decode(number * self._frames_each + frame)
        return images

    def _decode(self, number: int) -> NDArray[np.uint8]:
        from PIL import Image

        channels, height, width = self._shape[0], *self._shape[-2:]
        content = self._pictures[self._offsets[number] : self._offsets[number + 1]].tobytes()
        stored_shape = self._encoding.stored_shape(self._shape)
        try:
            with Image.open(io.BytesIO(content), formats=(self._encoding.kind,)) as file:
                if (file.height, file.width) != stored_shape[-2:] or file.mode != ("L" if channels == 1 else "RGB"):
                    raise UndecodableError(f"picture {number} is {file.mode} of {file.width}x{file.height}")
                if self._encoding.resolution:
                    picture = file.resize((width, height), Image.Resampling.LANCZOS)
                    return np.asarray(picture, np.uint8).reshape(height, width, channels).transpose(2, 0, 1)
                return np.asarray(file, np.uint8).reshape(height, width, channels).transpose(2, 0, 1)
        except (OSError, ValueError, SyntaxError) as error:  # Pillow's decoders raise these
            raise UndecodableError(f"picture {number} cannot be decoded: {' '.join(str(error).split())}") from None
