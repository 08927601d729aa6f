"""CelebA, aligned and cropped faces, from the official zip or the folder it unpacks to.

    python -m trainer data prepare celeba --source celeba/ --resolution 64 --out data/

Z. Liu, P. Luo, X. Wang, X. Tang, Deep Learning Face Attributes in the Wild, ICCV 2015; 202,599 images of 178x218. Needs
`img_align_celeba.zip` (or the folder `img_align_celeba`) and `list_eval_partition.txt`. Up to 64 pixels the central
108x108 are taken, as since the first GANs on these faces; above, the 128x128 around column 89, row 121, as in
Progressive GAN. No labels: attributes and landmarks are not read.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from trainer.data.buckets import fetch
from trainer.data.index import SourceNote
from trainer.data.official import check_count, check_md5, md5_of
from trainer.data.pictures import RESIZER, Box, PictureDecoder
from trainer.data.recipe import Recipe, shard_size
from trainer.data.sources import FileSet, files_in, fingerprint, read_text
from trainer.errors import TrainerError

__all__ = ["celeba_recipe"]

_ARCHIVE, _PARTITION = "img_align_celeba.zip", "list_eval_partition.txt"
_OFFICIAL = MappingProxyType({"00d2c5bc6d35e252742224ab0c1e8fcb": _ARCHIVE})
_NUM_IMAGES = 202_599
_SPLITS: Mapping[str, str] = MappingProxyType({"train": "0", "valid": "1", "test": "2"})
_LARGEST_OF_SMALL_CROP = 64
_SMALL_CROP: Box = (35, 55, 143, 163)
_LARGE_CROP: Box = (25, 57, 153, 185)


def celeba_recipe(
    source: str, out: Path, *, resolution: int, channels: int, split: str, allow_other_hash: bool
) -> Recipe:
    """The recipe of CelebA from a path or URL of the archive, or of a folder that holds it or what it unpacks to.

    `split` is train, valid, test or all. TrainerError: a file is missing, or (unless `allow_other_hash`) not official.
    """
    images, partition, official, content = _opened(source, out, allow_other_hash)
    sizes = {name.rpartition("/")[2]: (name, size) for name, size in images.sizes().items() if name.endswith(".jpg")}
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
        ),
    )


def _opened(source: str, out: Path, allow_other_hash: bool) -> tuple[FileSet, str, str, str]:
    """The images, the partition's text, and of an archive whether it is official and its hash."""
    if source.lower().endswith(".zip"):
        source, _, archive = source.rpartition("/")
        source = source or "."
    else:
        archive = ""
    beside = files_in(source, out)
    names = list(beside.sizes())
    partition = next((name for name in names if name.rpartition("/")[2] == _PARTITION), None)
    if partition is None:
        raise TrainerError(
            place="--source",
            problem=f"there is no {_PARTITION}",
            value=source,
            allowed=f"a folder that holds {_ARCHIVE} (or the folder it unpacks to) and {_PARTITION}",
            fix="put that file there; it is in the folder Eval of CelebA's download",
        )
    text = read_text(beside, partition)
    archive = archive or next((name for name in names if name.rpartition("/")[2] == _ARCHIVE), "")
    if not archive:
        return beside, text, "", ""
    path = fetch(f"{source.rstrip('/')}/{archive}", out)
    md5 = md5_of(path)
    official = check_md5(path, md5, _OFFICIAL, allow_other=allow_other_hash)
    return files_in(str(path), out), text, official, f"md5 {md5}"


def _split(partition: str, split: str, place: str) -> list[str]:
    """Names of a split's images, in the list's order."""
    wanted = _SPLITS.get(split)
    names = []
    for number, line in enumerate(partition.splitlines(), 1):
        words = line.split()
        if not words:
            continue
        if len(words) != 2 or words[1] not in _SPLITS.values():
            raise TrainerError(
                place=place,
                problem=f"line {number} is not one of the partition",
                value=line,
                allowed="000001.jpg 0 (train), 1 (valid) or 2 (test)",
                fix="fetch the file again",
            )
        if wanted in (None, words[1]):
            names.append(words[0])
    if not names:
        raise TrainerError(place=place, problem=f"lists no image of split {split}", fix="fetch the file again")
    return names
