"""Compares shards with their hashes while training, in threads of a node's first worker, which no collective waits for.

A file in a private temporary folder of the node remembers the result until the index or a file changes.
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

from pydantic import ValidationError

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.files import write_atomically
from gangway.trainer.core.host import usable_cores
from gangway.trainer.core.regular_files import read_file
from gangway.trainer.data.index import HashedFile
from gangway.trainer.data.shards import ShardedImages, verify_file
from gangway.trainer.distributed.world import World
from gangway.trainer.records.quantity import Frozen

_SHARE_OF_CORES = 4  # One core of so many reads while training
_POLL_SEC = 0.2
_PATIENCE_SEC = 5.0


class Verified(Frozen):
    """When, where and how long a node's data was compared; `remembered`: not in this session."""

    key: str
    at: float  # seconds since 1970
    host: str
    sec: float
    remembered: bool = False


class Verification:
    """Verification of one session, running within its context. All workers have one and call `finish` together."""

    def __init__(self, data: ShardedImages, world: World) -> None:
        self._data, self._world = data, world
        self.outcome: Verified | None = None  # of this node's first worker
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
    def failed(self) -> bool:
        """Whether a file differs or cannot be read."""
        return self._failure is not None

    def check(self) -> None:
        """Raise the failure, a TrainerError for a missing or corrupt file."""
        if self._failure is not None:
            raise self._failure

    def finish(self, stop: Callable[[], bool] = lambda: False) -> bool:
        """Wait until all nodes are done, or a worker has to `stop` (True). TrainerError on every rank: damage."""
        # Polls, so that no collective times out.
        while self._world.agree(self._is_reading()):
            if self._world.agree(stop()):
                return True
            time.sleep(_POLL_SEC)
        self._world.run_on_all(self.check)
        return False

    def _is_reading(self) -> bool:
        return self._thread is not None and self.outcome is None and self._failure is None

    def _read(self) -> None:
        try:
            self.outcome = self._compare()
        except Exception as error:  # raised by `check` in the training thread
            self._failure = error

    def _compare(self) -> Verified | None:
        folder, files = self._data.folder, list(self._data.index.hashed_files())
        key = _key(self._data, files)
        if (known := _recall(folder, key)) is not None:
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
        if _key(self._data, files) == key and (note := _find_note(folder)):  # no file changed meanwhile
            with suppress(TrainerError):  # a full disk: the next start reads again
                write_atomically(note, found.model_dump_json().encode())
        return found


def _key(data: ShardedImages, files: Iterable[HashedFile]) -> str:
    parts = [data.index.model_dump_json()]
    for file in files:
        path = data.folder / file.name
        # A missing file is reported when it is read.
        found = path.stat() if path.is_file() else None
        parts.append(
            f"{file.name} {None if found is None else (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)}"
        )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _find_note(folder: Path) -> Path | None:
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


def _recall(folder: Path, key: str) -> Verified | None:
    note = _find_note(folder)
    if note is None:
        return None
    try:
        known = Verified.model_validate_json(read_file(note))
    except (OSError, ValidationError):
        return None
    return known.model_copy(update={"remembered": True}) if known.key == key else None
