"""Prepare a data set in parallel processes; journal.jsonl lists finished shards, to continue after interruptions."""

import contextlib
import hashlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from gangway.trainer.core.console import Progress
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.files import atomic_writer, cannot_be_written, clean_temporaries, is_intact, try_lock
from gangway.trainer.core.host import memory_limit
from gangway.trainer.core.regular_files import open_file
from gangway.trainer.data.encoding import encode_shard
from gangway.trainer.data.index import INDEX_FILE, BrokenItemError, Decoded, LabelsFile, Recipe, Shard, ShardIndex
from gangway.trainer.data.sources import Tally, get_kind
from gangway.trainer.records.folders import visible
from gangway.trainer.records.quantity import Frozen

JOURNAL_FILE = "journal.jsonl"
_CHUNKS_AHEAD_PER_WORKER = 3
_CHUNKS_PER_SHARD = 16
_LARGEST_CHUNK = 64
_LABELS_FILE = "labels.npy"
MOST_BYTES = 8 << 30  # Memory for one item: a file of 2 GiB, and 1 GiB of a film as frames and as clips


class _Head(Frozen):
    dataset: str
    recipe_sha256: str


def foreign_file(folder: Path) -> str:
    """The name of a file or folder that is not of a preparation; empty if there is none."""
    if not folder.is_dir() or any((folder / name).exists() for name in (JOURNAL_FILE, INDEX_FILE)):
        return ""
    return next(visible(folder), "")


class Entry(Frozen):
    """A finished shard with its labels and skipped items (name, reason); no file if all items were broken."""

    number: int
    shard: Shard
    labels: tuple[int, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()

    def is_intact(self, folder: Path) -> bool:
        """Whether the shard has its hash."""
        return self.shard.num_images == 0 or is_intact(folder / self.shard.file, self.shard.sha256)


class Journal:
    """The journal of one folder, held by one process, with intact entries by shard and damaged files. Use `open`."""

    def __init__(self, file: IO[bytes], finished: dict[int, Entry], damaged: tuple[str, ...]) -> None:
        self._file, self.finished, self.damaged = file, finished, damaged

    @classmethod
    @contextlib.contextmanager
    def open(cls, folder: Path, recipe: Recipe) -> Iterator[Self]:
        """Start or continue a journal until the block ends (TrainerError: foreign content, in use, not writable)."""
        path = folder / JOURNAL_FILE
        if (folder / INDEX_FILE).exists() and not path.exists():
            raise _occupied_error(folder, "a data set that this command did not begin")
        if not path.exists() and (foreign := foreign_file(folder)):
            problem = f"the folder holds other files, such as {foreign}, and nothing is written among them"
            allowed = "a folder that is empty or not there, or one that the same command began"
            raise _out_error(folder, problem, allowed, "name another folder")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = open_file(path, "a+b")
        except OSError as error:
            raise cannot_be_written(path, error) from error
        with file:
            _lock(file, folder)
            file.seek(0)
            entries = _read(file, recipe, folder)
            finished = {number: entry for number, entry in entries.items() if entry.is_intact(folder)}
            damaged = tuple(entry.shard.file for number, entry in entries.items() if number not in finished)
            yield cls(file, finished, damaged)

    def add(self, entry: Entry) -> None:
        """Record a finished shard (TrainerError: disk full)."""
        _append(self._file, entry)
        self.finished[entry.number] = entry


def _read(file: IO[bytes], recipe: Recipe, folder: Path) -> dict[int, Entry]:
    head = _Head(dataset=recipe.dataset, recipe_sha256=recipe.sha256)
    content = file.read()
    complete = content[: content.rfind(b"\n") + 1]
    if complete != content:  # a partial line of a crash would swallow the next
        file.truncate(len(complete))
    if not complete:
        _append(file, head)
        return {}
    first, *lines = complete.splitlines()
    try:
        found = _Head.model_validate_json(first)
    except ValidationError:
        raise _occupied_error(folder, f"a {JOURNAL_FILE} that is damaged") from None
    if found != head:
        raise _occupied_error(folder, f"{found.dataset}, from another source or with other settings")
    entries = {}
    for line in lines:
        with contextlib.suppress(ValidationError):
            entry = Entry.model_validate_json(line)
            entries[entry.number] = entry
    return entries


def _append(file: IO[bytes], line: BaseModel) -> None:
    try:
        file.write((line.model_dump_json() + "\n").encode())
        file.flush()
        os.fsync(file.fileno())
    except OSError as error:
        raise cannot_be_written(Path(file.name), error) from error


def _lock(file: IO[bytes], folder: Path) -> None:
    with contextlib.suppress(OSError):  # on a file system with broken locks the user has to take care
        if try_lock(file) is False:
            fix = "wait until it is done, or name another folder"
            raise _out_error(folder, "another process is preparing this folder", "one process at a time", fix)


def _occupied_error(folder: Path, content: str) -> TrainerError:
    allowed, fix = "an empty folder, or one that the same command began", f"name another folder, or move {folder} aside"
    return _out_error(folder, f"the folder holds {content}", allowed, fix)


def _out_error(folder: Path, problem: str, allowed: str, fix: str) -> TrainerError:
    return TrainerError(place="--out", problem=problem, value=str(folder), allowed=allowed, fix=fix)


_recipe: Recipe  # A worker process's recipe, set once by `_init_worker`


@dataclass(frozen=True)
class Broken:
    """An unusable item."""

    why: str

    @property
    def reason(self) -> str:
        """The reason without the item's details, which follow a colon."""
        return self.why.partition(":")[0]


@dataclass(frozen=True)
class _Failure:
    """A fatal error of a worker as a TrainerError's fields, since exceptions do not pickle well."""

    fields: dict[str, Any]


Result = tuple[int, Decoded | Broken]
_Message = tuple[int, Decoded | Broken | _Failure]


def decode_in_order(recipe: Recipe, items: Sequence[int], workers: int) -> Generator[Result]:
    """Each item's number and result; 1 worker is this process (TrainerError: a process was killed, or the source)."""
    if workers <= 1:
        yield from (_unwrap((item, _decode(recipe, item))) for item in items)
        return
    size = max(1, min(_LARGEST_CHUNK, recipe.items_per_shard // _CHUNKS_PER_SHARD))
    chunks = iter([items[start : start + size] for start in range(0, len(items), size)])
    # spawn: forking a process with threads, such as torch's, may hang.
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _init_worker, (recipe,))
    pending: deque[Future[list[_Message]]] = deque()
    try:
        while True:
            while len(pending) < workers * _CHUNKS_AHEAD_PER_WORKER and (chunk := next(chunks, None)) is not None:
                pending.append(pool.submit(_decode_chunk, chunk))
            if not pending:
                return
            yield from map(_unwrap, pending.popleft().result())
    except BrokenProcessPool:
        for worker in set(multiprocessing.active_children()) - others:
            worker.kill()  # workers ignore the pool's SIGTERM
        raise TrainerError(
            place="--workers",
            problem="a decoding process was killed; most often memory is short",
            value=workers,
            allowed="as many processes as fit into memory",
            fix=f"--workers {max(1, workers // 2)}; finished shards are kept",
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _init_worker(recipe: Recipe) -> None:
    global _recipe
    _recipe = recipe
    # Signals to the group reach workers too: one that dies half-way through a result would block the pool forever.
    # The parent ends it between two results.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Otherwise a worker waits forever for the pool's queue when its parent is killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "only workers come here"
    parent.join()
    os._exit(1)


def _unwrap(message: _Message) -> Result:
    item, result = message
    if isinstance(result, _Failure):
        raise TrainerError(**result.fields)
    return item, result


def _decode_chunk(items: Sequence[int]) -> list[_Message]:
    return [(item, _decode(_recipe, item)) for item in items]


def _decode(recipe: Recipe, item: int) -> Decoded | Broken | _Failure:
    try:
        with memory_limit(MOST_BYTES):
            return recipe.decode(item)
    except BrokenItemError as error:
        return Broken(str(error))
    except MemoryError:
        return Broken(f"takes more than {MOST_BYTES >> 30} GiB of memory to decode, or than there is")
    except TrainerError as error:
        return _Failure(error.fields())


def prepare(
    recipe: Recipe, folder: Path, *, workers: int = 1, skip_broken: bool = False, progress: Progress | None = None
) -> ShardIndex:
    """Writes the missing shards and returns the index (TrainerError: broken items, a full disk, or foreign files)."""
    if not skip_broken and (lost := next((each for each in recipe.note.skipped if each.is_broken), None)):
        raise _broken(recipe, lost.names[0], f"{lost.kind}: {lost.reason}")
    with Journal.open(folder, recipe) as journal:
        todo = [number for number in range(recipe.num_shards) if number not in journal.finished]
        damaged = journal.damaged
        if not todo and (folder / INDEX_FILE).exists():
            index = ShardIndex.read(folder)
            # The journal only covers the shards.
            if index.labels is None or is_intact(folder / index.labels.file, index.labels.sha256):
                if progress is not None:
                    progress.was_complete = True
                return index
            damaged = (_LABELS_FILE,)
        items = [item for number in todo for item in recipe.get_items(number)]
        if progress is not None:
            progress.go_on(len(recipe.items) - len(items), damaged)
        with closing(_with_progress(decode_in_order(recipe, items, workers), progress)) as results:
            for number in todo:
                journal.add(_write_shard(recipe, number, results, folder, skip_broken=skip_broken))
        return _finish(recipe, [journal.finished[number] for number in range(recipe.num_shards)], folder)


def _finish(recipe: Recipe, entries: list[Entry], folder: Path) -> ShardIndex:
    shards = [entry.shard for entry in entries if entry.shard.num_images]
    skipped = [item for entry in entries for item in entry.skipped]
    if not shards:
        raise TrainerError(
            place=recipe.note.location or recipe.dataset,
            problem="not one of its files can be used",
            value=f"{len(skipped)} broken files, the first {skipped[0][0]}",
            fix="name another source; without --skip-broken the message says what is wrong with a file",
        )
    labels = None
    if recipe.classes:
        numbers = np.array([label for entry in entries for label in entry.labels], dtype=np.int64)
        sha256 = _write_array(folder / _LABELS_FILE, numbers)
        labels = LabelsFile(file=_LABELS_FILE, classes=recipe.classes, sha256=sha256)
    tally = Tally(recipe.note.skipped)
    for name, reason in skipped:
        tally.skip(get_kind(name), reason, name)
    note = recipe.note.model_copy(update={"skipped": tally.listing().skipped})
    index = ShardIndex.of(recipe, shards, labels, note)
    clean_temporaries(folder)
    index.write(folder)
    return index


def _with_progress(results: Generator[Result], progress: Progress | None) -> Generator[Result]:
    with closing(results):
        for result in results:
            yield result
            if progress is not None:
                progress.add(1)


def _write_shard(recipe: Recipe, number: int, results: Generator[Result], folder: Path, *, skip_broken: bool) -> Entry:
    decoded: list[Decoded] = []
    skipped: list[tuple[str, str]] = []
    for _ in recipe.get_items(number):
        item, result = next(results)
        if isinstance(result, Decoded):
            decoded.append(result)
        elif skip_broken:
            skipped.append((recipe.items[item], result.reason))
        else:
            raise _broken(recipe, recipe.items[item], result.why)
    path = folder / f"{number:05d}.npy"
    shape = recipe.stored_shape
    images = np.concatenate([part.images for part in decoded]) if decoded else np.empty((0, *shape), np.uint8)
    assert images.shape[1:] == shape, "the recipe's own shape"
    assert images.dtype == np.uint8, "shards hold bytes"
    labels = np.concatenate([np.empty(0, np.int64), *(part.labels for part in decoded if part.labels is not None)])
    assert len(labels) == (len(images) if recipe.classes else 0), "a label for each image, or none at all"
    content = images if recipe.encoding is None else encode_shard(images, recipe.encoding)
    sha256 = _write_array(path, content) if len(images) else ""
    shard = Shard(file=path.name, num_images=len(images), sha256=sha256)
    return Entry(number=number, shard=shard, labels=tuple(labels.tolist()), skipped=tuple(skipped))


class _Hashing:
    """Hashes what is written, so that disk errors show when the file is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.digest = file, hashlib.sha256()

    def write(self, content: bytes) -> int:
        self.digest.update(content)
        return self._file.write(content)


def _write_array(path: Path, array: NDArray[np.uint8] | NDArray[np.int64]) -> str:
    with atomic_writer(path) as file:
        hashing = _Hashing(file)
        np.lib.format.write_array(hashing, np.ascontiguousarray(array), allow_pickle=False)
    return hashing.digest.hexdigest()


def _broken(recipe: Recipe, name: str, why: str) -> TrainerError:
    source = recipe.note.location
    return TrainerError(
        place=f"{source.rstrip('/')}/{name}" if source else name,
        problem=f"cannot be used: {why}",
        fix="correct it or move it elsewhere, or add --skip-broken to leave such files out; finished shards are kept",
    )
