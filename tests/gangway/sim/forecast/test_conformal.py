"""Conformal intervals: they hold what they promise where data are exchangeable, and win it back where they are not."""

import math
import random
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.sim.forecast.conformal import Adaptive, fewest_scores, get_offset, score

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60)


def test_the_offset_by_hand() -> None:
    """Of nine scores, 90 % takes the ninth of ten places; 50 % the fifth."""
    scores = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    assert (get_offset(scores, 0.9), get_offset(scores, 0.5), get_offset(scores, 0.0)) == (9.0, 5.0, 1.0)
    assert fewest_scores(0.9) == 9


@given(NUMBERS, st.floats(0.5, 0.99), st.floats(0, 0.4))
def test_more_is_promised_by_wider_intervals(scores: list[float], level: float, less: float) -> None:
    ordered = sorted(scores)
    assert get_offset(ordered, level) >= get_offset(ordered, level - less)


@given(st.integers(-99, 99), st.integers(0, 99), st.integers(-300, 300), st.integers(-99, 99))
def test_a_truth_is_within_the_moved_interval_when_its_score_is_no_more(
    low: int, width: int, truth: int, moved: int
) -> None:
    high = low + width
    assert (score(low, high, truth) <= moved) == (low - moved <= truth <= high + moved)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
@pytest.mark.parametrize("heavy", [False, True], ids=["normal", "heavy tails"])
def test_coverage_on_exchangeable_data_is_the_level(level: float, heavy: bool) -> None:
    """From a wrong model (a constant, its interval of no width): 4,000 times 99 scores and a truth. (n + 1) level is
    a whole number, so coverage is the level exactly; within five binomial deviations.
    """
    draw, trials = random.Random(7), 4000

    def truth() -> float:
        value = draw.gauss(3, 2)
        return value**3 if heavy else value

    held = sum(score(0, 0, truth()) <= get_offset(sorted(score(0, 0, truth()) for _ in range(99)), level)
               for _ in range(trials))  # fmt: skip
    assert abs(held / trials - level) <= 5 * math.sqrt(level * (1 - level) / trials)


def test_the_adaptive_offsets_keep_the_level_on_noise_and_after_a_shift() -> None:
    draw, level, number = random.Random(3), 0.9, 6000
    for spread_later in (1.0, 4.0):
        scores = [abs(draw.gauss(0, 1 if index < number // 2 else spread_later)) for index in range(number)]
        offsets = Adaptive(level).offsets(scores, delay=4)
        later = range(number // 2 + 200, number // 2 + 1200)
        held = sum(scores[index] <= offsets[index] for index in later) / len(later)
        plain = sorted(scores[: number // 2])
        without = sum(scores[index] <= get_offset(plain, level) for index in later) / len(later)
        assert abs(held - level) <= 5 * math.sqrt(level * (1 - level) / len(later))
        assert spread_later == 1 or without < 0.5, "or there was nothing to adapt to"


@given(NUMBERS, st.integers(1, 10), st.data())
def test_no_offset_knows_a_score_before_its_truth(scores: list[float], delay: int, data: st.DataObject) -> None:
    kept = data.draw(st.integers(0, len(scores)))
    changed = scores[:kept] + [value + 1 for value in scores[kept:]]
    adaptive = Adaptive(0.9)
    told = kept + delay
    assert adaptive.offsets(scores, delay)[:told] == adaptive.offsets(changed, delay)[:told]
    assert adaptive.offsets(scores, delay)[:delay] == [math.inf] * min(delay, len(scores))


def test_the_true_quantiles_are_left_alone() -> None:
    """A model that knows the distribution is moved by next to nothing."""
    draw, normal = random.Random(5), NormalDist()
    low, high = normal.inv_cdf(0.05), normal.inv_cdf(0.95)
    scores = sorted(score(low, high, draw.gauss(0, 1)) for _ in range(20_000))
    assert abs(get_offset(scores, 0.9)) < 0.05
