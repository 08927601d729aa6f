"""Scores from features or logits: Inception Score and kernel distance, as the papers and torch-fidelity compute them.

Float64 sums; NumPy's RandomState of the protocol's seed draws, as in torch-fidelity: equal features give its numbers.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainer.quality.collect import Ask, go_on, shared
from trainer.workers.distributed import World

__all__ = ["KID_SUBSETS", "SEED", "SPLITS", "Spread", "inception_score", "kernel_distance"]

SEED = 2020
"""torch-fidelity's."""
SPLITS = 10
KID_SUBSETS = 100


class Spread(NamedTuple):
    """Mean and standard deviation over splits or subsets."""

    mean: float
    std: float


def inception_score(logits: NDArray[np.float64], *, splits: int = SPLITS, shuffle: bool = True) -> Spread:
    """The exponential of the mean KL divergence of each image's classes from its split's (Salimans et al. 2016).

    `logits` are [N, classes], N at least `splits`; `shuffle` draws the splits at random, by SEED, else they follow each
    other.
    """
    num = len(logits)
    if shuffle:
        logits = logits[np.random.RandomState(SEED).permutation(num)]
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    scores = []
    for split in range(splits):
        part = log_p[split * num // splits : (split + 1) * num // splits]
        # Through logarithms: a class that no image of the split may be has a mean probability of 0 in float64.
        log_q = np.logaddexp.reduce(part, axis=0) - np.log(len(part))
        divergence = (np.exp(part) * (part - log_q)).sum(axis=1)
        scores.append(np.exp(divergence.mean()))
    return Spread(float(np.mean(scores)), float(np.std(scores)))


def kernel_distance(
    first: NDArray[np.float32],
    second: NDArray[np.float32],
    subset_size: int,
    world: World,
    *,
    subsets: int = KID_SUBSETS,
    ask: Ask = go_on,
) -> Spread:
    """Squared maximum mean discrepancy of two sets, unbiased, kernel (x.y / dim + 1)^3 (Binkowski et al. 2018).

    Features [N, dim] and [M, dim] are the same on every worker, and so is the result; `subset_size` is from 2 to the
    smaller of N and M. AbandonedError on every worker, when one has asked for it, before an estimate.
    """
    random = np.random.RandomState(SEED)
    # Drawn here, all of them: which worker makes an estimate must not matter to the next draw.
    draws = [[random.choice(len(x), subset_size, replace=False) for x in (first, second)] for _ in range(subsets)]
    estimates = shared([partial(_discrepancy, first, second, *rows) for rows in draws], world, ask)
    return Spread(float(np.mean(estimates)), float(np.std(estimates)))


def _discrepancy(
    first: NDArray[np.float32], second: NDArray[np.float32], firsts: NDArray[np.int64], seconds: NDArray[np.int64]
) -> float:
    """One estimate of the squared maximum mean discrepancy, from equally many rows of each."""
    x, y = first[firsts], second[seconds]
    pairs = len(x) * (len(x) - 1)
    within = sum(kernel.sum() - kernel.trace() for kernel in (_cubic(x, x), _cubic(y, y)))
    return float(within / pairs - 2 * _cubic(x, y).mean())


def _cubic(x: NDArray[np.float32], y: NDArray[np.float32]) -> NDArray[np.float64]:
    """The kernel of all pairs, [len(x), len(y)]; products in float32, as the features are, the rest in float64."""
    kernel: NDArray[np.float64] = ((x @ y.T).astype(np.float64) / x.shape[1] + 1) ** 3
    return kernel
