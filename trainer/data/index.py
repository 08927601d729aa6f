"""Recipes of data sets, and the index (index.json) of a folder of shards: source and hash of every file."""

import hashlib
import json
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError, field_validator, model_validator

from gangway.trainer.config.parts.fields import RESOLUTIONS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.metric_names import NONE
from gangway.trainer.core.errors import broken_rule
from gangway.trainer.core.files import read_input, write_atomically
from gangway.trainer.core.host import program
from gangway.trainer.core.validation import from_validation
from gangway.trainer.data.encoding import Encoding
from gangway.trainer.data.sources import Skipped, Tally, get_kind
from gangway.trainer.records.quantity import Frozen

INDEX_FILE = "index.json"
_SHAPE_LENGTHS = (3, 4)
_FIX = "restore the file from a copy, or prepare the data set anew in another folder"
_SHARD_BYTES = 128 << 20
_MOST_IMAGES = 16384


class Shard(Frozen):
    """One file of images or clips."""

    file: str
    num_images: int
    sha256: str


class LabelsFile(Frozen):
    """The file of all labels, [num_images] int64 in the order of the images, indices into `classes`."""

    file: str
    classes: tuple[str, ...]
    sha256: str


class SourceNote(Frozen):
    """Origin and processing of the images."""

    name: str
    location: str = ""  # path or URL as given; empty for images in a Python package
    content: str  # identifies the content: hash of the archive, or of file names and sizes
    official: str  # whether it is the official one, and how that is known
    split: str
    processing: str  # crop, resizing, choice of frames
    licence: str  # terms of the source, for the reader to keep
    skipped: tuple[Skipped, ...] = ()  # other entries of the source, and unreadable files

    @field_validator("skipped", mode="before")
    @classmethod
    def _migrate_names(cls, value: Any) -> Any:
        if not (value and isinstance(value, list) and all(isinstance(each, str) for each in value)):
            return value
        tally = Tally()
        for name in value:
            tally.skip(get_kind(name), "cannot be used", name)
        return tally.listing().skipped


class ShardIndex(Frozen):
    """Content of a folder of shards."""

    version: Literal[1, 2, 3] = 2
    dataset: str
    # channels, height, width of an image; channels, frames, height, width of a clip
    shape: tuple[int, ...] = Field(min_length=min(_SHAPE_LENGTHS), max_length=max(_SHAPE_LENGTHS))
    num_images: int
    sha256: str  # over all shards' hashes in order, and the labels' if any
    labels: LabelsFile | None = None
    source: SourceNote | None = None  # None in version 1
    encoding: Encoding | None = None  # of pictures, in version 3; None for raw bytes, [n, *shape]
    shards: tuple[Shard, ...]

    @model_validator(mode="before")
    @classmethod
    def _migrate_version_1(cls, values: Any) -> Any:
        """Version 1 called the shape image_shape."""
        if isinstance(values, dict) and values.get("version") == 1 and "image_shape" in values:
            return {
                **{key: value for key, value in values.items() if key != "image_shape"},
                "shape": values["image_shape"],
            }
        return values

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        expected = _dataset_sha256(self.shards, self.labels)
        if self.sha256 != expected:
            allowed = f"{expected}, that over the files' hashes"
            raise broken_rule(allowed, value=self.sha256, field="sha256", fix=_FIX)
        sum_of_shards = sum(shard.num_images for shard in self.shards)
        if self.num_images != sum_of_shards:
            allowed = f"{sum_of_shards}, as many as the shards have together"
            raise broken_rule(allowed, value=self.num_images, field="num_images", fix=_FIX)
        if (self.encoding is not None) != (self.version == 3):
            allowed = "3 where the pictures are encoded, 1 or 2 where they are not"
            raise broken_rule(allowed, value=self.version, field="version", fix=_FIX)
        return self

    def hashed_files(self) -> Iterator["HashedFile"]:
        """Every file of the data set, the labels first."""
        if self.labels is not None:
            yield HashedFile("file of labels", self.labels.file, self.labels.sha256)
        yield from (HashedFile("shard", shard.file, shard.sha256) for shard in self.shards)

    @property
    def num_classes(self) -> int:
        """Number of classes; 0 without labels."""
        return len(self.labels.classes) if self.labels else 0

    @classmethod
    def of(cls, recipe: "Recipe", shards: Sequence[Shard], labels: LabelsFile | None, source: SourceNote) -> Self:
        """The index of a recipe's files."""
        return cls(
            version=2 if recipe.encoding is None else 3,
            dataset=recipe.dataset,
            shape=recipe.shape,
            num_images=sum(shard.num_images for shard in shards),
            sha256=_dataset_sha256(shards, labels),
            labels=labels,
            source=source,
            encoding=recipe.encoding,
            shards=tuple(shards),
        )

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a folder's index (TrainerError: missing or damaged)."""
        path = folder / INDEX_FILE
        fix = f"prepare one: {program()} data prepare DATASET --out {shlex.quote(str(folder))}"
        try:
            return cls.model_validate_json(read_input(path, fix, missing="no data set here"))
        except ValidationError as error:
            raise from_validation(error, str(path)) from None

    def write(self, folder: Path) -> None:
        """Write the index, which completes the folder (TrainerError: disk full or not writable)."""
        # Leave an empty field out, so that earlier versions can read the folder.
        excluded = {"encoding"} if self.encoding is None else None
        write_atomically(folder / INDEX_FILE, (self.model_dump_json(indent=2, exclude=excluded) + "\n").encode())


def _dataset_sha256(shards: Sequence[Shard], labels: LabelsFile | None) -> str:
    hashes = [shard.sha256 for shard in shards] + ([labels.sha256] if labels else [])
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


class HashedFile(NamedTuple):
    """A file and hash of the index; `kind` is its name in messages."""

    kind: str
    name: str
    sha256: str


class BrokenItemError(Exception):
    """An unusable item; the message says why, without the item's name."""


@dataclass(frozen=True)
class Decoded:
    """One decoded item: images [n, C, H, W] or [n, C, T, H, W] uint8; labels [n] int64, None without any."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Recipe:
    """How a data set is made. Picklable."""

    dataset: str
    shape: tuple[int, ...]  # of one image
    classes: tuple[str, ...]  # of the labels; empty for none
    items: tuple[str, ...]  # names for messages, in the order of the images
    items_per_shard: int
    decode: Callable[[int], Decoded]  # images of an item by number, in `stored_shape`; raises BrokenItemError
    note: SourceNote
    encoding: Encoding | None = None

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Shape of an image as stored; the loader shrinks it to `shape`."""
        return self.shape if self.encoding is None else self.encoding.stored_shape(self.shape)

    @property
    def num_shards(self) -> int:
        """Number of image files."""
        return -(-len(self.items) // self.items_per_shard)

    def get_items(self, shard: int) -> range:
        """Item numbers of one shard."""
        start = shard * self.items_per_shard
        return range(start, min(start + self.items_per_shard, len(self.items)))

    @property
    def sha256(self) -> str:
        """Hash of everything that decides the shards' content, without the source's location."""
        parts: dict[str, object] = {
            "dataset": self.dataset,
            "shape": self.shape,
            "classes": self.classes,
            "items": self.items,
            "items_per_shard": self.items_per_shard,
            "note": self.note.model_dump(exclude={"location", "skipped"}),
        }
        if self.encoding is not None:  # absent for raw bytes, so that folders from earlier versions can continue
            parts["encoding"] = self.encoding.model_dump()
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def shard_size(shape: tuple[int, ...]) -> int:
    """Images per file of at most 128 MiB, the memory needed to prepare one."""
    return max(1, min(_MOST_IMAGES, _SHARD_BYTES // int(np.prod(shape))))


def picture_size(config: TrainConfig, given: Collection[str], folder: Path) -> Mapping[str, object]:
    """Returns a preset's changes for the pictures in `folder`, without `given` fields (TrainerError: damaged)."""
    if config.dataset != "folder" or not (folder / INDEX_FILE).exists():
        return {}
    index = ShardIndex.read(folder)
    channels, *_, height, width = index.shape
    if index.dataset != "folder" or height != width or height not in RESOLUTIONS:
        return {}
    changes: dict[str, object] = {"resolution": height, "channels": channels}
    if channels == 1:
        changes["augment"] = ",".join(part for part in config.augment.split(",") if part != "color") or NONE
    return {name: value for name, value in changes.items() if name not in given and value != getattr(config, name)}
