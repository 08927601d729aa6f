"""Shards compared with their hashes beside the training: once for a node and a version of a data set, in threads of the
node's first worker, so that no worker waits in a collective while a large data set is read.

What was compared is remembered on the node, in a folder of this user's below the one for temporary files: of another
index, another file or a file that was written since, nothing is remembered.
"""

import hashlib
import os
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from trainer.core.cores import usable_cores
from trainer.core.errors import TrainerError
from trainer.core.files import write_atomically
from trainer.core.regular_files import read_file
from trainer.data.shards import HashedFile, ShardedImages, verify_file
from trainer.distributed.world import World

_SHARE_OF_CORES = 4
"""One of so many reads beside the training."""
_POLL_SEC = 0.2
_PATIENCE_SEC = 5.0


class Verified(BaseModel):
    """When a node's data was compared with its hashes, and by whom.

    Attributes:
        key: of the files as they were then.
        at: seconds since 1970.
        host: the machine.
        sec: that it took.
        remembered: by an earlier session; nothing was read in this one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    at: float
    host: str
    sec: float
    remembered: bool = False


class Verification:
    """Of one session; as a context it reads while the block runs. All workers have one, and call `finish` together."""

    def __init__(self, data: ShardedImages, world: World) -> None:
        self._data, self._world = data, world
        self._outcome: Verified | None = None
        self._failure: Exception | None = None
        self._stop = threading.Event()
        reads = world.local_rank == 0
        self._thread = threading.Thread(target=self._read, name="verification", daemon=True) if reads else None

    def __enter__(self) -> Self:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_PATIENCE_SEC)

    @property
    def outcome(self) -> Verified | None:
        """What this node's first worker has found intact; None before, and on the others."""
        return self._outcome

    @property
    def failed(self) -> bool:
        """Whether a file is not what the index promises, or cannot be read."""
        return self._failure is not None

    def check(self) -> None:
        """Raises what was found: TrainerError for a file that is missing or corrupt."""
        if self._failure is not None:
            raise self._failure

    def finish(self, stop: Callable[[], bool] = lambda: False) -> bool:
        """Waits until all nodes have compared their files, or some worker has to `stop`: whether that was so. Short
        questions in place of a long wait: no collective runs out of time. TrainerError on every rank: a damaged file.
        """
        while self._world.agree(self._is_reading()):
            if self._world.agree(stop()):
                return True
            time.sleep(_POLL_SEC)
        self._world.run_on_all(self.check)
        return False

    def _is_reading(self) -> bool:
        return self._thread is not None and self._outcome is None and self._failure is None

    def _read(self) -> None:
        try:
            self._outcome = self._compared()
        except Exception as error:  # told by `check`, in the thread that trains
            self._failure = error

    def _compared(self) -> Verified | None:
        folder, files = self._data.folder, list(self._data.index.hashed_files())
        key = _key(self._data, files)
        if (known := _remembered(folder, key)) is not None:
            return known
        began = time.monotonic()
        threads = max(1, usable_cores() // _SHARE_OF_CORES)

        def compare(file: HashedFile) -> None:
            if not self._stop.is_set():
                verify_file(folder, file)

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(compare, files))
        if self._stop.is_set():
            return None
        found = Verified(key=key, at=time.time(), host=socket.gethostname(), sec=time.monotonic() - began)
        if _key(self._data, files) == key:  # nobody has written meanwhile
            _remember(folder, found)
        return found


def _key(data: ShardedImages, files: Iterable[HashedFile]) -> str:
    """Of the index and of all its files as they are now."""
    parts = [data.index.model_dump_json()]
    for file in files:
        path = data.folder / file.name
        # A file that is gone is told of by whoever reads it.
        found = path.stat() if path.is_file() else None
        parts.append(
            f"{file.name} {None if found is None else (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)}"
        )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _find_note(folder: Path) -> Path | None:
    """The file that remembers a folder; None where there is no place that only this user writes."""
    own = Path(tempfile.gettempdir()) / f"gangway-{os.getuid()}"
    try:
        own.mkdir(mode=0o700, exist_ok=True)
        found = own.lstat()
    except OSError:
        return None
    others = stat.S_IWGRP | stat.S_IWOTH
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & others:
        return None
    name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:32]
    return own / f"verified-{name}.json"


def _remembered(folder: Path, key: str) -> Verified | None:
    note = _find_note(folder)
    if note is None:
        return None
    try:
        known = Verified.model_validate_json(read_file(note))
    except (OSError, ValidationError):
        return None
    return known.model_copy(update={"remembered": True}) if known.key == key else None


def _remember(folder: Path, found: Verified) -> None:
    note = _find_note(folder)
    if note is not None:
        with suppress(TrainerError):  # a full disk: the next start reads again
            write_atomically(note, found.model_dump_json().encode())
