"""Fréchet distance between two sets of images in the feature space of any FeatureExtractor (FD-ENL0, FID).

float64 sums, and an eigenvalue formula that holds with fewer images than features and singular covariances (Heusel et
al. 2017, arXiv:1706.08500; Dowson & Landau 1982).
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

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
    """Squared Fréchet distance of two Gaussians: |m1 - m2|^2 + tr(S1 + S2 - 2 (S1 S2)^(1/2)).

    The trace of (S1 S2)^(1/2) is the sum of the square roots of the eigenvalues of R S2 R, R the symmetric root of S1:
    symmetric, with no negative eigenvalue but by rounding, so nothing complex or singular as with scipy.linalg.sqrtm.
    """
    difference = first.mean - second.mean
    values, vectors = np.linalg.eigh(first.covariance)
    root = (vectors * np.sqrt(values.clip(min=0))) @ vectors.T
    product = root @ second.covariance @ root
    cross = np.sqrt(np.linalg.eigvalsh((product + product.T) / 2).clip(min=0)).sum()
    return float(difference @ difference + np.trace(first.covariance) + np.trace(second.covariance) - 2 * cross)
