"""Features over all workers: sums and rows are those of one pass over everything, however it is dealt out."""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import sqrtm

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.distributed.world import World
from gangway.trainer.metrics import collect as module
from gangway.trainer.metrics.collect import AbandonedError, FeatureSet, FeatureStats, Moments, collect, frechet_distance

DIM = 3


def _rows(num: int, frames: int) -> Callable[[slice], NDArray[np.float64]]:
    table = np.random.default_rng(num).normal(size=(num, frames, DIM)).astype(np.float32)
    return lambda part: table[part].reshape(-1, DIM).astype(np.float64)


@given(num=st.integers(2, 70), frames=st.integers(1, 3), part=st.integers(1, 20))
def test_one_worker_sees_everything_once(num: int, frames: int, part: int) -> None:
    world = World(0, 0, 1, 0, 1, torch.device("cpu"), "none", "one process")
    of = _rows(num, frames)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CPU_PART", part)
        patch.setattr(module, "_ADDED_AT_ONCE", 20)
        found = collect(of, num, DIM, world, keep=True)
    everything = of(slice(0, num))
    np.testing.assert_array_equal(found.kept, everything)
    np.testing.assert_allclose(found.moments.covariance, np.cov(everything, rowvar=False), atol=1e-12)
    assert found.moments.num == num * frames
    assert collect(of, num, DIM, world, keep=False).rows is None


def test_the_sums_of_many_workers_are_those_of_one() -> None:
    """Workers are simulated one after the other: each adds up its own parts, and the sums are added."""
    of, num = _rows(100, 1), 100
    world = World(0, 0, 1, 0, 1, torch.device("cpu"), "none", "")
    whole = collect(of, num, DIM, world, keep=False).moments
    shares = [collect(of, num, DIM, replace(world, rank=r, world_size=3), keep=False).stats for r in range(3)]
    together = (shares[0] + shares[1] + shares[2]).moments()
    assert together.num == num
    np.testing.assert_allclose(together.covariance, whole.covariance, rtol=1e-12)
    np.testing.assert_allclose(together.mean, whole.mean, rtol=1e-12)


def test_sums_survive_the_way_through_a_vector() -> None:
    stats = FeatureStats(DIM)
    stats.add(np.random.default_rng(0).normal(size=(9, DIM)))
    again = FeatureStats.from_sums(stats.sums())
    np.testing.assert_array_equal(again.moments().covariance, stats.moments().covariance)
    assert again.moments().num == 9


def test_joined_sets_are_one_set(alone: World) -> None:
    of = _rows(40, 1)

    def second(part: slice) -> NDArray[np.float64]:
        return of(slice(part.start + 20, part.stop + 20))

    halves = [collect(half, 20, DIM, alone, keep=True) for half in (of, second)]
    joined = FeatureSet.join(halves)
    np.testing.assert_array_equal(joined.kept, of(slice(0, 40)))
    np.testing.assert_allclose(joined.moments.mean, of(slice(0, 40)).mean(axis=0), rtol=1e-12)
    assert FeatureSet.join([halves[0], FeatureSet(halves[1].stats)]).rows is None


def test_what_fails_in_a_thread_is_told(alone: World) -> None:
    def of(part: slice) -> NDArray[np.float64]:
        raise TrainerError(place="shard", problem="is corrupt")

    with pytest.raises(TrainerError, match="shard: is corrupt"):
        collect(of, 5, DIM, alone, keep=False)


def test_after_the_part_in_which_it_is_asked_for_nothing_more_is_computed(
    alone: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CPU_PART", 1)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    of, seen = _rows(1000, 1), list[int]()

    def counted(part: slice) -> NDArray[np.float64]:
        seen.append(part.start)
        time.sleep(0.001)
        return of(part)

    with pytest.raises(AbandonedError):
        collect(counted, 1000, DIM, alone, keep=False, ask=lambda: len(seen) >= 5)
    assert 5 <= len(seen) < 500


def _moments(num: int, dim: int, seed: int, scale: float = 1.0, shift: float = 0.0) -> Moments:
    generator = np.random.default_rng(seed)
    stats = FeatureStats(dim)
    stats.add(generator.normal(size=(num, dim)) @ generator.normal(size=(dim, dim)) * scale + shift)
    return stats.moments()


@settings(max_examples=25, deadline=None)
@given(dim=st.integers(1, 12), seed=st.integers(0, 10_000), scale=st.floats(0.1, 10))
def test_it_equals_the_reference(dim: int, seed: int, scale: float) -> None:
    first, second = _moments(40, dim, seed), _moments(60, dim, seed + 1, scale, shift=0.3)
    root = sqrtm(first.covariance @ second.covariance)
    difference = first.mean - second.mean
    expected = difference @ difference + np.trace(first.covariance + second.covariance - 2 * np.real(root))
    assert frechet_distance(first, second) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_closed_form_of_two_diagonal_gaussians() -> None:
    first = Moments(np.array([0.0, 0.0]), np.diag([1.0, 4.0]), 10)
    second = Moments(np.array([3.0, 4.0]), np.diag([9.0, 0.0]), 10)
    assert frechet_distance(first, second) == pytest.approx(25 + (1 - 3) ** 2 + (2 - 0) ** 2)


def test_fewer_images_than_features_give_a_finite_distance() -> None:
    first, second = _moments(5, 30, 0), _moments(6, 30, 1)
    assert np.linalg.matrix_rank(first.covariance) == 4
    assert frechet_distance(first, first) == pytest.approx(0, abs=1e-6 * np.trace(first.covariance))
    assert 0 < frechet_distance(first, second) == pytest.approx(frechet_distance(second, first))


def test_streamed_sums_equal_numpys_covariance() -> None:
    features = np.random.default_rng(0).normal(5, 2, size=(50, 4))
    stats = FeatureStats(4)
    for part in np.array_split(features, 7):
        stats.add(part)
    moments = stats.moments()
    np.testing.assert_allclose(moments.mean, features.mean(axis=0))
    np.testing.assert_allclose(moments.covariance, np.cov(features, rowvar=False))
    assert moments.num == 50
