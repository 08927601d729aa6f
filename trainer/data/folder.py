"""Any folder of images (or a .zip archive, or a bucket): every picture in and below it, with the first folder's name as
its label if wanted. The licence is the pictures' own.

    python -m trainer data prepare folder --source pictures/ --resolution 64 --out data/
"""

from pathlib import Path

from trainer.data.index import SourceNote
from trainer.data.pictures import RESIZER, SUFFIXES, PictureDecoder
from trainer.data.recipe import Recipe, shard_size
from trainer.data.sources import FileSet, files_in, fingerprint
from trainer.errors import TrainerError

__all__ = ["folder_recipe"]


def folder_recipe(source: str, out: Path, *, resolution: int, channels: int, labels: bool) -> Recipe:
    """The recipe of an image folder, path or URL; the central square is resized. `labels`: the first folder below is
    the class. TrainerError: no such folder, no image, or an image without a class.
    """
    files = files_in(source, out)
    sizes = {name: size for name, size in files.sizes().items() if name.lower().endswith(SUFFIXES)}
    if not sizes:
        raise TrainerError(
            place=files.place,
            problem="holds no image",
            allowed="files that end in " + ", ".join(SUFFIXES),
            fix="name the folder that holds the images, or one above it",
        )
    names = tuple(sizes)
    classes, numbers = _classes(files, names) if labels else ((), ())
    shape = (channels, resolution, resolution)
    return Recipe(
        dataset="folder",
        shape=shape,
        classes=classes,
        items=names,
        items_per_shard=shard_size(shape),
        decode=PictureDecoder(files, names, resolution, channels, labels=numbers),
        note=SourceNote(
            name="a folder of images",
            location=source,
            content=fingerprint(sizes),
            official="not applicable",
            split="all images",
            processing=f"the central square, {RESIZER}, to {resolution}x{resolution}",
            licence="unknown: that of the images",
        ),
    )


def _classes(files: FileSet, names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    bare = [name for name in names if "/" not in name]
    if bare:
        raise TrainerError(
            place="--labels",
            problem="labels are missing: an image lies in no folder that could be its class",
            value=f"{bare[0]} in {files.place}" + (f" and {len(bare) - 1} others" if len(bare) > 1 else ""),
            allowed="CLASS/image.png",
            fix="move every image into a folder named like its class, or leave --labels out",
        )
    of_each = [name.partition("/")[0] for name in names]
    classes = tuple(sorted(set(of_each)))
    number = {name: position for position, name in enumerate(classes)}
    return classes, tuple(number[name] for name in of_each)
