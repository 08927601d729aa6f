"""Asynchronous checkpoints: a step copies the state and waits for an earlier save; a thread writes it meanwhile."""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from gangway.trainer.checkpoint import parts, store
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError, WorkerFailedError
from gangway.trainer.distributed.sharded_modules import local, tensors
from gangway.trainer.distributed.world import World
from gangway.trainer.records.digest import RunIdentity

SAVE_FAILURES = (TrainerError, WorkerFailedError, RuntimeError)
"""What `wait` may raise: an error of this worker, of another, or of a lost connection."""


class Saved(NamedTuple):
    """A checkpoint on disk; `why` is the notice for it; the step waited for `stall_sec` of `sec`."""

    path: Path
    images: int
    why: str
    sec: float
    stall_sec: float


class Saver:
    """Writes one checkpoint at a time and calls `done` in its thread. Set `config` only between two of them."""

    def __init__(
        self, folder: Path, config: TrainConfig, identity: RunIdentity | None, done: Callable[[Saved], None]
    ) -> None:
        self._folder, self.config, self._identity, self._done = folder, config, identity, done
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None
        self._buffers: Any = None
        self.stall_sec = 0.0

    @property
    def failed(self) -> bool:
        """Whether `wait` would raise, without waiting."""
        return self._failure is not None

    def save(self, state: Mapping[str, Any], images: int, why: str = "") -> None:
        """Copies nested tensors and numbers and writes them in the thread (TrainerError: the previous save failed)."""
        began = time.monotonic()
        self.wait()
        self._copy_state(state)
        stall_sec = time.monotonic() - began
        self.stall_sec += stall_sec
        # Not a daemon: a process that is not killed completes its save.
        self._thread = threading.Thread(target=self._write, args=(images, why, began, stall_sec), name="checkpoint")
        self._thread.start()

    def _copy_state(self, state: Mapping[str, Any]) -> None:
        self._buffers = copy_to_cpu(state, self._buffers)

    def _store(self, images: int) -> Path:
        assert self._identity is not None, "of the one process that writes all"
        return store.save(self._folder, self._buffers, self.config, images, self._identity)

    def wait(self) -> None:
        """Waits for the running save (TrainerError: it failed; raised once)."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _write(self, images: int, why: str, began: float, stall_sec: float) -> None:
        try:
            path = self._store(images)
            self._done(Saved(path, images, why, time.monotonic() - began, stall_sec))
        except Exception as error:  # raised by `wait`, in the thread that can act on it
            self._failure = error


class PartSaver(Saver):
    """The saver of split networks: each worker writes its part, then rank 0 the checkpoint; all call `save` together.

    `world` needs a group of its own (`World.for_thread`). Only rank 0 uses `identity` and `done`.
    """

    def __init__(
        self,
        folder: Path,
        config: TrainConfig,
        identity: RunIdentity | None,
        done: Callable[[Saved], None],
        world: World,
    ) -> None:
        super().__init__(folder, config, identity, done if world.rank == 0 else lambda _: None)
        self._world = world
        self._empty: dict[str, Any] = {}
        self._blocks: list[parts.Block] = []

    def _copy_state(self, state: Mapping[str, Any]) -> None:
        rank = self._world.rank
        self._empty = parts.to_meta(dict(state))
        first = self._world.first_with_part[rank] == rank
        self._blocks = parts.get_blocks(
            dict(state), split=first, whole=first if self._world.is_pipelined else rank == 0
        )
        here = {name: local(tensor) for name, tensor in tensors(state) if not tensor.is_meta}
        self._buffers = copy_to_cpu(here, self._buffers)

    def _store(self, images: int) -> Path:
        world, path = self._world, self._folder / f"{images:012d}.pt"

        def write() -> parts.Written:
            for name, numbers in self._buffers.items():
                if not store.is_finite(numbers):
                    raise store.not_finite(name.partition("/")[0], self._empty["step"], images)
            file = self._folder / parts.part_name(path, world.rank, world.world_size)
            return parts.write_part(file, world.rank, self._blocks, self._buffers)

        written = world.gather(world.run_on_all(write), parts.Written)

        def commit() -> None:
            assert self._identity is not None, "rank 0's"
            store.save_parts(self._folder, self._empty, written, self.config, images, self._identity)

        world.run_on_rank0(commit)  # none begins the next save before
        return path


def copy_to_cpu(value: Any, buffers: Any = None) -> Any:
    """Copies nested tensors to the CPU, keeping their layout, into `buffers` of an earlier copy, if given."""
    pending: set[torch.device] = set()
    copied = _copy(value, buffers, pending)
    for device in pending:
        torch.cuda.synchronize(device)
    return copied


def _copy(value: Any, buffer: Any, pending: set[torch.device]) -> Any:
    if isinstance(value, torch.Tensor):
        source = value.detach()
        on_gpu = source.device.type == "cuda"
        if source.device.type not in ("cpu", "cuda"):
            return source.cpu()  # always a copy; on XLA it also ends the recorded program
        if not _fits(source, buffer):
            buffer = torch.empty_like(source, device="cpu", pin_memory=on_gpu)
        if on_gpu:
            pending.add(source.device)
        return buffer.copy_(source, non_blocking=on_gpu)
    if isinstance(value, Mapping):
        known = buffer if isinstance(buffer, Mapping) else {}
        return {key: _copy(item, known.get(key), pending) for key, item in value.items()}
    if isinstance(value, list | tuple):
        old = list(buffer) if isinstance(buffer, list | tuple) else []
        old += [None] * (len(value) - len(old))
        return [_copy(item, known, pending) for item, known in zip(value, old, strict=False)]
    return value


def _fits(source: torch.Tensor, buffer: Any) -> bool:
    return (
        isinstance(buffer, torch.Tensor)
        and buffer.shape == source.shape
        and buffer.dtype == source.dtype
        and buffer.stride() == source.stride()
    )
