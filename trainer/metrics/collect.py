"""Distributes the metrics' work over all workers, in the same small parts for any number of them: the same bits."""

import itertools
import math
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed as dist

from gangway.trainer.core.host import usable_cores
from gangway.trainer.distributed.world import World

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """Mean [dim] and unbiased covariance [dim, dim] of `num` feature vectors."""

    mean: Matrix
    covariance: Matrix
    num: int


class FeatureStats:
    """Sums over feature vectors of length `dim`, added batch by batch in float64."""

    def __init__(self, dim: int) -> None:
        self._num = 0
        self._sum = np.zeros(dim)
        self._outer = np.zeros((dim, dim))

    def add(self, features: Matrix) -> None:
        """Adds [N, dim] features."""
        self._num += len(features)
        self._sum += features.sum(axis=0)
        self._outer += features.T @ features

    def __add__(self, other: "FeatureStats") -> "FeatureStats":
        return self.from_sums(self.sums() + other.sums())

    def sums(self) -> Matrix:
        """Returns all sums as one vector, [1 + dim + dim * dim], to be added over workers."""
        return np.concatenate([[self._num], self._sum, self._outer.ravel()])

    @classmethod
    def from_sums(cls, sums: Matrix) -> Self:
        """Inverts `sums`. A count is exact in float64 up to 2**53."""
        dim = math.isqrt(len(sums) - 1)  # dim * (dim + 1) numbers besides the count
        stats = cls(dim)
        stats._num, stats._sum, stats._outer = int(sums[0]), sums[1 : dim + 1], sums[dim + 1 :].reshape(dim, dim)
        return stats

    def moments(self) -> Moments:
        """Returns mean and covariance; needs at least two vectors."""
        assert self._num >= 2, "TrainConfig and the command line ask for two images or more"
        mean = self._sum / self._num
        covariance = (self._outer - self._num * np.outer(mean, mean)) / (self._num - 1)
        return Moments(mean, covariance, self._num)


def frechet_distance(first: Moments, second: Moments) -> float:
    """Squared Fréchet distance of two Gaussians: |m1 - m2|^2 + tr(S1 + S2 - 2 (S1 S2)^(1/2)). The trace of (S1
    S2)^(1/2) is the sum of the square roots of the eigenvalues of R S2 R, R the symmetric root of S1: symmetric, with
    no negative eigenvalue but by rounding, so nothing complex or singular as with scipy.linalg.sqrtm. It holds with
    fewer images than features and singular covariances (Heusel et al. 2017, arXiv:1706.08500; Dowson & Landau 1982).
    """
    difference = first.mean - second.mean
    values, vectors = np.linalg.eigh(first.covariance)
    root = (vectors * np.sqrt(values.clip(min=0))) @ vectors.T
    product = root @ second.covariance @ root
    cross = np.sqrt(np.linalg.eigvalsh((product + product.T) / 2).clip(min=0)).sum()
    return float(difference @ difference + np.trace(first.covariance) + np.trace(second.covariance) - 2 * cross)


T = TypeVar("T")
_CPU_PART = 16
"""Small: on a CPU the features of 16 images stay in cache, which is more than twice as fast as 64 at once."""
_GPU_PART = 128
_ADDED_AT_ONCE = 1024  # Rows: adding up dim x dim products takes as long for a few of them as for many
_GO_ON, _ABANDON, _FAILED = range(3)  # A worker's vote after a part; of different votes the highest counts

Features = NDArray[np.float64]
Ask = Callable[[], bool]  # Whether this worker wants to abandon the work


class AbandonedError(Exception):
    """A worker has requested an end: raised on every worker, after the same part."""


def go_on() -> bool:
    """An `Ask` that never abandons."""
    return False


@dataclass(frozen=True)
class FeatureSet:
    """Features of a set of images, the same on every worker; `rows` [N, dim] are None where only sums are kept."""

    stats: FeatureStats
    rows: NDArray[np.float32] | None = None

    @property
    def moments(self) -> Moments:
        """Mean and covariance."""
        return self.stats.moments()

    @property
    def kept(self) -> NDArray[np.float32]:
        """The features of a set that keeps them."""
        assert self.rows is not None, "the metric that asks says that it needs them"
        return self.rows

    @classmethod
    def join(cls, sets: Iterable[Self]) -> Self:
        """Returns the union of disjoint sets."""
        members = list(sets)
        stats = members[0].stats
        for member in members[1:]:
            stats = stats + member.stats
        kept = [member.rows for member in members if member.rows is not None]
        return cls(stats, np.concatenate(kept) if len(kept) == len(members) else None)


def agree_to_go_on(world: World, ask: Ask) -> None:
    """Raises AbandonedError on every worker when one requests it."""
    if world.agree(ask()):
        raise AbandonedError


def collect(
    of: Callable[[slice], Features], num: int, dim: int, world: World, *, keep: bool, ask: Ask = go_on
) -> FeatureSet:
    """Computes features of images 0..num-1, `of` a range, on all workers together; `keep` brings all rows to each."""
    size = _GPU_PART if world.own_device.type == "cuda" else _CPU_PART
    parts = [slice(start, min(start + size, num)) for start in range(0, num, size)]

    stats = FeatureStats(dim)
    kept: list[NDArray[np.float32]] = []
    waiting: list[Features] = []
    mine = parts[world.rank :: world.world_size]
    for features in _compute_parts(of, mine, -(-len(parts) // world.world_size), world, ask):
        waiting.append(features)
        if sum(map(len, waiting)) >= _ADDED_AT_ONCE:
            stats.add(np.concatenate(waiting))
            waiting.clear()
        if keep:
            kept.append(features.astype(np.float32))
    stats.add(np.concatenate([np.empty((0, dim)), *waiting]))
    added = FeatureStats.from_sums(_sum(stats.sums(), world))
    return FeatureSet(added, _gather_rows(kept, len(parts), dim, world) if keep else None)


def shared(jobs: Sequence[Callable[[], T]], world: World, ask: Ask = go_on, kind: Any = float) -> list[T]:
    """Runs each job on one worker; all get all results in order, as `kind` (AbandonedError: a worker asked for it)."""
    done: list[T] = []
    for first in range(0, len(jobs), world.world_size):
        agree_to_go_on(world, ask)
        part = world.run_on_all(partial(_results, jobs[first + world.rank : first + world.rank + 1]))
        done += itertools.chain.from_iterable(world.gather(part, list[kind]))
    return done


def _results(jobs: Sequence[Callable[[], T]]) -> list[T]:
    return [job() for job in jobs]


def _compute_parts(
    of: Callable[[slice], Features], mine: list[slice], rounds: int, world: World, ask: Ask
) -> Iterator[Features]:
    """Yields this worker's features; all workers vote equally often, in `rounds`."""
    failure: Exception | None = None
    with closing(_compute_in_threads(of, mine)) as computed:
        for _ in range(rounds):
            features = None
            try:
                features = next(computed, None)
            except Exception as error:  # raised on all below: the others wait for this round's vote
                failure = error
            vote = world.highest(_FAILED if failure is not None else _ABANDON if ask() else _GO_ON)
            if vote == _FAILED:
                break
            if vote == _ABANDON:
                raise AbandonedError
            if features is not None:
                yield features
    world.run_on_all(lambda: _raise(failure))


def _raise(failure: Exception | None) -> None:
    if failure is not None:
        raise failure


def _compute_in_threads(of: Callable[[slice], Features], parts: list[slice]) -> Generator[Features]:
    """Each thread computes alone: threads that share a batch on a busy machine mostly wait for each other."""
    if torch.cuda.is_available():
        yield from map(of, parts)
        return
    cores = usable_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    threads_before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        pool = ThreadPoolExecutor(max(1, cores))
        try:
            # Not map, which takes all parts at once: few should be running when another worker requests an end.
            remaining = iter(parts)
            running = deque(pool.submit(of, part) for part in itertools.islice(remaining, 2 * max(1, cores)))
            while running:
                yield running.popleft().result()
                running.extend(pool.submit(of, part) for part in itertools.islice(remaining, 1))
        finally:
            pool.shutdown(cancel_futures=True)  # waits for running parts, which use local variables
    finally:
        torch.set_num_threads(threads_before)


def _sum(values: NDArray[np.float64], world: World) -> NDArray[np.float64]:
    if world.control is None:
        return values
    total = torch.from_numpy(values)
    dist.all_reduce(total, group=world.control)
    return values


def _gather_rows(mine: list[NDArray[np.float32]], num_parts: int, dim: int, world: World) -> NDArray[np.float32]:
    rows = [len(part) for part in mine]
    everyones = world.gather(rows)
    if world.control is None:
        return np.concatenate(mine)
    longest = max(sum(counts) for counts in everyones)
    padded = torch.zeros(longest, dim)
    if mine:
        padded[: sum(rows)] = torch.from_numpy(np.concatenate(mine))
    gathered = [torch.empty_like(padded) for _ in everyones]
    dist.all_gather(gathered, padded, group=world.control)
    split = [
        np.split(table.numpy()[: sum(counts)], np.cumsum(counts)[:-1])
        for table, counts in zip(gathered, everyones, strict=True)
    ]
    return np.concatenate([split[part % world.world_size][part // world.world_size] for part in range(num_parts)])
