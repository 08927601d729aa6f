"""Digit recognition: the classifier reads real digits it has not seen, and counts what it is sure of."""

import numpy as np
import pytest
import torch

from gangway.trainer.data.packaged_data import load_digits_images
from gangway.trainer.metrics.collect import FeatureSet
from gangway.trainer.metrics.features import FeatureExtractor
from gangway.trainer.metrics.frechet import FeatureStats
from gangway.trainer.metrics.recognition import Recogniser, Recognition, recognise


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
    monkeypatch.setattr("gangway.trainer.metrics.recognition._EPOCHS", 1)
    state = torch.random.get_rng_state()
    images = torch.from_numpy(load_digits_images()[:3])
    first, second = (Recogniser(torch.device("cpu"))(images) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert torch.equal(torch.random.get_rng_state(), state), "nobody else's random numbers move"
