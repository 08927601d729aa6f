"""Data sets as training reads them: memory-mapped shards of raw uint8 or encoded pictures, prepared if missing."""

import shlex
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from gangway.trainer.config.refusals import prepare_command
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.console import Progress
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.files import sha256_of
from gangway.trainer.core.host import program, usable_cores
from gangway.trainer.core.regular_files import check_file, open_file
from gangway.trainer.data.encoding import EncodedShard, UndecodableError
from gangway.trainer.data.index import (
    INDEX_FILE,
    HashedFile,
    Recipe,
    Shard,
    ShardIndex,
)
from gangway.trainer.data.loader import check_domains
from gangway.trainer.data.packaged_data import clips_recipe, day_dusk_recipe, digits_recipe, photos_recipe
from gangway.trainer.data.prepare import foreign_file, prepare

if TYPE_CHECKING:
    from gangway.trainer.distributed.world import World


class _Images(Protocol):
    """The images of one shard: an array [n, *shape], or what decodes to one."""

    def __len__(self) -> int: ...

    def __getitem__(self, numbers: NDArray[np.int64], /) -> NDArray[np.uint8]: ...


class ShardedImages:
    """A folder of shards, read through memory maps. Use `open`."""

    def __init__(self, index: ShardIndex, maps: list[_Images], labels: NDArray[np.int64] | None, place: str) -> None:
        self.index = index
        self._maps, self._labels, self._place = maps, labels, place
        self._starts = np.cumsum([0, *(len(part) for part in maps)])

    @classmethod
    def open(cls, folder: Path, *, verify: bool = True) -> Self:
        """Opens the shards; without `verify` only shapes and the labels' hash are checked (TrainerError: damage)."""
        index = ShardIndex.read(folder)
        files = list(index.hashed_files())
        if verify:
            with ThreadPoolExecutor(usable_cores()) as pool:
                list(pool.map(lambda each: verify_file(folder, each), files))
        elif index.labels is not None:
            verify_file(folder, files[0])
        labels = None if index.labels is None else _labels(folder / index.labels.file)
        maps = [_mapped(folder, index, shard) for shard in index.shards]
        return cls(index, maps, labels, str(folder / INDEX_FILE))

    @property
    def folder(self) -> Path:
        """The folder of the shards, as given."""
        return Path(self._place).parent

    def __len__(self) -> int:
        return self.index.num_images

    @property
    def num_classes(self) -> int:
        """Number of classes; 0 without labels."""
        return self.index.num_classes

    def take(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Copy these images, [len(indices), *shape], decoded in the calling thread (TrainerError: damaged)."""
        images = np.empty((len(indices), *self.index.shape), dtype=np.uint8)
        shard_of = np.searchsorted(self._starts, indices, side="right") - 1
        for number in np.unique(shard_of):
            in_shard = shard_of == number
            try:
                images[in_shard] = self._maps[number][indices[in_shard] - self._starts[number]]
            except UndecodableError as error:
                raise _undecodable(self.folder, self.index.shards[number], error) from None
        return images

    def mirrored(self) -> "ShardedImages":
        """Twice the images: mirrored left to right from `len(self)` on."""
        return _Mirrored(self.index, self._maps, self._labels, self._place)

    def labels(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Labels of these images, [len(indices)], in 0..index.num_classes-1 (TrainerError: no labels)."""
        if self._labels is None:
            raise _labels_missing(self._place, self.index.dataset)
        return self._labels[indices]


class _Mirrored(ShardedImages):
    def __len__(self) -> int:
        return 2 * super().__len__()

    def take(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        numbers = super().__len__()
        images = super().take(indices % numbers)
        mirrored = indices >= numbers
        images[mirrored] = images[mirrored][..., ::-1]
        return images

    def labels(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        return super().labels(indices % super().__len__())


def _labels_missing(place: str, dataset: str) -> TrainerError:
    return TrainerError(
        place=place,
        problem="labels are missing: these shards were prepared without any",
        value=f"{dataset}, 0 classes",
        allowed="a data set with labels",
        fix="prepare it with labels (folder: --labels) in another folder and name that with --data, or train without "
        "classes: --num-classes 0",
    )


def _labels(path: Path) -> NDArray[np.int64]:
    with open_file(path) as file:
        labels: NDArray[np.int64] = np.load(file)
    return labels


def _mapped(folder: Path, index: ShardIndex, shard: Shard) -> _Images:
    try:
        check_file(folder / shard.file)
        images: NDArray[np.uint8] = np.load(folder / shard.file, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        verify_file(folder, HashedFile("shard", shard.file, shard.sha256))
        raise
    if index.encoding is not None:
        try:
            return EncodedShard(images, shard.num_images, index.shape, index.encoding)
        except UndecodableError as error:
            raise _undecodable(folder, shard, error) from None
    if images.shape != (shard.num_images, *index.shape) or images.dtype != np.uint8:
        verify_file(folder, HashedFile("shard", shard.file, shard.sha256))
        raise TrainerError(
            place=str(folder / INDEX_FILE),
            problem=f"{shard.file} has another shape than it says",
            value=f"{images.dtype} {images.shape}",
            allowed=f"uint8 {(shard.num_images, *index.shape)}",
            fix="prepare the data set again, in another folder",
        )
    return images


def _undecodable(folder: Path, shard: Shard, error: UndecodableError) -> TrainerError:
    try:
        verify_file(folder, HashedFile("shard", shard.file, shard.sha256))
    except TrainerError as damage:
        return damage
    return TrainerError(
        place=str(folder / shard.file),
        problem="shard cannot be decoded, although it is as it was written",
        value=str(error),
        allowed="pictures as the index says",
        fix="prepare the data set again, in another folder",
    )


def verify_file(folder: Path, file: HashedFile) -> None:
    """Compare a file with its hash (TrainerError: missing or corrupt)."""
    path = folder / file.name
    found = sha256_of(path) if path.is_file() else ""
    if found != file.sha256:
        raise TrainerError(
            place=str(path),
            problem=f"{file.kind} is corrupt: its hash is not the one in the index"
            if found
            else f"{file.kind} is missing",
            value=f"sha256 {found}" if found else "no such file",
            allowed=f"sha256 {file.sha256}",
            fix=f"the command that prepared {folder} makes it anew and keeps the others; or move it aside first",
        )


SHIPPED: Mapping[str, Callable[[TrainConfig], Recipe]] = MappingProxyType(
    {
        "digits": lambda config: digits_recipe(resolution=config.resolution),
        "photos": lambda config: photos_recipe(resolution=config.resolution, channels=config.channels),
        "day-dusk": lambda config: day_dusk_recipe(resolution=config.resolution, channels=config.channels),
        "clips": lambda config: clips_recipe(
            resolution=config.resolution, frames=config.frames, channels=config.channels
        ),
    }
)
"""Data sets that ship in Python packages and need no source."""


def check_data(config: TrainConfig, folder: Path) -> None:
    """Check a run's data without hashes and writes (TrainerError: as `prepare_if_missing` and `open_matching`)."""
    if (folder / INDEX_FILE).exists():
        open_matching(config, folder, verify=False)
    else:
        _check_preparable(config, folder)


def prepare_if_missing(config: TrainConfig, folder: Path) -> None:
    """Write the shards unless there is an index (TrainerError: not writable, foreign files, or no source)."""
    if (folder / INDEX_FILE).exists():
        return
    _check_preparable(config, folder)
    recipe = SHIPPED[config.dataset](config)
    progress = Progress(recipe.dataset, len(recipe.items), out=sys.stderr)  # stdout may be for JSON alone
    try:
        prepare(recipe, folder, progress=progress)
    except TrainerError as error:
        raise error.at("--data") if error.place == "--out" else error from None
    finally:
        progress.close()


def _check_preparable(config: TrainConfig, folder: Path) -> None:
    if foreign := foreign_file(folder):
        pictures = config.model_copy(update={"dataset": "folder", "frames": 1})
        out = _sibling(folder, pictures)
        raise TrainerError(
            place="--data",
            problem=f"holds no data set but other files, such as {foreign}, and nothing is written among them",
            value=str(folder),
            allowed="a folder of shards, or one that is empty or not there",
            fix=f"for pictures: `{prepare_command(pictures, out, source=str(folder))}`, then "
            f"`{program()} train --preset few-images --data {shlex.quote(str(out))}`; "
            f"for {config.dataset}: name another folder",
        )
    if config.dataset not in SHIPPED:
        raise TrainerError(
            place="--data",
            problem=f"holds no data set, and {config.dataset} does not prepare itself: it needs a source",
            value=str(folder),
            allowed="a folder of shards",
            fix=prepare_command(config, folder),
        )


def open_matching(config: TrainConfig, folder: Path, *, verify: bool = True) -> ShardedImages:
    """Open the shards and compare them with the configuration, and with their hashes if `verify` (TrainerError)."""
    images = ShardedImages.open(folder, verify=verify)
    found, wanted = (images.index.dataset, images.index.shape), (config.dataset, config.image_shape)
    if found != wanted:
        raise TrainerError(
            place=str(folder / INDEX_FILE),
            problem="these shards hold another data set than the configuration names",
            value=f"{found[0]} {found[1]}",
            allowed=f"{wanted[0]} {wanted[1]}",
            fix=f"name another folder with --data; to prepare one: {prepare_command(config, _sibling(folder, config))}",
        )
    if config.translates:
        check_domains(images, str(folder / INDEX_FILE))
    classes = images.index.num_classes
    if config.num_classes and not classes:
        raise _labels_missing(str(folder / INDEX_FILE), config.dataset)
    if config.num_classes not in (0, classes):
        raise TrainerError(
            place=str(folder / INDEX_FILE),
            problem="these shards have another number of classes than the configuration",
            value=classes,
            allowed=str(config.num_classes),
            fix=f"--num-classes {classes}, or 0 to train without classes",
        )
    return images


def open_on_all(config: TrainConfig, folder: Path, world: "World") -> ShardedImages:
    """`open_matching` on every worker, with its errors, without hashes: `Verification` compares them later."""
    return world.run_on_all(lambda: open_matching(config, folder, verify=False))


def _sibling(folder: Path, config: TrainConfig) -> Path:
    named = folder if folder.name not in ("", "..") else folder.resolve()
    return named.with_name(f"{named.name}-{config.dataset}-{'x'.join(map(str, config.image_shape))}")
