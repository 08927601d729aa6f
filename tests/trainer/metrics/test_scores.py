"""Inception Score and kernel distance: torch-fidelity's numbers on equal features, and values known in closed form."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gangway.trainer.data.packaged_data import load_digits_images
from gangway.trainer.distributed.world import World
from gangway.trainer.metrics import scores
from gangway.trainer.metrics.collect import AbandonedError, FeatureSet, FeatureStats
from gangway.trainer.metrics.features import FeatureExtractor
from gangway.trainer.metrics.scores import (
    Manifolds,
    Recogniser,
    Recognition,
    compare,
    inception_score,
    kernel_distance,
    recognise,
)

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


@pytest.fixture(scope="module")
def recogniser() -> Recogniser:
    return Recogniser(torch.device("cpu"))


def _found(extractor: FeatureExtractor, images: torch.Tensor) -> Recognition:
    return recognise(FeatureSet(FeatureStats(10), extractor(images).astype(np.float32)))


@pytest.mark.slow
def test_it_reads_digits_it_was_not_trained_on(recogniser: Recogniser) -> None:
    assert recogniser.held_out_accuracy >= 0.98
    held_out = torch.from_numpy(load_digits_images()[::5])
    found = _found(recogniser, held_out)
    assert found.share > 0.95
    assert found.classes == 10
    assert found.passed


@pytest.mark.slow
def test_it_does_not_read_noise(recogniser: Recogniser) -> None:
    noise = torch.randint(0, 256, (200, 1, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert _found(recogniser, noise).share < 0.2
    black = torch.zeros(10, 1, 32, 32, dtype=torch.uint8)
    assert not _found(recogniser, black).passed


@pytest.mark.slow
def test_one_digit_again_and_again_is_one_class(recogniser: Recogniser) -> None:
    eight = torch.from_numpy(load_digits_images()[8:9]).expand(50, -1, -1, -1)
    assert _found(recogniser, eight) == Recognition(1.0, 1)
    assert not _found(recogniser, eight).passed


def test_a_class_is_there_from_a_hundredth_of_the_recognised_on() -> None:
    logits = np.zeros((1010, 10), np.float32)
    logits[:990, 0], logits[990:1000, 1], logits[1000:1009, 2] = 20, 20, 20
    found = recognise(FeatureSet(FeatureStats(10), logits))
    assert found.classes == 1, "10 and 9 of 1009 are too few"
    logits[1009, 1] = 20
    found = recognise(FeatureSet(FeatureStats(10), logits))
    assert (found.share, found.classes) == (1.0, 2)


def test_it_is_the_same_every_time(recogniser: Recogniser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangway.trainer.metrics.scores._EPOCHS", 1)
    state = torch.random.get_rng_state()
    images = torch.from_numpy(load_digits_images()[:3])
    first, second = (Recogniser(torch.device("cpu"))(images) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert torch.equal(torch.random.get_rng_state(), state), "nobody else's random numbers move"
