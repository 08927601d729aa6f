"""Drift: found soon after a shift, and on noise no more often than was told."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.sim.forecast.drift import detect, deviates, mean_run_length, normal_scores, threshold_for


@given(st.floats(5, 1e6))
def test_the_threshold_is_the_one_of_the_rate(every: float) -> None:
    assert mean_run_length(threshold_for(every)) == pytest.approx(every, rel=1e-3) or threshold_for(every) < 1e-6


def test_the_run_length_is_that_of_the_tables() -> None:
    """Two-sided, k = 0.5: h = 4 gives 168, h = 5 gives 465 (Montgomery, Statistical Quality Control)."""
    assert mean_run_length(4) == pytest.approx(168, rel=0.02)
    assert mean_run_length(5) == pytest.approx(465, rel=0.02)


def alarms(noise: str, length: int, runs: int, every: float) -> int:
    draw, found = random.Random(11), 0
    for _ in range(runs):
        value, errors = 0.0, []
        for _ in range(200 + length):
            value = 0.4 * value + draw.gauss(0, 1) if noise == "autocorrelated" else draw.gauss(0, 1)
            errors.append(value**3 if noise == "heavy tails" else value)
        found += detect(deviates(errors[200:], errors[:200]), every).alarm is not None
    return found


@pytest.mark.parametrize("noise", ["normal", "heavy tails", "autocorrelated"])
def test_on_noise_alarms_are_no_more_frequent_than_told(noise: str) -> None:
    """In 100 errors at once in 500, at most 1 - exp(-100/500) of the runs; within three binomial deviations above."""
    runs, share = 300, 1 - math.exp(-100 / 500)
    assert alarms(noise, 100, runs, 500) <= runs * share + 3 * math.sqrt(runs * share * (1 - share))


def test_there_are_false_alarms_all_the_same() -> None:
    """Or nothing would ever be found."""
    assert alarms("normal", 100, 300, 20) > 30


@pytest.mark.parametrize("shift", [1.5, -1.5])
def test_a_shift_is_found_soon_with_its_beginning_and_direction(shift: float) -> None:
    draw, delays = random.Random(12), []
    for _ in range(100):
        reference = [draw.gauss(0, 1) for _ in range(200)]
        errors = [draw.gauss(0, 1) for _ in range(40)] + [draw.gauss(shift, 1) for _ in range(60)]
        found = detect(deviates(errors, reference), 1000)
        assert found.alarm is not None
        if found.alarm >= 40:
            assert found.began is not None
            assert found.upward == (shift > 0)
            delays.append(found.alarm - 40)
    assert len(delays) >= 90
    assert sum(delays) / len(delays) < 12


@given(st.lists(st.floats(-1e6, 1e6), min_size=20, max_size=60), st.lists(st.floats(-1e6, 1e6), max_size=20))
def test_scores_depend_on_ranks_alone(reference: list[float], errors: list[float]) -> None:
    scores = normal_scores(errors, reference)
    assert scores == normal_scores([2 * each for each in errors], [2 * each for each in reference])
    assert all(math.isfinite(each) for each in scores)


def test_errors_that_never_differ_are_no_drift() -> None:
    assert detect(deviates([0.0] * 500, [0.0] * 50)).alarm is None
