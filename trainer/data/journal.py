"""journal.jsonl: which shards of a preparation are finished, a line synced after each, so that it can be resumed.

It stays beside the index: the same command then finds a shard that went bad later and makes it anew.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from trainer.data.index import INDEX_FILE, Shard
from trainer.data.recipe import Recipe
from trainer.errors import TrainerError
from trainer.files import cannot_be_written, is_intact, try_lock

__all__ = ["JOURNAL_FILE", "Entry", "Journal"]

JOURNAL_FILE = "journal.jsonl"


class _Head(BaseModel):
    """First line: what is being prepared."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str
    recipe_sha256: str


class Entry(BaseModel):
    """A finished shard, with names of the items left out.

    Attributes:
        shard: num_images is 0, and there is no file, where every item was broken.
        labels: of its images; empty where the data set has none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    shard: Shard
    labels: tuple[int, ...] = ()
    skipped: tuple[str, ...] = ()


class Journal:
    """The journal of one folder, held by one process. Use `open`.

    Attributes:
        finished: entries whose files are what they say, by number of the shard.
        damaged: names of files that were finished once and have changed since.
    """

    def __init__(self, file: IO[bytes], finished: dict[int, Entry], damaged: tuple[str, ...]) -> None:
        self._file, self.finished, self.damaged = file, finished, damaged

    @classmethod
    @contextlib.contextmanager
    def open(cls, folder: Path, recipe: Recipe) -> Iterator[Self]:
        """Begins a journal, or goes on with the present one after comparing hashes. Held until the block ends.
        TrainerError: another data set, source or settings; another process is at it; it cannot be written.
        """
        path = folder / JOURNAL_FILE
        if (folder / INDEX_FILE).exists() and not path.exists():
            raise _occupied(folder, "a data set that this command did not begin")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = path.open("a+b")
        except OSError as error:
            raise cannot_be_written(path, error) from error
        with file:
            _lock(file, folder)
            file.seek(0)
            entries = _read(file, recipe, folder)
            finished = {number: entry for number, entry in entries.items() if _intact(folder, entry.shard)}
            damaged = tuple(entry.shard.file for number, entry in entries.items() if number not in finished)
            yield cls(file, finished, damaged)

    def add(self, entry: Entry) -> None:
        """Notes a finished shard (TrainerError: disk full)."""
        _append(self._file, entry)
        self.finished[entry.number] = entry


def _read(file: IO[bytes], recipe: Recipe, folder: Path) -> dict[int, Entry]:
    """The entries of a journal, the last of each shard; one that is new gets its head."""
    head = _Head(dataset=recipe.dataset, recipe_sha256=recipe.sha256)
    content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:  # a line that a crash left half written would swallow the next
        file.truncate(len(whole))
    if not whole:
        _append(file, head)
        return {}
    first, *lines = whole.splitlines()
    try:
        found = _Head.model_validate_json(first)
    except ValidationError:
        raise _occupied(folder, f"a {JOURNAL_FILE} that is damaged") from None
    if found != head:
        raise _occupied(folder, f"{found.dataset}, from another source or with other settings")
    return {entry.number: entry for entry in map(_entry, lines) if entry is not None}


def _append(file: IO[bytes], line: BaseModel) -> None:
    try:
        file.write((line.model_dump_json() + "\n").encode())
        file.flush()
        os.fsync(file.fileno())
    except OSError as error:
        raise cannot_be_written(Path(file.name), error) from error


def _lock(file: IO[bytes], folder: Path) -> None:
    """Two processes in one folder would write into each other's files."""
    with contextlib.suppress(OSError):  # a file system whose locks fail: there it is the user's care
        if try_lock(file) is False:
            raise TrainerError(
                place="--out",
                problem="another process is preparing this folder",
                value=str(folder),
                allowed="one process at a time",
                fix="wait until it is done, or name another folder",
            )


def _entry(line: bytes) -> Entry | None:
    """A line's entry; None for one that is damaged: its shard is made anew."""
    try:
        return Entry.model_validate_json(line)
    except ValidationError:
        return None


def _intact(folder: Path, shard: Shard) -> bool:
    path = folder / shard.file
    return shard.num_images == 0 or is_intact(path, shard.sha256)


def _occupied(folder: Path, by: str) -> TrainerError:
    return TrainerError(
        place="--out",
        problem=f"the folder holds {by}",
        value=str(folder),
        allowed="an empty folder, or one that the same command began",
        fix=f"name another folder, or delete {folder}",
    )
