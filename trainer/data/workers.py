"""Decoding in parallel processes, with the results in the order of the items and a bounded number of chunks under way.

Workers leave Ctrl-C to the process that started them and end when it is gone, also when it was killed.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

from trainer.data.recipe import BrokenItemError, Decoded, Recipe
from trainer.errors import TrainerError

__all__ = ["Broken", "Result", "decode_in_order"]

_CHUNKS_AHEAD_PER_WORKER = 3
_CHUNKS_PER_SHARD = 16
_LARGEST_CHUNK = 64
_recipe: Recipe
"""In a worker: what it decodes. Set once, by `_begin`, in a process that does nothing else."""


@dataclass(frozen=True)
class Broken:
    """An item that cannot be used, and why."""

    why: str


@dataclass(frozen=True)
class _Failed:
    """Why nothing can go on, on its way from a worker: a TrainerError's fields, since exceptions do not travel well."""

    fields: dict[str, Any]


Result = tuple[int, Decoded | Broken]
_Sent = tuple[int, Decoded | Broken | _Failed]


def decode_in_order(recipe: Recipe, items: Sequence[int], workers: int) -> Generator[Result]:
    """Each item's number and what became of it. Close the generator to end the processes early; 1 worker is this
    process. TrainerError: a process was killed, or the source is out of reach.
    """
    if workers <= 1:
        yield from (_received((item, _decode(recipe, item))) for item in items)
        return
    size = max(1, min(_LARGEST_CHUNK, recipe.items_per_shard // _CHUNKS_PER_SHARD))
    chunks = iter([items[start : start + size] for start in range(0, len(items), size)])
    # spawn: a fork of a process with threads, as torch's, may hang.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin, (recipe,))
    under_way: deque[Future[list[_Sent]]] = deque()
    try:
        while True:
            while len(under_way) < workers * _CHUNKS_AHEAD_PER_WORKER and (chunk := next(chunks, None)) is not None:
                under_way.append(pool.submit(_decode_chunk, chunk))
            if not under_way:
                return
            yield from map(_received, under_way.popleft().result())
    except BrokenProcessPool:
        raise TrainerError(
            place="--workers",
            problem="a decoding process was killed; most often memory is short",
            value=workers,
            allowed="as many processes as fit into memory",
            fix=f"--workers {max(1, workers // 2)}; finished shards are kept",
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(recipe: Recipe) -> None:
    global _recipe
    _recipe = recipe
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """The pool's queue alone would keep a worker waiting for ever when its parent is killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "only workers come here"
    parent.join()
    os._exit(1)


def _received(sent: _Sent) -> Result:
    item, result = sent
    if isinstance(result, _Failed):
        raise TrainerError(**result.fields)
    return item, result


def _decode_chunk(items: Sequence[int]) -> list[_Sent]:
    return [(item, _decode(_recipe, item)) for item in items]


def _decode(recipe: Recipe, item: int) -> Decoded | Broken | _Failed:
    try:
        return recipe.decode(item)
    except BrokenItemError as error:
        return Broken(str(error))
    except TrainerError as error:
        return _Failed(error.fields())
