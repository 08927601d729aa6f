"""Fréchet distance against closed forms and scipy's matrix square root, also where covariances are singular."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import sqrtm

from gangway.trainer.metrics.frechet import FeatureStats, Moments, frechet_distance


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
