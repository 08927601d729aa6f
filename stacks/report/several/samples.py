"""Grids of the generators' images, small enough to be inside a page. Only reading and making smaller."""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from components.findings import InputError
from stacks.report.several.groups import Group

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["Grid", "grids_of"]

_ALL_BYTES = 2_000_000
_MOST_PIXELS = 1024


class Grid(NamedTuple):
    """A row's grid: its first seed's, as no run is picked for its looks.

    Attributes:
        label: the row's.
        run: whose it is.
        kind: png, or jpeg where it had to be made smaller.
        image: content of the file.
        width: pixels.
        height: pixels.
        remark: what was done to it; empty for nothing.
    """

    label: str
    run: str
    seed: int
    kind: str
    image: bytes
    width: int
    height: int
    remark: str


def grids_of(groups: Sequence[Group]) -> list[Grid]:
    """A grid for each row whose first run that has one left samples.png.

    Raises:
        InputError: a file that is no image.
    """
    budget = _ALL_BYTES // max(len(groups), 1)
    return [grid for group in groups if (grid := _grid(group, budget)) is not None]


def _grid(group: Group, budget: int) -> Grid | None:
    from PIL import Image, UnidentifiedImageError

    for member in group.members:
        path = member.path / "samples.png"
        if not path.is_file():
            continue
        content = path.read_bytes()
        try:
            with Image.open(io.BytesIO(content)) as image:
                image.load()
                if image.format == "PNG" and len(content) <= budget:
                    return Grid(group.label, member.name, member.record.seed, "png", content, *image.size, "")
                smaller = image.convert("RGB")
        except (UnidentifiedImageError, OSError) as error:
            raise InputError(
                str(path), f"is no image: {error}", fix="write it anew: python -m trainer sample --run-dir DIR"
            ) from None
        smaller.thumbnail((_MOST_PIXELS, _MOST_PIXELS))
        return Grid(group.label, member.name, member.record.seed, "jpeg", *_jpeg(smaller, budget))
    return None


def _jpeg(image: "Image.Image", budget: int) -> tuple[bytes, int, int, str]:
    """A JPEG of at most so many bytes, made smaller until it is."""
    while True:
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=85)
        if buffer.tell() <= budget or min(image.size) < 64:
            remark = f"made smaller for this page: {image.width} x {image.height} pixels, JPEG"
            return buffer.getvalue(), *image.size, remark
        image = image.resize((image.width // 2, image.height // 2))
