"""Preparing a data set: items are decoded, shards written one by one, the index last.

Whatever stops it leaves the finished shards, and the same command goes on. At most one shard and the chunks under way
are in memory.
"""

import hashlib
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from trainer.data.index import INDEX_FILE, LabelsFile, Shard, ShardIndex
from trainer.data.journal import Entry, Journal
from trainer.data.progress import Progress
from trainer.data.recipe import Decoded, Recipe
from trainer.data.workers import Broken, Result, decode_in_order
from trainer.errors import TrainerError
from trainer.files import atomic_writer, clean_temporaries, is_intact

__all__ = ["prepare"]

_LABELS_FILE = "labels.npy"


def prepare(
    recipe: Recipe, folder: Path, *, workers: int = 1, skip_broken: bool = False, progress: Progress | None = None
) -> ShardIndex:
    """Writes a data set's shards, or what is missing of them; returns the index as written.

    `workers` decode in parallel; `skip_broken` leaves broken items out, and counts them, instead of stopping at the
    first. TrainerError: a broken item, nothing usable, a full disk, or a folder that holds something else.
    """
    with Journal.open(folder, recipe) as journal:
        todo = [number for number in range(recipe.num_shards) if number not in journal.finished]
        damaged = journal.damaged
        if not todo and (folder / INDEX_FILE).exists():
            index = ShardIndex.read(folder)
            if _labels_intact(index, folder):
                if progress is not None:
                    progress.found_all()
                return index
            damaged = (_LABELS_FILE,)
        items = [item for number in todo for item in recipe.items_of(number)]
        if progress is not None:
            progress.go_on(len(recipe.items) - len(items), damaged)
        with closing(_counted(decode_in_order(recipe, items, workers), progress)) as results:
            for number in todo:
                journal.add(_write_shard(recipe, number, results, folder, skip_broken=skip_broken))
        return _finish(recipe, [journal.finished[number] for number in range(recipe.num_shards)], folder)


def _finish(recipe: Recipe, entries: list[Entry], folder: Path) -> ShardIndex:
    shards = [entry.shard for entry in entries if entry.shard.num_images]
    skipped = tuple(name for entry in entries for name in entry.skipped)
    if not shards:
        raise TrainerError(
            place=recipe.note.location or recipe.dataset,
            problem="not one of its files can be used",
            value=f"{len(skipped)} broken files, the first {skipped[0]}",
            fix="name another source; without --skip-broken the message says what is wrong with a file",
        )
    labels = _write_labels(recipe, entries, folder)
    note = recipe.note.model_copy(update={"skipped": skipped})
    index = ShardIndex.of(recipe.dataset, recipe.shape, shards, labels, note)
    clean_temporaries(folder)
    index.write(folder)
    return index


def _counted(results: Generator[Result], progress: Progress | None) -> Generator[Result]:
    with closing(results):
        for result in results:
            yield result
            if progress is not None:
                progress.add(1)


def _write_shard(recipe: Recipe, number: int, results: Generator[Result], folder: Path, *, skip_broken: bool) -> Entry:
    decoded: list[Decoded] = []
    skipped: list[str] = []
    for _ in recipe.items_of(number):
        item, result = next(results)
        if isinstance(result, Decoded):
            decoded.append(result)
        elif skip_broken:
            skipped.append(recipe.items[item])
        else:
            raise _broken(recipe, recipe.items[item], result)
    path = folder / f"{number:05d}.npy"
    images = np.concatenate([part.images for part in decoded]) if decoded else np.empty((0, *recipe.shape), np.uint8)
    assert images.shape[1:] == recipe.shape, "the recipe's own shape"
    assert images.dtype == np.uint8, "shards hold bytes"
    labels = np.concatenate([_labels(part, recipe) for part in decoded]) if decoded else np.empty(0, np.int64)
    sha256 = _write_array(path, images) if len(images) else ""
    shard = Shard(file=path.name, num_images=len(images), sha256=sha256)
    return Entry(number=number, shard=shard, labels=tuple(labels.tolist()), skipped=tuple(skipped))


def _labels(part: Decoded, recipe: Recipe) -> NDArray[np.int64]:
    labels = np.empty(0, np.int64) if part.labels is None else part.labels
    assert len(labels) == (len(part.images) if recipe.classes else 0), "a label for each image, or none at all"
    return labels


def _write_labels(recipe: Recipe, entries: list[Entry], folder: Path) -> LabelsFile | None:
    if not recipe.classes:
        return None
    labels = np.array([label for entry in entries for label in entry.labels], dtype=np.int64)
    return LabelsFile(file=_LABELS_FILE, classes=recipe.classes, sha256=_write_array(folder / _LABELS_FILE, labels))


def _labels_intact(index: ShardIndex, folder: Path) -> bool:
    """Whether the labels are what the index says; the journal vouches for the shards alone."""
    return index.labels is None or is_intact(folder / index.labels.file, index.labels.sha256)


class _Hashing:
    """A file to write to that hashes what should be in it: the disk's own mistakes then show when it is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.digest = file, hashlib.sha256()

    def write(self, content: bytes) -> int:
        self.digest.update(content)
        return self._file.write(content)


def _write_array(path: Path, array: NDArray[np.uint8] | NDArray[np.int64]) -> str:
    """Writes NumPy's own format and returns the file's hash."""
    with atomic_writer(path) as file:
        hashing = _Hashing(file)
        np.lib.format.write_array(hashing, np.ascontiguousarray(array), allow_pickle=False)
    return hashing.digest.hexdigest()


def _broken(recipe: Recipe, name: str, broken: Broken) -> TrainerError:
    source = recipe.note.location
    return TrainerError(
        place=f"{source.rstrip('/')}/{name}" if source else name,
        problem=f"cannot be used: {broken.why}",
        fix="mend or remove it, or add --skip-broken to leave such files out; finished shards are kept",
    )
