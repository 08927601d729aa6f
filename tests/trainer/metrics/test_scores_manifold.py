"""Precision, recall, density and coverage: equal to a count by hand, and to torch-fidelity's."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gangway.trainer.distributed.world import World
from gangway.trainer.metrics import scores
from gangway.trainer.metrics.collect import AbandonedError
from gangway.trainer.metrics.scores import Manifolds, compare

Features = NDArray[np.float32]


def _by_hand(reals: Features, fakes: Features) -> Manifolds:
    """The definitions, one pair at a time, in float64."""

    def distance(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
        return float(np.sqrt(((a - b) ** 2).sum()))

    def radii(points: NDArray[np.float64], k: int) -> list[float]:
        return [sorted(distance(point, other) for other in points)[k] for point in points]

    real, fake = reals.astype(np.float64), fakes.astype(np.float64)
    real3, real5, fake3 = radii(real, 3), radii(real, 5), radii(fake, 3)
    inside = [[distance(f, r) <= radius for r, radius in zip(real, real5, strict=True)] for f in fake]
    precision = [any(distance(f, r) <= radius for r, radius in zip(real, real3, strict=True)) for f in fake]
    recall = [any(distance(r, f) <= radius for f, radius in zip(fake, fake3, strict=True)) for r in real]
    covered = [any(column) for column in zip(*inside, strict=True)]
    return Manifolds(
        float(np.mean(precision)),
        float(np.mean(recall)),
        float(np.sum(inside)) / 5 / len(fake),
        float(np.mean(covered)),
    )


@pytest.mark.slow
@given(seed=st.integers(0, 10_000), shift=st.floats(-3, 3), block=st.integers(1, 40))
def test_it_equals_a_count_by_hand(seed: int, shift: float, block: int) -> None:
    random = np.random.default_rng(seed)
    reals = random.normal(100, 1, (25, 4)).astype(np.float32)
    fakes = random.normal(100 + shift, 0.7, (31, 4)).astype(np.float32)
    world = World(0, 0, 1, 0, 1, torch.device("cpu"), "none", "one process")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scores, "_BLOCK", block)
        assert compare(reals, fakes, world) == pytest.approx(_by_hand(reals, fakes))


def test_images_that_are_nearly_the_same_keep_their_distances(alone: World) -> None:
    """Far from the origin, in tight groups: the square of a feature vector is 10^9 times that of a distance."""
    random = np.random.default_rng(0)
    centres = np.repeat(random.normal(0, 3, (6, 32)), 8, axis=0)
    reals, fakes = ((centres + random.normal(0, spread, centres.shape)).astype(np.float32) for spread in (3e-4, 4e-4))
    found = compare(reals, fakes, alone)
    assert found == pytest.approx(_by_hand(reals, fakes))
    assert 0 < found.precision < 1


def test_it_equals_torch_fidelity(alone: World) -> None:
    from torch_fidelity.metric_prc import (  # type: ignore[import-untyped]  # publishes no types
        calculate_precision_recall_full,
    )

    random = np.random.default_rng(0)
    reals = random.normal(0, 1, (200, 64)).astype(np.float32)
    fakes = random.normal(0.1, 0.9, (150, 64)).astype(np.float32)
    precision, recall = calculate_precision_recall_full(torch.from_numpy(fakes), torch.from_numpy(reals))
    found = compare(reals, fakes, alone)
    assert (found.precision, found.recall) == pytest.approx((precision, recall))


def test_a_memorised_part_is_precise_and_recalls_little(alone: World) -> None:
    reals = np.random.default_rng(0).normal(size=(400, 3)).astype(np.float32)
    few = reals[reals[:, 0] > 0.8]
    found = compare(reals, few, alone)
    assert found.precision == 1
    assert found.recall < 0.5
    assert found.coverage < 0.6


def test_who_has_to_stop_has_no_manifolds(alone: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "_BLOCK", 10)
    points = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    answers = iter([False, False, True])
    with pytest.raises(AbandonedError):
        compare(points, points, alone, ask=lambda: next(answers))
    assert next(answers, None) is None, "asked before each block, and no more after a yes"
