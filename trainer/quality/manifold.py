"""Precision, recall, density and coverage: do fakes fall where reals are, and do they reach all of them.

Kynkäänniemi et al. 2019 (arXiv:1904.06991): a set's manifold is the union of balls around its points, each as large as
the distance to the k-th neighbour, k = 3; precision is the share of fakes on the reals' manifold, recall the reverse.
Density and coverage: Naeem et al. 2020 (arXiv:2002.09797), k = 5. Distances come block by block in float32, on every
worker for its own rows. The papers use VGG-16 features.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer.quality.collect import Ask, go_on, shared
from trainer.workers.distributed import World

__all__ = ["COVERAGE_NEIGHBOURS", "NEIGHBOURS", "Manifolds", "compare"]

NEIGHBOURS = 3
COVERAGE_NEIGHBOURS = 5
_BLOCK = 2048
"""Rows of a block of distances: 2048 of 50,000 in float32 are 0.4 GB."""


class Manifolds(NamedTuple):
    """How two sets lie to each other, each a share in 0..1; density can exceed 1."""

    precision: float
    recall: float
    density: float
    coverage: float


def compare(reals: NDArray[np.float32], fakes: NDArray[np.float32], world: World, *, ask: Ask = go_on) -> Manifolds:
    """All four, of features [N, dim] and [M, dim] (N more than COVERAGE_NEIGHBOURS), the rows shared over the workers.

    Features are the same on every worker, and so is what is returned; with XLA a worker computes on its CPU.
    AbandonedError on every worker, when one has asked for it, before a block.
    """
    # Distances do not change when both sets are moved; near the origin float32 keeps more of their digits.
    centre = reals.mean(axis=0, dtype=np.float64).astype(np.float32)
    real, fake = (torch.from_numpy(features - centre).to(world.own_device) for features in (reals, fakes))
    real_near = _by_rows(real, lambda rows: _nearest(rows, real), world, ask)
    fake_near = _by_rows(fake, lambda rows: _nearest(rows, fake), world, ask)
    real_radius, wide_radius = real_near[:, NEIGHBOURS], real_near[:, COVERAGE_NEIGHBOURS]

    def of_fakes(rows: Tensor) -> Tensor:
        distances = _distances(rows, real)
        inside = distances <= wide_radius
        return torch.stack([(distances <= real_radius).any(1), inside.sum(1)], dim=1)

    def of_reals(rows: Tensor) -> Tensor:
        distances = _distances(rows, fake)
        return torch.stack([(distances <= fake_near[:, NEIGHBOURS]).any(1).float(), distances.amin(1)], dim=1)

    by_fake = _by_rows(fake, of_fakes, world, ask).double()
    by_real = _by_rows(real, of_reals, world, ask).double()
    return Manifolds(
        precision=float(by_fake[:, 0].mean()),
        recall=float(by_real[:, 0].mean()),
        density=float(by_fake[:, 1].mean()) / COVERAGE_NEIGHBOURS,
        coverage=float((by_real[:, 1] <= wide_radius).double().mean()),
    )


def _nearest(rows: Tensor, among: Tensor) -> Tensor:
    """Squared distances of each row to its neighbours from 0 (itself) to COVERAGE_NEIGHBOURS, ascending."""
    return _distances(rows, among).topk(COVERAGE_NEIGHBOURS + 1, dim=1, largest=False).values


def _distances(rows: Tensor, among: Tensor) -> Tensor:
    """Squared distances [len(rows), len(among)]."""
    squares = rows.square().sum(1)[:, None] + among.square().sum(1)
    return torch.addmm(squares, rows, among.T, alpha=-2).clamp_min(0)


def _by_rows(features: Tensor, of: Callable[[Tensor], Tensor], world: World, ask: Ask) -> Tensor:
    """`of` for all rows in blocks, each computed by one worker; the whole on every worker."""

    def block(start: int) -> NDArray[np.float32]:
        found: NDArray[np.float32] = of(features[start : start + _BLOCK]).cpu().numpy()
        return found

    blocks = [partial(block, start) for start in range(0, len(features), _BLOCK)]
    return torch.from_numpy(np.concatenate(shared(blocks, world, ask))).to(features.device)
