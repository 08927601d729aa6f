"""Checkpoints without a stop: a step hands over a copy of the state, and a thread writes it while training goes on.

A step waits for the copy, and for the save before if unfinished (a slow disk): `stall_sec`. What fails in the thread is
raised by the next `wait`.
"""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from trainer.checkpoint import parts, store
from trainer.config.train_config import TrainConfig
from trainer.core.errors import TrainerError, WorkerFailedError
from trainer.distributed.sharded_modules import local
from trainer.distributed.world import World
from trainer.records.digest import RunIdentity

SAVE_FAILURES = (TrainerError, WorkerFailedError, RuntimeError)
"""What `wait` may raise: of this worker, of another, or of a connection to one that is gone."""


class Saved(NamedTuple):
    """A checkpoint that is on disk.

    Attributes:
        why: the notice that asked for it; empty for none.
        sec: from the moment the state was handed over to the file in place.
        stall_sec: of these, what the step waited for.
    """

    path: Path
    images: int
    why: str
    sec: float
    stall_sec: float


class Saver:
    """Writes one checkpoint at a time. For the one process that writes the folder. `done` is told of each checkpoint on
    disk, in the thread; `stall_sec` is what steps have waited for so far, seconds. `config` may be set anew while
    nothing is being written.
    """

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
        """Whether `wait` would raise, known without waiting."""
        return self._failure is not None

    def save(self, state: Mapping[str, Any], images: int, why: str = "") -> None:
        """Copies the state (nested dicts and lists of tensors, on any device, and numbers) and writes it after it
        returns. `why` is the notice that asked for it. TrainerError: the save before failed.
        """
        began = time.monotonic()
        self.wait()
        self._take(state)
        stall_sec = time.monotonic() - began
        self.stall_sec += stall_sec
        # Not a daemon: a process that ends for any reason but a kill completes the save it has begun.
        self._thread = threading.Thread(target=self._write, args=(images, why, began, stall_sec), name="checkpoint")
        self._thread.start()

    def _take(self, state: Mapping[str, Any]) -> None:
        """Copies what is to be written."""
        self._buffers = copy_to_cpu(state, self._buffers)

    def _store(self, images: int) -> Path:
        """Writes what was copied; in the thread."""
        assert self._identity is not None, "of the one process that writes all"
        return store.save(self._folder, self._buffers, self.config, images, self._identity)

    def wait(self) -> None:
        """Returns when nothing is being written any more (TrainerError: the save failed; raised once)."""
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
    """The same for networks in parts, on every worker: each writes its own, and rank 0 the checkpoint when all have.
    All workers call `save` together, with a state whose tensors are split or alike, or of a pipeline's stage; what
    fails on one fails on all.

    `world` has a group of its own, for its messages come from the thread (`World.for_thread`); `identity`, and a `done`
    that is called, are rank 0's.
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

    def _take(self, state: Mapping[str, Any]) -> None:
        rank = self._world.rank
        self._empty = parts.without_numbers(dict(state))
        first = self._world.first_with_part[rank] == rank
        self._blocks = parts.get_blocks(
            dict(state), split=first, whole=first if self._world.is_pipelined else rank == 0
        )
        here = {name: local(tensor) for name, tensor in parts.tensors(state) if not tensor.is_meta}
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
    """The same nested dicts and lists with copies of their tensors on the CPU, memory layout included.

    `buffers`, an earlier copy of the same structure, are overwritten; None makes them, in page-locked memory where
    tensors are on a GPU: copying is then several times faster.
    """
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
            return source.cpu()  # a copy of its own; on XLA also what ends the recorded program
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
    """Whether the buffer takes the tensor without a change of shape, type or layout."""
    return (
        isinstance(buffer, torch.Tensor)
        and buffer.shape == source.shape
        and buffer.dtype == source.dtype
        and buffer.stride() == source.stride()
    )
