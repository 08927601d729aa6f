"""Recipes of an image folder, with classes by subfolder, and of CelebA, with its own list and crop."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from trainer.core.errors import TrainerError
from trainer.data.checksums import check_count, check_md5, md5_of
from trainer.data.decode import RESIZER, SUFFIXES, Box, PictureDecoder
from trainer.data.image_labels import LABELS_FILE, ImageLabels, image_labels
from trainer.data.index import Recipe, SourceNote, shard_size
from trainer.data.listing import Skipped
from trainer.data.sources import FileSet, fetch, files_in, fingerprint, read_text

_ARCHIVE, _PARTITION = "img_align_celeba.zip", "list_eval_partition.txt"
_CHECKSUMS = MappingProxyType({"00d2c5bc6d35e252742224ab0c1e8fcb": _ARCHIVE})
_NUM_IMAGES = 202_599
_SPLITS: Mapping[str, str] = MappingProxyType({"train": "0", "valid": "1", "test": "2"})
_LARGEST_OF_SMALL_CROP = 64
_SMALL_CROP: Box = (35, 55, 143, 163)
_LARGE_CROP: Box = (25, 57, 153, 185)


def folder_recipe(source: str, out: Path, *, resolution: int, channels: int, labels: bool) -> Recipe:
    """The recipe of an image folder, path or URL, with central squares; `labels`: classes from subfolders or
    dataset.json. TrainerError: no such folder, no image, or as `image_labels`.
    """
    files = files_in(source, out)
    listing = files.listing()
    images = listing.with_suffix(SUFFIXES, "not an image", own=(LABELS_FILE,))
    if not images.files:
        raise TrainerError(
            place=files.place,
            problem="holds no image",
            allowed="files that end in " + ", ".join(SUFFIXES),
            fix="name the folder that holds the images, or one above it",
        )
    names = tuple(images.files)
    if labels:
        labelled = image_labels(files, listing, names)
    else:
        unread = Skipped(kind="labels", reason="not read without --labels", count=1, names=(LABELS_FILE,))
        labelled = ImageLabels((), (), "", (unread,) if LABELS_FILE in listing.files else ())
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
            content="; ".join(filter(None, [fingerprint(images.files), labelled.content])),
            official="not applicable",
            split="all images",
            processing=f"the central square, {RESIZER}, to {resolution}x{resolution}",
            licence="unknown: that of the images",
            skipped=images.skipped + labelled.skipped,
        ),
    )


def celeba_recipe(
    source: str, out: Path, *, resolution: int, channels: int, split: str, allow_other_hash: bool
) -> Recipe:
    """The recipe of CelebA from a path or URL of the archive, or of a folder with it or its content. `split` is train,
    valid, test or all. TrainerError: a file is missing or, unless `allow_other_hash`, not official.
    """
    images, partition, official, content = _open_source(source, out, allow_other_hash)
    listing = images.listing()
    sizes = {name.rpartition("/")[2]: (name, size) for name, size in listing.files.items() if name.endswith(".jpg")}
    if not official:
        official = check_count(source, "images", len(sizes), _NUM_IMAGES, allow_other=allow_other_hash)
        content = fingerprint(dict(sizes.values()))
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
    files = files_in(source, out)
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
    path = fetch(f"{source.rstrip('/')}/{archive}", out)
    md5 = md5_of(path)
    official = check_md5(path, md5, _CHECKSUMS, allow_other=allow_other_hash)
    return files_in(str(path), out), text, official, f"md5 {md5}"


def _split(partition: str, split: str, place: str) -> list[str]:
    """Names of a split's images, in the list's order."""
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
