"""Recipes of an image folder, with classes by subfolder, and of CelebA, with its own list and crop."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from pydantic import BaseModel, Field, StrictInt, ValidationError

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.validation import from_validation
from gangway.trainer.data import sources
from gangway.trainer.data.decode import RESIZER, SUFFIXES, Box, PictureDecoder
from gangway.trainer.data.index import Recipe, SourceNote, shard_size
from gangway.trainer.data.sources import FileSet, Listing, Skipped, Tally, read_text

_LABELS_FILE = "dataset.json"
_MOST_CLASSES = 100_000
_ARCHIVE, _PARTITION = "img_align_celeba.zip", "list_eval_partition.txt"
_CHECKSUMS = MappingProxyType({"00d2c5bc6d35e252742224ab0c1e8fcb": _ARCHIVE})
_NUM_IMAGES = 202_599
_SPLITS: Mapping[str, str] = MappingProxyType({"train": "0", "valid": "1", "test": "2"})
_LARGEST_OF_SMALL_CROP = 64
_SMALL_CROP: Box = (35, 55, 143, 163)
_LARGE_CROP: Box = (25, 57, 153, 185)


def folder_recipe(source: str, out: Path, *, resolution: int, channels: int, labels: bool) -> Recipe:
    """Returns the recipe of an image folder, by path or URL; `labels`: by subfolders or dataset.json (TrainerError)."""
    files = sources.files_in(source, out)
    listing = files.listing()
    images = listing.with_suffix(SUFFIXES, "not an image", own=(_LABELS_FILE,))
    if not images.files:
        raise TrainerError(
            place=files.place,
            problem="holds no image",
            allowed="files that end in " + ", ".join(SUFFIXES),
            fix="name the folder that holds the images, or one above it",
        )
    names = tuple(images.files)
    if labels:
        labelled = (
            _labels_from_file(files, names)
            if _LABELS_FILE in listing.files
            else _labels_by_folder(files, listing, names)
        )
    else:
        unread = Skipped(kind="labels", reason="not read without --labels", count=1, names=(_LABELS_FILE,))
        labelled = _ImageLabels((), (), "", (unread,) if _LABELS_FILE in listing.files else ())
    shape = (channels, resolution, resolution)
    return Recipe(
        dataset="folder",
        shape=shape,
        classes=labelled.classes,
        items=names,
        items_per_shard=shard_size(shape),
        decode=PictureDecoder(files, names, resolution, channels, labels=labelled.numbers),
        note=SourceNote(
            name="a folder of images",
            location=source,
            content="; ".join(filter(None, [sources.fingerprint(images.files), labelled.content])),
            official="not applicable",
            split="all images",
            processing=f"the central square, {RESIZER}, to {resolution}x{resolution}",
            licence="unknown: that of the images",
            skipped=images.skipped + labelled.skipped,
        ),
    )


@dataclass(frozen=True)
class _ImageLabels:
    classes: tuple[str, ...]
    numbers: tuple[int, ...]
    content: str
    skipped: tuple[Skipped, ...]


class _Document(BaseModel):
    labels: tuple[tuple[str, Annotated[StrictInt, Field(ge=0, lt=_MOST_CLASSES)]], ...] | None


def _labels_by_folder(files: FileSet, listing: Listing, names: Sequence[str]) -> _ImageLabels:
    loose = [name for name in names if "/" not in name]
    if loose:
        raise TrainerError(
            place="--labels",
            problem="labels are missing: an image lies in no folder that could be its class",
            value=f"{loose[0]} in {files.place}" + (f" and {len(loose) - 1} others" if len(loose) > 1 else ""),
            allowed="CLASS/image.png",
            fix="move every image into a folder named like its class, or leave --labels out",
        )
    image_classes = [name.partition("/")[0] for name in names]
    classes = tuple(sorted(set(image_classes)))
    if len(classes) == 1:
        raise _one_class_error(files, names)
    tally = Tally()
    for folder in sorted({name.partition("/")[0] for name in listing.files if "/" in name}.difference(classes)):
        tally.skip("class", "has no image", folder)
    number = {name: position for position, name in enumerate(classes)}
    return _ImageLabels(classes, tuple(number[name] for name in image_classes), "", tally.listing().skipped)


def _one_class_error(files: FileSet, names: Sequence[str]) -> TrainerError:
    level, below = "", [names[0].partition("/")[0]]
    while len(below) == 1 and not any(name == level + below[0] for name in names):
        level += f"{below[0]}/"
        below = sorted({name[len(level) :].partition("/")[0] for name in names})
    folders = [each for each in below if any(name.startswith(f"{level}{each}/") for name in names)]
    fix = "name the folder above, which holds one for each class, or leave --labels out"
    if len(folders) > 1:
        shown = ", ".join(folders[:3]) + (f" and {len(folders) - 3} more" if len(folders) > 3 else "")
        is_archive = files.place.lower().endswith(".zip")
        source = f"unpack it, and --source {level}" if is_archive else f"--source {files.place.rstrip('/')}/{level}"
        fix = f"{source.rstrip('/')}, which holds {shown}"
    return TrainerError(
        place="--labels",
        problem="all images would be of one class",
        value=f"{names[0].partition('/')[0]}, {len(names):,} images",
        allowed=f"two or more folders of images in {files.place}",
        fix=fix,
    )


def _labels_from_file(files: FileSet, names: Sequence[str]) -> _ImageLabels:
    place = f"{_LABELS_FILE} of {files.place}"
    try:
        content = files.read(_LABELS_FILE)
        listed = _Document.model_validate_json(content).labels
    except OSError as error:
        raise TrainerError(place=place, problem=f"cannot be read: {error}", fix="copy it again") from None
    except ValidationError as error:
        fix = "--labels reads it as StyleGAN's dataset_tool writes it; rename it to take the folders' names"
        raise from_validation(error, place, fix=fix) from None
    label = {name.replace("\\", "/"): number for name, number in listed or ()}
    missing = [name for name in names if name not in label]
    if missing:
        raise TrainerError(
            place=place,
            problem="labels are missing: an image has none there" if label else "says that the images have no labels",
            value=missing[0] + (f" and {len(missing) - 1:,} others" if len(missing) > 1 else ""),
            allowed='{"labels": [["00000/img00000000.png", 6], ...]}, with every image',
            fix=f"leave --labels out, or rename {_LABELS_FILE} to take the folders' names",
        )
    numbers = tuple(label[name] for name in names)
    used = set(numbers)
    if len(used) == 1:
        raise TrainerError(
            place=place,
            problem="all images are of one class",
            value=numbers[0],
            allowed="two or more classes",
            fix="leave --labels out",
        )
    tally = Tally()
    for name in sorted(label.keys() - set(names)):
        tally.skip("label", "has no image", name)
    for number in range(max(used)):
        if number not in used:
            tally.skip("class", "has no image", str(number))
    classes = tuple(map(str, range(max(used) + 1)))
    return _ImageLabels(
        classes, numbers, f"labels sha256 {hashlib.sha256(content).hexdigest()}", tally.listing().skipped
    )


def celeba_recipe(
    source: str, out: Path, *, resolution: int, channels: int, split: str, allow_other_hash: bool
) -> Recipe:
    """Returns the recipe of CelebA from its archive or folder (TrainerError: a file is missing or not official)."""
    images, partition, official, content = _open_source(source, out, allow_other_hash)
    listing = images.listing()
    sizes = {name.rpartition("/")[2]: (name, size) for name, size in listing.files.items() if name.endswith(".jpg")}
    if not official:
        official = sources.check_count(source, "images", len(sizes), _NUM_IMAGES, allow_other=allow_other_hash)
        content = sources.fingerprint(dict(sizes.values()))
    wanted = _split(partition, split, f"{_PARTITION} of {source}")
    missing = [name for name in wanted if name not in sizes]
    if missing:
        raise TrainerError(
            place=images.place,
            problem=f"{missing[0]} is missing, which {_PARTITION} lists",
            value=f"{len(missing):,} of {len(wanted):,} images are missing",
            allowed="every listed image",
            fix="unpack or copy the images again",
        )
    names = tuple(sizes[name][0] for name in wanted)
    box = _SMALL_CROP if resolution <= _LARGEST_OF_SMALL_CROP else _LARGE_CROP
    shape = (channels, resolution, resolution)
    return Recipe(
        dataset="celeba",
        shape=shape,
        classes=(),
        items=names,
        items_per_shard=shard_size(shape),
        decode=PictureDecoder(images, names, resolution, channels, box),
        note=SourceNote(
            name="CelebA, aligned and cropped",
            location=source,
            content=content,
            official=official,
            split=split,
            processing=f"crop {box} (left, top, right, bottom) of 178x218, {RESIZER}, to {resolution}x{resolution}",
            licence="non-commercial research only: https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
            skipped=listing.skipped,
        ),
    )


def _open_source(source: str, out: Path, allow_other_hash: bool) -> tuple[FileSet, str, str, str]:
    """The images, the partition's text, and an archive's official status and hash."""
    if source.lower().endswith(".zip"):
        source, _, archive = source.rpartition("/")
        source = source or "."
    else:
        archive = ""
    files = sources.files_in(source, out)
    names = list(files.listing().files)
    partition = next((name for name in names if name.rpartition("/")[2] == _PARTITION), None)
    if partition is None:
        raise TrainerError(
            place="--source",
            problem=f"there is no {_PARTITION}",
            value=source,
            allowed=f"a folder that holds {_ARCHIVE} (or the folder it unpacks to) and {_PARTITION}",
            fix="put that file there; it is in the folder Eval of CelebA's download",
        )
    text = read_text(files, partition)
    archive = archive or next((name for name in names if name.rpartition("/")[2] == _ARCHIVE), "")
    if not archive:
        return files, text, "", ""
    path = sources.fetch(f"{source.rstrip('/')}/{archive}", out)
    md5 = sources.md5_of(path)
    official = sources.check_md5(path, md5, _CHECKSUMS, allow_other=allow_other_hash)
    return sources.files_in(str(path), out), text, official, f"md5 {md5}"


def _split(partition: str, split: str, place: str) -> list[str]:
    wanted = _SPLITS.get(split)
    names = []
    for number, line in enumerate(partition.splitlines(), 1):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != 2 or fields[1] not in _SPLITS.values():
            raise TrainerError(
                place=place,
                problem=f"line {number} is not one of the partition",
                value=line,
                allowed="000001.jpg 0 (train), 1 (valid) or 2 (test)",
                fix="fetch the file again",
            )
        if wanted in (None, fields[1]):
            names.append(fields[0])
    if not names:
        raise TrainerError(place=place, problem=f"lists no image of split {split}", fix="fetch the file again")
    return names
