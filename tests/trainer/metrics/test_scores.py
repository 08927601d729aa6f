"""Inception Score and kernel distance: torch-fidelity's numbers on equal features, and values known in closed form."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.distributed.world import World
from gangway.trainer.metrics.collect import AbandonedError
from gangway.trainer.metrics.scores import inception_score, kernel_distance

ALONE = World(0, 0, 1, 0, 1, torch.device("cpu"), "none", "one process")


@given(seed=st.integers(0, 1000), num=st.integers(10, 60), scale=st.floats(0.1, 20))
def test_the_inception_score_is_torch_fidelitys(seed: int, num: int, scale: float) -> None:
    from torch_fidelity.metric_isc import isc_features_to_metric  # type: ignore[import-untyped]  # publishes no types

    logits = np.random.default_rng(seed).normal(0, scale, (num, 12))
    theirs = isc_features_to_metric(torch.from_numpy(logits))
    ours = inception_score(logits)
    assert ours.mean == pytest.approx(theirs["inception_score_mean"], rel=1e-9)
    assert ours.std == pytest.approx(theirs["inception_score_std"], rel=1e-6, abs=1e-9)


def test_inception_scores_known_beforehand() -> None:
    sure = np.eye(5).repeat(10, axis=0) * 1000
    assert inception_score(sure, splits=1).mean == pytest.approx(5)
    assert inception_score(np.zeros((50, 5))).mean == pytest.approx(1)
    assert inception_score(sure, splits=5, shuffle=False).mean == pytest.approx(1), "each split has one class only"


@given(seed=st.integers(0, 1000), size=st.integers(2, 20))
def test_the_kernel_distance_is_torch_fidelitys(seed: int, size: int) -> None:
    from torch_fidelity.metric_kid import kid_features_to_metric  # type: ignore[import-untyped]  # publishes no types

    random = np.random.default_rng(seed)
    first, second = random.normal(1, 1, (20, 16)), random.normal(0, 2, (30, 16))
    ours = kernel_distance(first.astype(np.float32), second.astype(np.float32), size, ALONE, subsets=7)
    theirs = kid_features_to_metric(
        torch.from_numpy(first), torch.from_numpy(second), kid_subsets=7, kid_subset_size=size, verbose=False
    )
    assert ours.mean == pytest.approx(theirs["kernel_inception_distance_mean"], rel=1e-4, abs=1e-5)
    assert ours.std == pytest.approx(theirs["kernel_inception_distance_std"], rel=1e-4, abs=1e-5)


def test_the_kernel_distance_by_hand() -> None:
    first, second = np.array([[1.0], [2.0]], np.float32), np.array([[0.0], [1.0]], np.float32)
    within = (1 * 2 + 1) ** 3 + (0 * 1 + 1) ** 3
    across = np.mean([(x * y + 1) ** 3 for x in (1, 2) for y in (0, 1)])
    assert kernel_distance(first, second, 2, ALONE, subsets=3).mean == pytest.approx(within - 2 * across)


def test_who_has_to_stop_has_no_kernel_distance() -> None:
    features, asked = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32), list[int]()

    def ask() -> bool:
        asked.append(1)
        return len(asked) == 3

    with pytest.raises(AbandonedError):
        kernel_distance(features, features, 10, ALONE, ask=ask)
    assert len(asked) == 3, "two estimates were made, of a hundred"
